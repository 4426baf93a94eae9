import type { DeliveryQueue } from './queue.ts';
import type { DeliveryStore } from './store.ts';
import type { EndpointStore } from '../webhooks/endpoint-store.ts';
import { deliveryIdOf } from './delivery.ts';
import { type OnEnded, createEndUndeliverable } from './undeliverable.ts';
import { BACKLOG_MAX, endpointsOf, pendingOf, type StaleOutbox } from './outbox.ts';
import { createBackoff } from './backoff.ts';
import { serverNow } from '../platform/clock.ts';
import { TIMING } from '../platform/timing.ts';

const OUTBOXES_PER_SWEEP = 5_000;
const ROUNDS_PER_SWEEP = 3;

type Dependencies = {
  deliveries: DeliveryStore;
  endpoints: EndpointStore;
  deliveryQueue: DeliveryQueue;
  eventMaxAgeMs: number;
  /** Endpoints whose streams this process knows to be suspended: by the breaker, or because their slots are full. */
  suspended?: () => string[];
  outboxesPerSweep?: number;
  /** Told of each event that ended here. */
  onEnded?: OnEnded;
  /** Told how many claims ended without their worker. */
  onLost?: (count: number) => void;
};

type Head = { key: string; endpointId: string; deliveryId: string };

/**
 * The delivery side's sweeps (docs/design.md, Sweeps), run by every worker of either kind, each step a compare-and-set.
 * `claims` ends those whose worker is gone; it runs on its own, so that nothing keeps it from doing so in time. `streams`
 * wakes streams whose head has no delivery under way. Neither sends: the only events ended here are those over the bound,
 * since with no delivery worker alive nobody else would keep a busy session's document small.
 */
export const createDeliverySweeps = (dependencies: Dependencies) => {
  const { deliveries, endpoints, deliveryQueue, eventMaxAgeMs } = dependencies;
  const {
    outboxesPerSweep = OUTBOXES_PER_SWEEP,
    suspended = () => [],
    onEnded = () => undefined,
    onLost = () => undefined,
  } = dependencies;
  const endUndeliverable = createEndUndeliverable({ deliveries, eventMaxAgeMs, onEnded });
  const backoff = createBackoff();

  const claims = async (): Promise<void> => {
    const lost = await deliveries.endLostClaims(TIMING.claimLostMs);
    if (lost > 0) onLost(lost);
    const queued = await deliveries.sweepQueued({ wakeAfterMs: TIMING.eventStaleMs, expireAfterMs: eventMaxAgeMs });
    for (const deliveryId of queued) deliveryQueue.wakeDelivery(deliveryId);
  };

  /** Heads of streams that nobody is sending. One that has ended but was not removed counts, so that it will be. */
  const findIdle = async (outboxes: StaleOutbox[], excluded: Set<string>): Promise<Head[]> => {
    const now = serverNow();
    const heads = outboxes.flatMap((outbox) =>
      endpointsOf(outbox).flatMap((endpointId): Head[] => {
        const [event] = pendingOf(outbox, endpointId);
        const age = event ? now - event.at.getTime() : 0;
        if (!event || age < TIMING.eventStaleMs || (excluded.has(endpointId) && age < eventMaxAgeMs)) return [];
        return [{ key: outbox._id, endpointId, deliveryId: deliveryIdOf(event.eventId, endpointId) }];
      }),
    );
    const known = await deliveries.readOutcomes(heads.map(({ deliveryId }) => deliveryId));
    return heads.filter(({ deliveryId }) => known.get(deliveryId) !== 'sending');
  };

  /** Ends the oldest events of streams over the bound, whoever else works on them. */
  const trim = async (outboxes: StaleOutbox[]): Promise<void> => {
    const over = outboxes.flatMap((outbox) =>
      endpointsOf(outbox)
        .filter((endpointId) => pendingOf(outbox, endpointId).length > BACKLOG_MAX)
        .map((endpointId) => ({ key: outbox._id, endpointId })),
    );
    for (const { key, endpointId } of over) {
      const outbox = await deliveries.outbox.read(key);
      if (outbox) await endUndeliverable({ outbox, endpoint: await endpoints.readForSending(endpointId) }, endpointId);
    }
  };

  const streams = async (): Promise<void> => {
    const excluded = new Set([...(await endpoints.listPausedIds()), ...suspended(), ...backoff.suspended()]);
    for (let round = 0; round < ROUNDS_PER_SWEEP; round += 1) {
      const outboxes = await deliveries.outbox.findStale({
        olderThanMs: TIMING.eventStaleMs,
        exclude: [...excluded],
        limit: outboxesPerSweep,
        // The events of a suspended stream must end once they are too old.
        expiredMs: eventMaxAgeMs,
      });
      if (outboxes.length === 0) return;
      await trim(outboxes);
      const oldestWaiting = await deliveryQueue.oldestWaitingAt();
      // While older wake-ups still wait in the queue, more of them would not help.
      if (oldestWaiting !== null && serverNow() - oldestWaiting > TIMING.eventStaleMs) return;
      const idle = await findIdle(outboxes, excluded);
      for (const key of new Set(idle.map((head) => head.key))) deliveryQueue.wake(key);
      const unmoved = [...Map.groupBy(idle, ({ endpointId }) => endpointId)]
        .filter(([endpointId, heads]) =>
          backoff.note(
            endpointId,
            heads.map(({ deliveryId }) => deliveryId),
          ),
        )
        .map(([endpointId]) => endpointId);
      // The sweep was full of streams that do not move. Another look leaves them out and finds those behind them.
      if (outboxes.length < outboxesPerSweep || unmoved.length === 0) return;
      for (const endpointId of unmoved) excluded.add(endpointId);
    }
  };

  return { claims, streams };
};
