import { endpointsOf, type OutboxStore, pendingOf, type StaleOutbox } from '../conversations/outbox.ts';
import type { DeliveryQueue } from './queue.ts';
import { BACKLOG_MAX } from '../conversations/conversation.ts';
import type { DeliveryStore } from './store.ts';
import type { Endpoint } from './endpoint.ts';
import type { EndpointStore } from './endpoints.ts';
import { deliveryIdOf } from './delivery.ts';
import { createEndUndeliverable, type OnEnded } from './claims.ts';
import { inChunks } from '../platform/mongo/batches.ts';
import { serverNow } from '../platform/process/clock.ts';
import type { Timing } from '../platform/process/time-limits.ts';
import { createLru } from '../platform/process/lru.ts';
import { createSlices } from '../platform/process/slices.ts';
import { createSlots, oneEach, withRests } from '../platform/process/slots.ts';

/** An endpoint with fewer idle streams than this gets no backoff, because waking so few streams again costs little. */
const MANY = 100;
const FIRST_WAIT_MS = 2_000;
const LONGEST_WAIT_MS = 16_000;
const FORGET_AFTER_MS = 60_000;

type Known = { woken: Set<string>; waitMs: number; until: number; seenAt: number };

/**
 * Backoff for endpoints with many streams that make no progress, because the endpoint hangs and its slots are full.
 * Without backoff, every sweep would wake the same streams again. Growing pauses keep these streams from delaying the
 * streams of other endpoints and from filling the queue.
 */
export const createBackoff = (now: () => number = () => performance.now()) => {
  const known = new Map<string, Known>();

  return {
    /** Endpoints whose streams must not be woken now. */
    suspended: (): string[] => {
      const time = now();
      for (const [endpointId, { seenAt, waitMs }] of known) {
        if (time - seenAt > FORGET_AFTER_MS + waitMs) known.delete(endpointId);
      }
      return [...known].filter(([, { until }]) => until > time).map(([endpointId]) => endpointId);
    },

    /**
     * Records the stream heads that a sweep wakes. Returns true if the previous sweep already woke most of these heads;
     * the endpoint is then suspended.
     */
    note: (endpointId: string, heads: string[]): boolean => {
      const before = known.get(endpointId);
      const again = before ? heads.filter((head) => before.woken.has(head)).length : 0;
      if (heads.length < MANY) return false;
      const unmoved = before !== undefined && again > heads.length / 2;
      const waitMs = unmoved ? Math.min(before.waitMs * 2, LONGEST_WAIT_MS) : FIRST_WAIT_MS / 2;
      const time = now();
      known.set(endpointId, { woken: new Set(heads), waitMs, until: unmoved ? time + waitMs : 0, seenAt: time });
      return unmoved;
    },
  };
};

/**
 * The maximum number of streams that are woken together after their endpoint changed. Sweeps find the other streams
 * within seconds.
 */
const WOKEN_AT_ONCE = 200;
/**
 * An assistant's streams are woken at most this often. A program may resume an endpoint ten times a second, and each
 * time the outboxes of all of its streams would be read before the events of others.
 */
const WOKEN_AGAIN_MS = 2_000;
const ASSISTANTS_KNOWN = 10_000;
/** For how many assistants at once, and how long a change of an endpoint waits for its turn. */
const WAKING_AT_ONCE = 2;
const WAKING_WITHIN_MS = 500;

type Dependencies = { outbox: Pick<OutboxStore, 'findKeysOf'>; deliveryQueue: Pick<DeliveryQueue, 'wake'> };

/**
 * Wakes the streams with pending events for an endpoint that has changed. Never throws: what is busy or fails is left to
 * the sweeps. To find the streams fetches their conversations, so few assistants have a place for it, with a rest.
 */
export const createWakeStreams = ({ outbox, deliveryQueue }: Dependencies) => {
  const woken = createLru<true>({ most: ASSISTANTS_KNOWN, ttl: WOKEN_AGAIN_MS });
  const places = withRests(createSlots(oneEach(WAKING_AT_ONCE)));
  return async ({ endpointId, assistantId }: Pick<Endpoint, 'endpointId' | 'assistantId'>): Promise<void> => {
    if (woken.has(assistantId)) return;
    woken.set(assistantId, true);
    const signal = AbortSignal.timeout(WAKING_WITHIN_MS);
    const place = await places.acquire(assistantId, { signal }).catch(() => null);
    if (!place) return;
    const keys = await outbox.findKeysOf(endpointId, WOKEN_AT_ONCE).catch(() => []);
    place.release();
    for (const key of keys) deliveryQueue.wake({ _id: key, assistantId });
  };
};

const OUTBOXES_PER_SWEEP = 5_000;
const ROUNDS_PER_SWEEP = 3;
/** The time in which a sweep begins to end the oldest events of streams. */
const TRIMMED_FOR_MS = 1_000;
/** How many outboxes a sweep looks at for that. MongoDB counts the events of all of their streams. */
const FULL_PER_SWEEP = 20;

type SweepDependencies = {
  conversations: { outbox: OutboxStore };
  deliveries: DeliveryStore;
  endpoints: Pick<EndpointStore, 'listPausedIds' | 'readForSending'>;
  deliveryQueue: Pick<DeliveryQueue, 'byPartition' | 'wake' | 'wakeDelivery'>;
  eventMaxAgeMs: number;
  timing: Timing;
  /** Endpoints whose streams are suspended in this process: by the breaker, or because their slots are full. */
  suspended?: () => string[];
  outboxesPerSweep?: number;
  /** Called for each event that a sweep ends. */
  onEnded?: OnEnded;
  /** Called with the number of claims whose worker is gone. */
  onLost?: (count: number) => void;
};

type Head = { outbox: StaleOutbox; endpointId: string; deliveryId: string };

/**
 * The sweeps of deliveries (docs/design.md, Sweeps). Workers of both kinds run these sweeps, and each step is a
 * compare-and-set. `claims` ends claims whose worker is gone, and runs separately, so that nothing delays it. `streams`
 * wakes streams whose head no worker is sending. No sweep sends events. `streams` then ends the oldest events of
 * streams that exceed the backlog limit.
 */
export const createDeliverySweeps = (dependencies: SweepDependencies) => {
  const { conversations, deliveries, endpoints, deliveryQueue, eventMaxAgeMs, timing } = dependencies;
  const { outbox: outboxStore } = conversations;
  const {
    outboxesPerSweep = OUTBOXES_PER_SWEEP,
    suspended = () => [],
    onEnded = () => undefined,
    onLost = () => undefined,
  } = dependencies;
  const endUndeliverable = createEndUndeliverable({ conversations, deliveries, eventMaxAgeMs, onEnded });
  const backoff = createBackoff();
  /** The next sweep goes on behind this endpoint, so that the streams of some hide none of another. */
  let last = '';
  /** The same for outboxes with too many events: the time of the first event of the last one. */
  let lastFull = new Date(0);
  let fromOldest = false;

  const claims = async (): Promise<void> => {
    const lost = await deliveries.endLostClaims(timing.claimLostMs);
    if (lost > 0) onLost(lost);
    const pausedIds = new Set([...(await endpoints.listPausedIds()), ...suspended()]);
    const older = { wakeAfterMs: timing.eventStaleMs, expireAfterMs: eventMaxAgeMs };
    const queued = await deliveries.sweepQueued({ ...older, pausedIds });
    for (const deliveryId of queued) deliveryQueue.wakeDelivery(deliveryId);
  };

  /**
   * Stream heads that no worker is sending. A head that has ended but was not removed is included, so that a worker
   * removes it.
   */
  const findIdleOf = async (outboxes: StaleOutbox[], excluded: Set<string>): Promise<Head[]> => {
    const now = serverNow();
    const heads = outboxes.flatMap((outbox) =>
      endpointsOf(outbox).flatMap((endpointId): Head[] => {
        const [event] = pendingOf(outbox, endpointId);
        const age = event ? now - event.at.getTime() : 0;
        if (!event || age < timing.eventStaleMs || (excluded.has(endpointId) && age < eventMaxAgeMs)) return [];
        return [{ outbox, endpointId, deliveryId: deliveryIdOf(event.eventId, endpointId) }];
      }),
    );
    const known = await deliveries.readOutcomes(heads.map(({ deliveryId }) => deliveryId));
    return heads.filter(({ deliveryId }) => known.get(deliveryId) !== 'sending');
  };
  /** The same for any number of outboxes, of which each has a head for each of its endpoints. */
  const findIdle = async (outboxes: StaleOutbox[], excluded: Set<string>): Promise<Head[]> => {
    const idle: Head[] = [];
    const slices = createSlices();
    for (const some of inChunks(outboxes)) {
      idle.push(...(await findIdleOf(some, excluded)));
      if (slices.isOver()) await slices.next();
    }
    return idle;
  };

  /**
   * Ends the oldest events of streams that exceed the backlog limit, even if a worker is sending other events of the
   * stream. An outbox is read once for all of its streams, and only if one has more than the limit beside the event that
   * is being sent. Each sweep looks at a few outboxes, and begins with any of them, because other processes look at the
   * same. Every second sweep looks at those whose first event is the oldest, the others at the next ones.
   */
  const trim = async (): Promise<void> => {
    const after = fromOldest ? new Date(0) : lastFull;
    const outboxes = await outboxStore.findFull({ olderThanMs: timing.eventStaleMs, after, limit: FULL_PER_SWEEP });
    const next = outboxes.length < FULL_PER_SWEEP ? undefined : outboxes.at(-1)?.outbox[0]?.at;
    if (!fromOldest) lastFull = next ?? new Date(0);
    fromOldest = !fromOldest;
    const long = outboxes.flatMap((outbox) =>
      outbox.lengths.flatMap(({ endpointId, count }) => {
        const [head] = pendingOf(outbox, endpointId);
        if (!head || count <= BACKLOG_MAX) return [];
        return [{ key: outbox._id, endpointId, count, deliveryId: deliveryIdOf(head.eventId, endpointId) }];
      }),
    );
    const known = await deliveries.readOutcomes(long.map(({ deliveryId }) => deliveryId));
    const over = long.filter(({ count, deliveryId }) => count > BACKLOG_MAX + 1 || known.get(deliveryId) !== 'sending');
    const until = performance.now() + TRIMMED_FOR_MS;
    const byKey = [...Map.groupBy(over, ({ key }) => key)];
    const first = Math.floor(Math.random() * byKey.length);
    for (const [key, some] of [...byKey.slice(first), ...byKey.slice(0, first)]) {
      if (performance.now() > until) return;
      const outbox = await outboxStore.read(key);
      if (!outbox) continue;
      for (const { endpointId } of some)
        await endUndeliverable({ outbox, endpoint: await endpoints.readForSending(endpointId) }, endpointId);
    }
  };

  /** Wakes the streams that no worker is sending. */
  const wakeIdle = async (): Promise<void> => {
    const found = new Set<string>();
    const excluded = new Set([...(await endpoints.listPausedIds()), ...suspended(), ...backoff.suspended()]);
    const woken: Head[][] = [];
    const start = last;
    for (let round = 0; round < ROUNDS_PER_SWEEP; round += 1) {
      const after = last;
      const read = await outboxStore.findStale({
        olderThanMs: timing.eventStaleMs,
        exclude: [...excluded],
        limit: outboxesPerSweep,
        // Events of a suspended stream must also end once they are too old.
        expiredMs: eventMaxAgeMs,
        after,
      });
      last = read.last;
      const outboxes = read.outboxes.filter(({ _id: key }) => !found.has(key));
      for (const { _id: key } of outboxes) found.add(key);
      // If old wake-ups are still waiting in the queue, adding more would not help.
      const awaited = (await deliveryQueue.byPartition(outboxes)).filter(
        ({ oldestWaitingAt }) => oldestWaitingAt === null || serverNow() - oldestWaitingAt <= timing.eventStaleMs,
      );
      const idle = await findIdle(
        awaited.flatMap(({ items }) => items),
        excluded,
      );
      for (const outbox of new Set(idle.map((head) => head.outbox))) deliveryQueue.wake(outbox);
      woken.push(idle);
      if (last === '' && (start === '' || after === '')) break; // all were read
    }
    for (const [endpointId, heads] of Map.groupBy(woken.flat(), (head) => head.endpointId))
      backoff.note(
        endpointId,
        heads.map(({ deliveryId }) => deliveryId),
      );
  };

  const streams = async (): Promise<void> => {
    try {
      await wakeIdle();
    } finally {
      await trim(); // also while Redis is unavailable
    }
  };

  return { claims, streams };
};
