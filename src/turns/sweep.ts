import { inChunks } from '../platform/mongo/batches.ts';
import { serverNow } from '../platform/process/clock.ts';
import type { Assistant } from '../assistants/assistant.ts';
import { notTakenText } from '../assistants/opening-hours.ts';
import type { ConversationStore, NotTaken } from '../conversations/store.ts';
import type { TakeByEnd } from '../conversations/state.ts';
import type { Logger } from '../platform/process/logger.ts';
import { createLru } from '../platform/process/lru.ts';
import { restAfter } from '../platform/process/slots.ts';
import type { TurnLeases } from './leases.ts';
import type { TurnQueue } from './queue.ts';
import type { Timing } from '../platform/process/time-limits.ts';

const ENDED_PER_SWEEP = 200;
/** How many of one assistant a sweep ends before it is the turn of the next one. */
const ENDED_OF_ONE = 20;
/** For how long a sweep begins more. */
const SWEPT_FOR_MS = 5_000;

type Dependencies = {
  conversations: Pick<ConversationStore, 'findNotTaken' | 'transitions'>;
  findAssistant: (assistantId: string) => Promise<Assistant | null>;
  /** Called when operators are reminded. */
  onReminded: (assistantId: string) => Promise<void>;
  logger: Logger;
};

/** If the time limit was switched off meanwhile, the conversation stays escalated, and nobody is reminded. */
const endOf = (assistant: Assistant | null, language: string): TakeByEnd => {
  if (!assistant || assistant.takeWithinMinutes === null) return { how: 'stay' };
  const { ifNotTaken: how } = assistant;
  return how === 'hand_back' ? { how, said: notTakenText(language) } : { how };
};

/**
 * Ends the take-by time of escalations that nobody took: a reminder, a hand-back, or nothing (docs/design.md, Sweeps).
 * Assistants take turns, so thousands of escalations of one hardly delay those of others.
 */
export const createNotTakenSweep = ({
  conversations,
  findAssistant,
  onReminded,
  logger,
}: Dependencies): (() => Promise<void>) => {
  const endOne = async ({ conversationId, assistantId, language }: NotTaken): Promise<void> => {
    try {
      const end = endOf(await findAssistant(assistantId), language);
      const { changed } = await conversations.transitions.endTakeBy({ conversationId }, end);
      if (changed && end.how === 'remind') await onReminded(assistantId);
      if (changed) logger.info({ conversationId, assistantId, how: end.how }, 'an escalation was not taken in time');
    } catch (cause) {
      // One conversation that was erased or changes too fast must not delay the others.
      logger.warn({ err: cause, conversationId }, 'the take-by time of an escalation was not ended');
    }
  };

  /** The assistant that had its turn last. */
  let last = '';
  return async (): Promise<void> => {
    const until = performance.now() + SWEPT_FOR_MS;
    for (let ended = 0; ended < ENDED_PER_SWEEP; ) {
      const some = await conversations.findNotTaken(last, ENDED_OF_ONE);
      if (some.length === 0 && last === '') return;
      last = some[0]?.assistantId ?? '';
      for (const one of some) {
        await endOne(one);
        if (performance.now() > until) return;
      }
      ended += some.length;
    }
  };
};

const RESTORED_PER_SWEEP = 1_000;
/** How many heads of one assistant a sweep reads before it is the turn of the next one. */
const HEADS_AT_ONCE = 200;
/** How often a sweep reads. It reads on in one assistant while all heads so far are being answered. */
const READS_PER_SWEEP = 50;

/**
 * To renew a head writes its whole document, which takes ten milliseconds if twenty long messages wait. So heads of large
 * documents are renewed after the others, a few at once and those of one read for so long. Then their assistants rest.
 */
const LARGE_HEAD_BYTES = 64 * 1024;
const LARGE_AT_ONCE = 8;
const LARGE_FOR_MS = 200;
const LARGE_REST_MS = 10_000;
const PASSED_BY_MAX = 1_000;
/** One that still waits is found again when it has waited for twice as long, or after this time. */
const LARGE_AGAIN_MS = 300_000;

type StaleHead = Awaited<ReturnType<ConversationStore['findStaleHeads']>>[number];
type RenewedHead = Parameters<ConversationStore['renewHeads']>[0][number];

type SweepDependencies = {
  conversations: Pick<ConversationStore, 'findStaleHeads' | 'renewHeads'>;
  leases: TurnLeases;
  turnQueue: Pick<TurnQueue, 'byPartition' | 'enqueue'>;
  timing: Timing;
};

/**
 * Adds a job for each head whose job was lost, because Redis was wiped or a worker was killed between two steps
 * (docs/design.md, Sweeps). Assistants take turns, because one with a slow provider may have thousands of heads that
 * wait without a lease, like those whose job was lost.
 */
export const createTurnSweep = ({
  conversations,
  leases,
  turnQueue,
  timing,
}: SweepDependencies): (() => Promise<void>) => {
  /** The assistants whose large heads took long, for a while. */
  const passedBy = createLru<true>({ most: PASSED_BY_MAX });

  /** The heads that have lost their job. */
  const findLost = async (heads: StaleHead[]): Promise<StaleHead[]> => {
    const found: StaleHead[] = [];
    // `byPartition` leaves out unavailable partitions: no job can be added there, so their heads must not be renewed.
    for (const { items, oldestWaitingAt } of await turnQueue.byPartition(heads)) {
      const leased = await leases.findLeased(items);
      const now = serverNow();
      const lost = items.filter(({ turnId, queuedAt }) => {
        if (leased.has(turnId)) return false;
        // Queues are first in, first out. While an older job waits, the job of this head may be behind it. Then it does not
        // count as lost yet.
        const mayBeQueued = oldestWaitingAt !== null && oldestWaitingAt <= queuedAt.getTime() + timing.turnStaleMs;
        return !mayBeQueued || now - queuedAt.getTime() > timing.turnJobReplacedAfterMs;
      });
      found.push(...lost);
    }
    return found;
  };

  const addJobs = async (heads: RenewedHead[]): Promise<void> => {
    await conversations.renewHeads(heads);
    for (const { key, turnId, assistantId } of heads) turnQueue.enqueue({ key, turnId, assistantId });
  };

  /** The same for some of these heads. Returns their number. */
  const addJobsOfLarge = async (heads: StaleHead[]): Promise<number> => {
    const since = performance.now();
    const now = serverNow();
    const tried: StaleHead[] = [];
    try {
      for (const some of inChunks(heads, LARGE_AT_ONCE)) {
        tried.push(...some);
        const againAt = ({ acceptedAt }: StaleHead) => new Date(now + Math.min(LARGE_AGAIN_MS, now - +acceptedAt));
        await addJobs(some.map((head) => ({ ...head, againAt: againAt(head) })));
        if (performance.now() - since > LARGE_FOR_MS) break;
      }
    } finally {
      const ttl = Math.ceil(restAfter(performance.now() - since, LARGE_REST_MS));
      for (const { assistantId } of tried) passedBy.set(assistantId, true, { ttl });
    }
    return tried.length;
  };

  /** Returns how many heads have a job again. */
  const restoreJobs = async (lost: StaleHead[]): Promise<number> => {
    const small = lost.filter(({ bytes }) => bytes < LARGE_HEAD_BYTES);
    await addJobs(small);
    return small.length + (await addJobsOfLarge(lost.filter(({ bytes }) => bytes >= LARGE_HEAD_BYTES)));
  };

  /** The assistant that had its turn last. */
  let last = '';
  return async () => {
    let of: { assistantId: string; from?: Date } = { assistantId: last };
    let restored = 0;
    /** How many were restored when this round began with the first assistant. */
    let before = last === '' ? 0 : -1;
    const until = performance.now() + SWEPT_FOR_MS;
    for (let reads = 0; reads < READS_PER_SWEEP && restored < RESTORED_PER_SWEEP; reads += 1) {
      if (performance.now() > until) return;
      const wanted = { ...of, except: [...passedBy.keys()] };
      const heads = await conversations.findStaleHeads(wanted, timing.turnStaleMs, HEADS_AT_ONCE);
      const hasMore = heads.length === HEADS_AT_ONCE;
      const end = heads.at(-1);
      // First, so that after a failure the next sweep goes on with others.
      last = end?.assistantId ?? last;
      const lost = await findLost(heads);
      restored += await restoreJobs(lost);
      const isAnswered = lost.every(({ assistantId }) => assistantId !== last);
      if (end && hasMore && isAnswered && end.headSince > (of.from ?? new Date(0))) {
        of = { assistantId: last, from: end.headSince };
        continue;
      }
      if (!hasMore && !of.from) {
        last = '';
        if (restored === before) return;
        before = restored;
      }
      of = { assistantId: last };
    }
  };
};
