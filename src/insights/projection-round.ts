import { performance } from 'node:perf_hooks';
import { LRUCache } from 'lru-cache';
import { serverNow } from '../platform/clock.ts';
import type { ChangedConversation, ChangedConversations, ChangePosition } from './changed-conversations.ts';
import type { Project } from './project.ts';
import { LAST_KEY, type ProjectionState, type ProjectionStates } from './projection-state.ts';

/**
 * A conversation is projected once nothing has changed in it for `QUIET_MS`, or `AT_LATEST_MS` after its first change.
 * So a chat with many turns is not projected after every turn.
 */
const QUIET_MS = 3_000;
const AT_LATEST_MS = 30_000;
/** A change may become visible this long after its time, so the changes of this time are listed again. */
const OVERLAP_MS = 10_000;
/** How long a round may work. This bounds the load on MongoDB and on the worker, which also answers turns. */
const WORK_MS = 250;
/** The same while the process is busy with turns. The projection then falls behind, so that turns do not. */
const BUSY_WORK_MS = 50;
/** The share of time in which a busy process runs code. */
const BUSY = 0.3;
const LISTED_AT_ONCE = 1_000;
const PROJECTED_AT_ONCE = 25;
const REMEMBERED_MAX = 50_000;
const TRIES_MAX = 5;

type Dependencies = {
  states: ProjectionStates;
  changed: ChangedConversations;
  project: Project;
  listAssistantIds: () => Promise<string[]>;
  draining: AbortSignal;
};

/**
 * One round of the projection, made by the leader. First the conversations that have changed since the last round, then
 * some of those that had changed before the first round. What a round does not finish, the next round continues.
 */
export const createProjectionRound = ({ states, changed, project, listAssistantIds, draining }: Dependencies) => {
  /** Changes that are done, so that the overlap is not read again. Losing an entry only costs a read. */
  const done = new LRUCache<string, number>({ max: REMEMBERED_MAX });
  /** When a conversation that keeps changing was first seen. */
  const firstSeen = new LRUCache<string, number>({ max: REMEMBERED_MAX });
  /** How often a conversation has failed. After some tries, it is left alone until it changes again. */
  const tries = new LRUCache<string, number>({ max: REMEMBERED_MAX });

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

  /** Projects a batch completely. Returns the conversations that failed and will be tried again. */
  const projectAll = async (batch: ChangedConversation[]): Promise<Set<string>> => {
    const again = new Set<string>();
    let keys = batch.map(({ _id }) => _id);
    while (keys.length > 0 && !draining.aborted) {
      const { behind, failed } = await project(keys);
      for (const key of failed) {
        const count = (tries.get(key) ?? 0) + 1;
        tries.set(key, count);
        if (count < TRIES_MAX) again.add(key);
      }
      keys = behind;
    }
    for (const key of keys) again.add(key); // the process stops; another worker continues from the stored position
    for (const one of batch) {
      if (again.has(one._id)) continue;
      tries.delete(one._id);
      finish(one);
    }
    return again;
  };

  /** Projects what has changed since `live`. Returns the new position. */
  const roundLive = async (live: Date, until: number): Promise<Date> => {
    const assistantIds = await listAssistantIds();
    // A change after this moment may be missing in the lists, so the position does not go further.
    const now = serverNow();
    let reached = now;
    let from: ChangePosition = { at: new Date(live.getTime() - OVERLAP_MS), id: '' };
    let isFirst = true;
    for (;;) {
      const listed = await changed.listAfter(assistantIds, from, LISTED_AT_ONCE);
      const open = listed.filter(({ _id, updatedAt }) => done.get(_id) !== updatedAt.getTime());
      const { true: due = [], false: early = [] } = Object.groupBy(open, (one) => `${isDue(one, now)}`);
      for (const { updatedAt } of early) reached = Math.min(reached, updatedAt.getTime());
      for (let start = 0; start < due.length; start += PROJECTED_AT_ONCE) {
        const batch = due.slice(start, start + PROJECTED_AT_ONCE);
        const first = batch[0]?.updatedAt.getTime() ?? now;
        // The first batch has no limit. Otherwise slow lists could end every round before its work.
        if (draining.aborted || (!isFirst && !hasBudget(until))) return new Date(Math.min(reached, first));
        isFirst = false;
        const again = await projectAll(batch);
        for (const { _id, updatedAt } of batch) if (again.has(_id)) reached = Math.min(reached, updatedAt.getTime());
      }
      const last = listed.at(-1);
      if (!last || listed.length < LISTED_AT_ONCE) return new Date(reached);
      // A page without work does not end the round. Otherwise a long overlap could end every round before its work.
      if (due.length > 0 && !hasBudget(until)) return new Date(Math.min(reached, last.updatedAt.getTime()));
      from = { at: last.updatedAt, id: last._id };
    }
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
        // Later rounds try again. They skip what has been projected.
        if ((await projectAll(batch)).size > 0) return back;
        back = { assistantId, at: last.updatedAt, id: last._id };
        continue;
      }
      assistantIds ??= (await listAssistantIds()).toSorted();
      const next = assistantIds.find((id) => id > assistantId);
      back = next === undefined ? null : { assistantId: next, at: new Date(serverNow()), id: LAST_KEY };
    }
    return back;
  };

  let before = performance.eventLoopUtilization();
  /** The time limit of this round, by how busy the process was since the last one. */
  const workMs = (): number => {
    const now = performance.eventLoopUtilization();
    const { utilization } = performance.eventLoopUtilization(now, before);
    before = now;
    return utilization > BUSY ? BUSY_WORK_MS : WORK_MS;
  };

  /** Makes a round. False if another worker is the leader. */
  return async (token: string): Promise<boolean> => {
    const state = await states.acquire(token);
    if (!state) return false;
    const until = performance.now() + workMs();
    const live = await roundLive(state.live, until);
    const back = await roundBack(state.back, until);
    return states.advance(token, { live, back });
  };
};
