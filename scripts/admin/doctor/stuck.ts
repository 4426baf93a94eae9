import type { StoredDelivery } from '../../../src/events/delivery.ts';
import { VaultError } from '../../../src/platform/process/vault.ts';
import type { Opened } from '../stores.ts';
import { TIMING } from '../../../src/platform/process/time-limits.ts';

/** Work older than this counts as stuck, because sweeps find lost work within seconds. */
const HEAD_STUCK_MS = 10_000;
const EVENT_STUCK_MS = 10_000;
const QUEUED_STUCK_MS = 10_000;
/** A send that is older than this counts as stuck, because a sweep ends the claim of a dead worker within this time. */
const SENDING_STUCK_MS = TIMING.claimEndedWithinMs;
/** A worker takes what is due within seconds, unless it reads as many sources as it may. */
const SOURCES_STUCK_MS = 120_000;
const LOOKED_AT = 1_000;
const EXAMPLES = 5;

export type Found = { count: number; oldestMs: number; examples: string[] };

const toFound = (items: { id: string; at: Date }[], now: number): Found => {
  const sorted = items.toSorted((a, b) => a.at.getTime() - b.at.getTime());
  const oldest = sorted[0];
  return {
    count: items.length,
    oldestMs: oldest ? now - oldest.at.getTime() : 0,
    examples: sorted.slice(0, EXAMPLES).map(({ id }) => id),
  };
};

/**
 * Finds conversations whose first pending turn is old and has no lease. The age is measured from `acceptedAt`, because
 * sweeps update `headSince`.
 */
const findStaleHeads = async ({ conversations, leases }: Opened, now: number): Promise<Found> => {
  const heads = await conversations.findHeadsAcceptedBefore(new Date(now - HEAD_STUCK_MS), LOOKED_AT);
  const leased = await leases.findLeased(heads);
  return toFound(
    heads.filter(({ turnId }) => !leased.has(turnId)).map(({ turnId: id, acceptedAt: at }) => ({ id, at })),
    now,
  );
};

/** Finds old pending events whose endpoint is not paused. */
const findOldEvents = async ({ conversations, endpoints }: Opened, now: number): Promise<Found> => {
  const paused = await endpoints.listPausedIds();
  const { outboxes } = await conversations.outbox.findStale({
    olderThanMs: EVENT_STUCK_MS,
    exclude: paused,
    limit: LOOKED_AT,
  });
  const heads = outboxes.flatMap(({ conversationId, outbox = [] }) => {
    const waiting = outbox.find((event) => event.endpoints.some((id) => !paused.includes(id)));
    return waiting ? [{ id: conversationId, at: waiting.at }] : [];
  });
  return toFound(heads, now);
};

const findDeliveries = async ({ mongo }: Opened, filter: Record<string, unknown>, now: number): Promise<Found> => {
  const rows = await mongo
    .collection<StoredDelivery>('deliveries')
    .find(filter, { projection: { createdAt: 1 } })
    .limit(LOOKED_AT)
    .toArray();
  return toFound(
    rows.map(({ _id: id, createdAt: at }) => ({ id, at })),
    now,
  );
};

const findWaitingSources = async ({ sourceRuns }: Opened, now: number): Promise<Found> => {
  const due = await sourceRuns.findDue({ limit: LOOKED_AT, except: [], before: new Date(now - SOURCES_STUCK_MS) });
  return toFound(
    due.map(({ sourceId: id, since: at }) => ({ id, at })),
    now,
  );
};

const findPaused = async ({ endpoints }: Opened) => {
  const paused = await Promise.all((await endpoints.listPausedIds()).map(endpoints.readForSending));
  return paused
    .filter((endpoint) => endpoint !== null)
    .map(({ _id: endpointId, url, pause }) => ({ endpointId, url, pause }));
};

/** Finds endpoints whose secrets cannot be decrypted with this key. Their events cannot be signed. */
const findUnreadableSecrets = async ({ mongo, endpoints }: Opened): Promise<string[]> => {
  const ids = await mongo
    .collection<{ _id: string }>('endpoints')
    .find({}, { projection: { _id: 1 } })
    .limit(LOOKED_AT)
    .toArray();
  const stored = await Promise.all(ids.map(({ _id }) => endpoints.readForSending(_id)));
  return stored
    .filter((endpoint) => endpoint !== null)
    .flatMap((endpoint) => {
      try {
        endpoints.openSecrets(endpoint, Date.now());
        endpoints.openHeaders(endpoint);
        return [];
      } catch (cause) {
        if (cause instanceof VaultError) return [endpoint._id];
        throw cause;
      }
    });
};

/** Finds all work that is stuck. Counts stop at 1,000. */
export const findStuck = async (opened: Opened) => {
  const now = Date.now();
  const before = (ms: number) => new Date(now - ms);
  const [staleHeads, oldEvents, sending, queued, sources, pausedEndpoints, unreadableSecrets] = await Promise.all([
    findStaleHeads(opened, now),
    findOldEvents(opened, now),
    findDeliveries(opened, { outcome: 'sending', createdAt: { $lt: before(SENDING_STUCK_MS) } }, now),
    findDeliveries(opened, { outcome: 'queued', createdAt: { $lt: before(QUEUED_STUCK_MS) } }, now),
    findWaitingSources(opened, now),
    findPaused(opened),
    findUnreadableSecrets(opened),
  ]);
  return { staleHeads, oldEvents, sending, queued, sources, pausedEndpoints, unreadableSecrets };
};

export type Stuck = Awaited<ReturnType<typeof findStuck>>;
