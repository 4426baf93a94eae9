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
  /** Endpoints whose streams are suspended in this process: by the breaker, or because their slots are full. */
  suspended?: () => string[];
  outboxesPerSweep?: number;
  /** Called for each event that a sweep ends. */
  onEnded?: OnEnded;
  /** Called with the number of claims whose worker is gone. */
  onLost?: (count: number) => void;
};

type Head = { key: string; endpointId: string; deliveryId: string };

/**
 * The sweeps of deliveries (docs/design.md, Sweeps). Workers of both kinds run these sweeps, and each step is a
 * compare-and-set. `claims` ends claims whose worker is gone, and runs separately, so that nothing delays it. `streams`
 * wakes streams whose head no worker is sending. No sweep sends events. `streams` also ends the oldest events of
 * streams that exceed the backlog limit, because without a running delivery worker nothing else keeps a busy session's
 * document small.
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

  /**
   * Stream heads that no worker is sending. A head that has ended but was not removed is included, so that a worker
   * removes it.
   */
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

  /**
   * Ends the oldest events of streams that exceed the backlog limit, even if a worker is sending other events of the
   * stream.
   */
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
        // Events of a suspended stream must also end once they are too old.
        expiredMs: eventMaxAgeMs,
      });
      if (outboxes.length === 0) return;
      await trim(outboxes);
      // If old wake-ups are still waiting in the queue, adding more would not help.
      const awaited = (await deliveryQueue.byPartition(outboxes)).filter(
        ({ oldestWaitingAt }) => oldestWaitingAt === null || serverNow() - oldestWaitingAt <= TIMING.eventStaleMs,
      );
      if (awaited.length === 0) return;
      const idle = await findIdle(
        awaited.flatMap(({ items }) => items),
        excluded,
      );
      for (const key of new Set(idle.map((head) => head.key))) deliveryQueue.wake(key);
      const unmoved = [...Map.groupBy(idle, ({ endpointId }) => endpointId)]
        .filter(([endpointId, heads]) =>
          backoff.note(
            endpointId,
            heads.map(({ deliveryId }) => deliveryId),
          ),
        )
        .map(([endpointId]) => endpointId);
      // All streams that this round found may be streams that make no progress. The next round excludes them and finds
      // other streams.
      if (outboxes.length < outboxesPerSweep || unmoved.length === 0) return;
      for (const endpointId of unmoved) excluded.add(endpointId);
    }
  };

  return { claims, streams };
};
