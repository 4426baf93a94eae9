import type { DeliveryQueue } from '../events/queue.ts';
import type { DeliveryStore } from '../events/store.ts';
import type { EndpointStore } from '../events/endpoint-store.ts';
import { deliveryIdOf } from '../events/delivery.ts';
import { endpointsOf, lineOf, type Outbox } from './outbox.ts';
import type { ConversationStore } from './store.ts';

const EVENT_STALE_MS = 2_000;
/** `sending` for longer than any send can take: its worker is gone. */
const CLAIM_LOST_MS = 10_000;
const LINES_A_SWEEP = 1_000;

type Dependencies = {
  conversations: ConversationStore;
  deliveries: DeliveryStore;
  endpoints: EndpointStore;
  deliveryQueue: DeliveryQueue;
  eventMaxAgeMs: number;
  /** Endpoints whose lines this process knows to rest: a breaker's pause, a full line. */
  resting?: () => string[];
  /** Told how many claims ended without their worker. */
  onLost?: (count: number) => void;
};

/**
 * The delivery side's sweep (design §2): ends claims whose worker is gone, and wakes lines whose head has no delivery
 * under way. It never sends and never ends an event itself; whoever handles the line does.
 */
export const createDeliverySweep = (dependencies: Dependencies) => {
  const {
    conversations,
    deliveries,
    endpoints,
    deliveryQueue,
    eventMaxAgeMs,
    resting = () => [],
    onLost = () => undefined,
  } = dependencies;

  /** Heads of lines that nobody is sending; an ended one that was not pulled counts, so that it will be. */
  const findIdle = async (outboxes: Outbox[]): Promise<Set<string>> => {
    const heads = outboxes.flatMap((outbox) =>
      endpointsOf(outbox).flatMap((endpointId) => {
        const [event] = lineOf(outbox, endpointId);
        return event ? [{ key: outbox._id, deliveryId: deliveryIdOf(event.eventId, endpointId) }] : [];
      }),
    );
    const known = await deliveries.readOutcomes(heads.map(({ deliveryId }) => deliveryId));
    return new Set(heads.filter(({ deliveryId }) => known.get(deliveryId) !== 'sending').map(({ key }) => key));
  };

  return async (): Promise<void> => {
    const lost = await deliveries.endLostClaims(CLAIM_LOST_MS);
    if (lost > 0) onLost(lost);
    const queued = await deliveries.sweepQueued({ wakeAfterMs: EVENT_STALE_MS, expireAfterMs: eventMaxAgeMs });
    for (const deliveryId of queued) deliveryQueue.wakeDelivery(deliveryId);

    const leaveOut = [...(await endpoints.listPausedIds()), ...resting()];
    const [stale, expired] = await Promise.all([
      conversations.outbox.findStale({ olderThanMs: EVENT_STALE_MS, leaveOut, limit: LINES_A_SWEEP }),
      // Resting lines wait for their time to run out; then their events must end.
      conversations.outbox.findStale({ olderThanMs: eventMaxAgeMs, leaveOut: [], limit: LINES_A_SWEEP }),
    ]);
    const outboxes = [...stale, ...expired];
    if (outboxes.length === 0) return;
    const oldestWaiting = await deliveryQueue.oldestWaitingAt();
    // While older wake-ups are still in line, more of them help nobody.
    if (oldestWaiting !== null && Date.now() - oldestWaiting > EVENT_STALE_MS) return;
    for (const key of await findIdle(outboxes)) deliveryQueue.wake(key);
  };
};
