import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import type { Connection, Model } from 'mongoose';
import type { ChangedConversation, ChangedConversations, ChangePosition } from '../conversations/changed-since.ts';
import { serverDate, serverNow } from '../platform/process/clock.ts';
import { isDuplicateKey } from '../platform/mongo/failures.ts';
import { type Lease, leaseIn } from '../platform/mongo/batches.ts';
import { collectionOf, schemaOf } from '../platform/mongo/mongo.ts';
import { createLru } from '../platform/process/lru.ts';
import type { Project } from './project.ts';

/** How long a leader stays the leader without a round. After this time another worker continues. */
const LEASE_MS = 10_000;
const lease = leaseIn('lease', LEASE_MS);
const ID = 'projection';

/**
 * How far the projection has come. Changes up to `live` are projected. Conversations that had changed before the first
 * round are projected in the background, one assistant after the other, from the newest to the oldest: `back` is the
 * last one that was projected so, or null when all are.
 */
export type ProjectionState = {
  _id: string;
  lease?: Lease;
  live: Date;
  back: { assistantId: string; at: Date; id: string } | null;
};

const schema = schemaOf<ProjectionState>('projection');

/** Larger than every conversation key. */
export const LAST_KEY = '~';

/**
 * The lease of the worker that projects, and its position. All times come from MongoDB's clock. A worker that lost its
 * lease cannot move the position.
 */
export type ProjectionStates = {
  model: Model<ProjectionState>;

  /** Acquires or renews the lease. Null if another worker is the leader. */
  acquire: (token: string) => Promise<ProjectionState | null>;

  /** Stores the position. False if the lease was lost. */
  advance: (token: string, position: Pick<ProjectionState, 'live' | 'back'>) => Promise<boolean>;

  release: (token: string) => Promise<void>;
};

export const createProjectionState = (connection: Connection): ProjectionStates => {
  const model = connection.model<ProjectionState>('Projection', schema);
  const states = collectionOf(model);

  const acquire = (token: string): Promise<ProjectionState | null> =>
    states.findOneAndUpdate(
      { _id: ID, $or: [lease.heldBy(token), lease.free] },
      [{ $set: { lease: lease.renewed(token) } }],
      { returnDocument: 'after' },
    );

  return {
    model,

    acquire: async (token) => {
      const state = await acquire(token);
      if (state || (await states.findOne({ _id: ID }, { projection: { _id: 1 } }))) return state;
      const live = serverDate();
      const first: ProjectionState = { _id: ID, live, back: { assistantId: '', at: live, id: LAST_KEY } };
      await states.insertOne(first).catch((cause: unknown) => {
        if (!isDuplicateKey(cause)) throw cause;
      });
      return acquire(token);
    },

    advance: async (token, position) => {
      const { live, back } = position;
      const changed = await states.updateOne({ _id: ID, ...lease.heldBy(token) }, { $set: { live, back } });
      return changed.matchedCount === 1;
    },

    release: async (token) => {
      await states.updateOne({ _id: ID, ...lease.heldBy(token) }, { $unset: lease.ended });
    },
  };
};

/**
 * A conversation is projected once nothing has changed in it for `QUIET_MS`, or `AT_LATEST_MS` after its first change.
 * So a chat with many turns is not projected after every turn.
 */
const QUIET_MS = 3_000;
const AT_LATEST_MS = 30_000;
/** A change may become visible this long after its time, so the changes within this time are listed again. */
const OVERLAP_MS = 10_000;
/** How long the projection works before it rests, stores its position and lists again. */
const WORK_MS = 250;
/** How long a round works and rests while it has more to do. Then it ends, so that other duties of the leader run. */
const ROUND_MS = 8_000;
/**
 * How long the projection rests for each millisecond of work. It rests longer the busier its process was in the last
 * rest. So on a busy process the projection falls behind, but turns do not.
 */
const RESTS = [
  { busyBelow: 0.3, rest: 0.5 },
  { busyBelow: 0.7, rest: 3 },
  { busyBelow: Number.POSITIVE_INFINITY, rest: 19 },
] as const;
/** Conversations that were not projected whole (`behind`), those to try again, and what each cost that was begun. */
type Step = { behind: Set<string>; again: Set<string>; costs: Map<string, number> };

/** What a conversation costs beside what is read and written. */
const COST_LEAST = 1_000;
const ASSISTANTS_KNOWN = 10_000;
const LISTED_AT_ONCE = 1_000;
const PROJECTED_AT_ONCE = 25;
/** Bounded without `max`, for which the cache would reserve memory for all entries at the start. */
const REMEMBERED = { maxSize: 50_000, sizeCalculation: () => 1 };
/**
 * How many changed conversations may be in memory. All assistants share this number, but each may have `QUEUED_MIN`.
 * Further ones are listed later.
 */
const QUEUED_MAX = 20_000;
const QUEUED_MIN = 10;
/** The shortest rest, so that the lists are not repeated more often. */
const REST_MIN_MS = 200;
const TRIES_MAX = 5;

type Dependencies = {
  states: ProjectionStates;
  changed: ChangedConversations;
  project: Project;
  listAssistantIds: () => Promise<string[]>;
  draining: AbortSignal;
};

/** The changes of one assistant that are not projected yet. */
type Backlog = {
  /** By conversation, oldest change first. */
  changes: Map<string, ChangedConversation>;
  /** Those of them that are due, the oldest last, because it is taken from the end. */
  due: ChangedConversation[];
  /** If set, only the changes up to this position are in memory. The later ones are listed when there is room. */
  listedTo: ChangePosition | null;
};

/** A position after which every change is listed, also one that becomes visible late. */
const beforeOverlap = (position: ChangePosition): ChangePosition => {
  const at = new Date(serverNow() - OVERLAP_MS);
  return position.at < at ? position : { at, id: '' };
};

/**
 * One round of the projection, made by the leader. First the conversations that have changed since the last round, then
 * some of those that had changed before the first round. What a round does not finish, the next round continues.
 *
 * The next conversation is one of the assistant on which the least was spent, so that one with many changes, or with
 * costly ones, does not delay the others. The leader remembers how far each assistant is. Only the oldest of these
 * positions is stored: another leader starts there, and skips what is projected already.
 */
export const createProjectionRound = ({ states, changed, project, listAssistantIds, draining }: Dependencies) => {
  /** Changes that are done, so that the overlap is not read again. Losing an entry only costs a read. */
  const done = new LRUCache<string, number>(REMEMBERED);
  /** When a conversation that keeps changing was first seen. */
  const firstSeen = new LRUCache<string, number>(REMEMBERED);
  /** How often a conversation has failed. After some tries, it is left alone until it changes again. */
  const tries = new LRUCache<string, number>(REMEMBERED);
  /** Assistants with changes that are not projected. */
  const backlogs = new Map<string, Backlog>();
  /** What was spent on each assistant. */
  const spent = createLru<number>({ most: ASSISTANTS_KNOWN });
  /** What was spent on the assistant whose turn was last. Who had nothing to do before keeps its debts, and saves nothing. */
  let leastSpent = 0;
  const spentOn = (assistantId: string): number => Math.max(leastSpent, spent.get(assistantId) ?? 0);
  /** Changes up to this time are listed, except those of assistants whose backlog has its own `listedTo`. */
  let listedTo: number | null = null;

  const forget = (): void => {
    backlogs.clear();
    listedTo = null;
  };

  const hasBudget = (until: number): boolean => performance.now() < until && !draining.aborted;

  const isDue = ({ _id, updatedAt }: ChangedConversation, now: number): boolean => {
    if (now - updatedAt.getTime() >= QUIET_MS) return true;
    const seen = firstSeen.get(_id) ?? now;
    firstSeen.set(_id, seen);
    return now - seen >= AT_LATEST_MS;
  };

  const finish = ({ _id, updatedAt }: ChangedConversation): void => {
    done.set(_id, updatedAt.getTime());
    firstSeen.delete(_id);
  };

  /**
   * Notes a listed change. If its assistant has too many changes in memory, the position before this change is noted
   * instead.
   */
  const note = (one: ChangedConversation): void => {
    const { _id, assistantId, updatedAt } = one;
    if (done.get(_id) === updatedAt.getTime()) return;
    const backlog = backlogs.get(assistantId) ?? { changes: new Map(), due: [], listedTo: null };
    backlogs.set(assistantId, backlog);
    if (backlog.listedTo) return;
    if (!backlog.changes.delete(_id) && backlog.changes.size >= Math.max(QUEUED_MIN, QUEUED_MAX / backlogs.size)) {
      backlog.listedTo = beforeOverlap({ at: new Date(updatedAt.getTime() - 1), id: LAST_KEY });
      return;
    }
    backlog.changes.set(_id, one); // last, because its change is the latest
  };

  /**
   * Lists the conversations that have changed: of all assistants together, and separately of each assistant whose list
   * was full before.
   */
  const listChanges = async (from: number, until: number): Promise<void> => {
    // The lists may lack a change after this moment, so the position stops here.
    const now = serverNow();
    for (const [assistantId, backlog] of backlogs) {
      if (!backlog.listedTo || backlog.changes.size >= QUEUED_MIN || !hasBudget(until)) continue;
      const listed = await changed.listAfter([assistantId], backlog.listedTo, LISTED_AT_ONCE);
      backlog.listedTo = null;
      for (const one of listed) note(one);
      const last = listed.at(-1);
      if (last && listed.length === LISTED_AT_ONCE)
        backlog.listedTo ??= beforeOverlap({ at: last.updatedAt, id: last._id });
    }
    const others = (await listAssistantIds()).filter((id) => !backlogs.get(id)?.listedTo);
    let position: ChangePosition = { at: new Date(from - OVERLAP_MS), id: '' };
    for (;;) {
      const listed = await changed.listAfter(others, position, LISTED_AT_ONCE);
      for (const one of listed) note(one);
      const last = listed.at(-1);
      if (!last || listed.length < LISTED_AT_ONCE) break;
      position = { at: last.updatedAt, id: last._id };
      listedTo = Math.min(now, Math.max(from, last.updatedAt.getTime()));
      // The first pages may have only changes before `from`, which are known. If they ended the listing, it would never
      // get further.
      if (listedTo > from && !hasBudget(until)) return;
    }
    listedTo = now;
  };

  const findDue = (now: number): void => {
    for (const [assistantId, backlog] of backlogs) {
      const { changes, listedTo: more } = backlog;
      backlog.due = [...changes.values()].filter((one) => isDue(one, now)).reverse();
      if (changes.size === 0 && !more) backlogs.delete(assistantId);
    }
  };

  /** Takes conversations until the batch is full or nothing is due. The first one is of the assistant whose turn it is. */
  const takeBatch = (): ChangedConversation[] => {
    const batch: ChangedConversation[] = [];
    const waiting = new Map<Backlog, number>();
    for (const [assistantId, backlog] of backlogs)
      if (backlog.due.length > 0) waiting.set(backlog, spentOn(assistantId));
    while (batch.length < PROJECTED_AT_ONCE) {
      let next: [Backlog, number] | undefined;
      for (const one of waiting) if (!next || one[1] < next[1]) next = one;
      const change = next?.[0].due.pop();
      if (!next || !change) break;
      batch.push(change);
      if (next[0].due.length > 0) waiting.set(next[0], next[1] + COST_LEAST);
      else waiting.delete(next[0]);
    }
    return batch;
  };

  /**
   * Makes one step with each conversation.
   */
  const projectStep = async (batch: ChangedConversation[]): Promise<Step> => {
    const { behind, failed, costs } = await project(batch.map(({ _id }) => _id));
    const again = new Set<string>();
    for (const key of failed) {
      const count = (tries.get(key) ?? 0) + 1;
      tries.set(key, count);
      if (count < TRIES_MAX) again.add(key);
    }
    for (const one of batch) {
      if (again.has(one._id) || behind.includes(one._id)) continue;
      tries.delete(one._id);
      finish(one);
    }
    return { behind: new Set(behind), again, costs };
  };

  /** Projects what is due until its time is up. True if something due is left. */
  const projectDue = async (until: number): Promise<boolean> => {
    findDue(serverNow());
    // The first batch has no limit. Otherwise slow lists could end every round before its work.
    for (let isFirst = true; !draining.aborted; isFirst = false) {
      if (!isFirst && !hasBudget(until)) return true;
      const batch = takeBatch();
      const [first] = batch;
      if (!first) break;
      leastSpent = spentOn(first.assistantId);
      const { behind, again, costs } = await projectStep(batch);
      // What was not read becomes the next again, in its order.
      for (const one of batch.toReversed()) {
        const backlog = backlogs.get(one.assistantId);
        if (!backlog) continue;
        const cost = costs.get(one._id);
        const isUnread = behind.has(one._id) && cost === undefined;
        if (!isUnread) spent.set(one.assistantId, spentOn(one.assistantId) + COST_LEAST + (cost ?? 0));
        if (isUnread) backlog.due.push(one);
        else if (behind.has(one._id)) backlog.due.unshift(one);
        else if (!again.has(one._id) && backlog.changes.get(one._id) === one) backlog.changes.delete(one._id);
      }
    }
    return [...backlogs.values()].some((backlog) => backlog.listedTo !== null);
  };

  /** Everything that changed before this time is projected. */
  const reached = (): number => {
    let oldest = listedTo ?? 0;
    for (const { changes, listedTo: position } of backlogs.values()) {
      if (position) oldest = Math.min(oldest, position.at.getTime());
      for (const { updatedAt } of changes.values()) oldest = Math.min(oldest, updatedAt.getTime());
    }
    return oldest;
  };

  /** Projects some conversations that changed before the first round. */
  const roundBack = async (start: ProjectionState['back'], until: number): Promise<ProjectionState['back']> => {
    let back = start;
    let assistantIds: string[] | null = null;
    while (back !== null && hasBudget(until)) {
      const { assistantId, ...position }: NonNullable<ProjectionState['back']> = back;
      const batch = assistantId === '' ? [] : await changed.listBefore(assistantId, position, PROJECTED_AT_ONCE);
      const last = batch.at(-1);
      if (last) {
        let left = batch;
        while (left.length > 0) {
          const { behind, again } = await projectStep(left);
          // Later rounds try again. They skip what has been projected.
          if (again.size > 0 || (behind.size > 0 && !hasBudget(until))) return back;
          left = left.filter(({ _id }) => behind.has(_id));
        }
        back = { assistantId, at: last.updatedAt, id: last._id };
        continue;
      }
      assistantIds ??= (await listAssistantIds()).toSorted();
      const next = assistantIds.find((id) => id > assistantId);
      back = next === undefined ? null : { assistantId: next, at: new Date(serverNow()), id: LAST_KEY };
    }
    return back;
  };

  let atRest = performance.eventLoopUtilization();
  /** How long to rest after each millisecond of work, by how busy the process was while the projection rested. */
  const restOf = (): number => {
    const { utilization } = performance.eventLoopUtilization(atRest);
    return RESTS.find(({ busyBelow }) => utilization < busyBelow)?.rest ?? 0;
  };

  /** Makes a round. False if another worker is the leader. */
  return async (token: string): Promise<boolean> => {
    const ends = performance.now() + ROUND_MS;
    for (;;) {
      const rest = restOf();
      const state = await states.acquire(token);
      if (!state) {
        forget();
        return false;
      }
      const begun = performance.now();
      const until = begun + WORK_MS;
      await listChanges(listedTo ?? state.live.getTime(), until);
      const isBehind = await projectDue(until);
      const back = await roundBack(state.back, until);
      if (!(await states.advance(token, { live: new Date(reached()), back }))) {
        forget();
        return false;
      }
      atRest = performance.eventLoopUtilization();
      if (!isBehind || draining.aborted || performance.now() > ends) return true;
      const restMs = Math.max(REST_MIN_MS, (performance.now() - begun) * rest);
      await sleep(restMs, undefined, { signal: draining }).catch(() => undefined);
    }
  };
};
