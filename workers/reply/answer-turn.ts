import type { AnswerableConversation } from '../../src/conversations/commit.ts';
import type { Holding, PendingTurn, TurnRef } from '../../src/conversations/conversation.ts';
import { act, applied, type Ended, type TurnEnd } from '../../src/conversations/state.ts';
import type { ConversationStore } from '../../src/conversations/store.ts';
import { momentNow } from '../../src/conversations/transitions.ts';
import { isMongoUnavailable } from '../../src/mongo/failures.ts';
import { serverNow } from '../../src/process/clock.ts';
import type { Logger } from '../../src/process/logger.ts';
import { createPacedSlots } from '../../src/process/paced-slots.ts';
import { workFor } from '../../src/process/slices.ts';
import { whatRemains } from '../../src/process/slots.ts';
import { NO_SPAN, type TraceSpan, type Tracing, within } from '../../src/process/tracing.ts';
import type { CountTurn } from '../../src/service-metrics.ts';
import type { TurnLeases } from '../../src/turns/leases.ts';
import type { TurnQueue } from '../../src/turns/queue.ts';
import type { Publish, Reply } from '../../src/turns/replies.ts';
import type { AskEngine } from './ask-engine.ts';

type ProviderTurn = {
  assistantId: string;
  turnId: string;
  /** Resolves with the id of the next turn to enqueue, or null. */
  answer: () => Promise<string | null>;
  /** Enqueues a turn. A session's next turn needs a new slot, so that no session keeps a slot for ever. */
  enqueue: (turnId: string) => void;
};

/**
 * Turns that wait for a provider, or for a slot to call it. A job only starts these turns, so that jobs stay free for
 * turns without a provider. An assistant gets another slot only while it has fewer slots than are free, so that the
 * next assistant always finds a free slot: one assistant gets at most half of the slots, and two get a third each.
 * Assistants whose turns take long share half of the slots in this way. A turn that waits for a slot has no lease, so
 * another worker may answer it.
 */
type InFlight = {
  /** True if the turn already waits for a slot. A second job for it is then ignored. */
  isWaiting: (turnId: string) => boolean;

  start: (turn: ProviderTurn) => void;

  /** Enqueues waiting turns again, and waits for running turns. */
  close: () => Promise<void>;
};

/** A turn that keeps its slot for longer makes its assistant slow, or hanging. */
const ANSWERING = { slowMs: 2_000, hangsMs: 8_000 };

export const createInFlight = ({ total, logger }: { total: number; logger: Logger }): InFlight => {
  const slots = createPacedSlots({ total, shareOf: whatRemains, ...ANSWERING });
  const waiting = new Set<string>();
  const running = new Set<Promise<void>>();
  let closed = false;

  const run = async ({ assistantId, turnId, answer }: ProviderTurn): Promise<string | null> => {
    waiting.add(turnId);
    const slot = await slots.acquire(assistantId);
    waiting.delete(turnId);
    // No slot was given, because the process is stopping or the list of waiting turns is full. In the second case the
    // sweep enqueues the turn again later.
    if (!slot) return closed ? turnId : null;
    try {
      return await slots.watch(assistantId, answer());
    } catch (cause) {
      logger.warn({ err: cause, turnId }, 'a turn was not answered');
      return null;
    } finally {
      slot.release();
    }
  };

  return {
    isWaiting: (turnId) => waiting.has(turnId),

    start: (turn) => {
      if (waiting.has(turn.turnId)) return;
      const follow = async (): Promise<void> => {
        const next = await run(turn);
        if (next !== null) turn.enqueue(next);
      };
      const ended = follow().finally(() => running.delete(ended));
      running.add(ended);
    },

    close: async () => {
      closed = true;
      slots.close();
      await Promise.all(running);
    },
  };
};

/** A turn fails only after this many tries (docs/contract.md, Accepted means answered). */
const MAX_TRIES = 3;
/**
 * A job answers at most this many turns of a session. The remaining turns are enqueued again, so that no session
 * occupies a job for ever.
 */
const TURNS_IN_A_ROW = 50;

type Dependencies = {
  conversations: Pick<ConversationStore, 'commit' | 'findForAnswer' | 'findTakeBy' | 'history'>;
  leases: TurnLeases;
  askEngine: AskEngine;
  inFlight: InFlight;
  turnQueue: Pick<TurnQueue, 'enqueue'>;
  publish: Publish;
  countTurn: CountTurn;
  draining: AbortSignal;
  tracing: Tracing;
  logger: Logger;
};

/** A session's first pending turn with its lease, the conversation as it was read, and the number of this try. */
type LeasedTurn = { key: string; turnId: string; read: AnswerableConversation; tries: number };

/** The result of one step: the next head, how many turns ended, and whether the next head needs a provider. */
type Progress = { nextTurnId: string | null; ended: number; failed: boolean; needsProvider?: true };

/** A head that has ended, but whose end is not stored yet. `reply`: what its callers get. */
type EndedTurn = Ended & { end: TurnEnd; reply: Reply };

const replyOf = ({ entries, finished }: Ended, holding: Holding | null): Reply => {
  const { outcome, replyMessageId: messageId } = finished;
  if (outcome === 'failed') return { outcome };
  const message = entries[0]?.messages.find((one) => one.messageId === messageId);
  if (message) {
    const { content: reply, messageId, suggestedActions, sources } = message;
    return { outcome, reply, ...(suggestedActions && { suggestedActions }), ...(sources && { sources }), messageId };
  }
  if (!holding) throw new Error('a held turn needs a holding text');
  return { outcome, reply: holding.text, messageId: holding.messageId };
};

/** The pending turn, or null if this turn is not the head of the conversation. */
const headOf = (conversation: AnswerableConversation | null, turnId: string): PendingTurn | null => {
  const head = conversation?.waiting[0];
  return head?.turnId === turnId ? head : null;
};

/**
 * True if a reply to the first version of the conversation is also valid for the second version. A message that was
 * stored meanwhile, such as an operator's, or a handoff makes it invalid. A new pending turn or waiting caller does
 * not.
 */
const isUnchanged = (one: AnswerableConversation, other: AnswerableConversation): boolean =>
  one.seq === other.seq && one.status === other.status && one.leadScore === other.leadScore;

/**
 * Answers a session's turns from this turn on. For a turn that needs a provider, the job starts the answer and does
 * not wait for it.
 */
type AnswerTurn = (turn: TurnRef) => Promise<void>;

/**
 * Answers the pending turns of a session in order. The queue may deliver a turn twice, but only one reply is stored,
 * because the commit succeeds only if the conversation has not changed since it was read (docs/design.md, Commit).
 */
export const createAnswerTurn = (dependencies: Dependencies): AnswerTurn => {
  const { conversations, leases, askEngine, inFlight, turnQueue } = dependencies;
  const { publish, countTurn, draining, tracing, logger } = dependencies;

  const announceEnd = (
    { conversationId, assistantId, channel, waiting }: AnswerableConversation,
    { end, reply, finished }: EndedTurn,
    span: TraceSpan,
  ): void => {
    const turn = waiting.find(({ turnId }) => turnId === finished.turnId);
    if (!turn) return;
    const { turnId, replyTo, language, acceptedAt } = turn;
    const ms = serverNow() - acceptedAt.getTime();
    publish(replyTo, { turnId, conversationId, reply });
    countTurn(end.kind, ms / 1000);
    logger.info(
      {
        turnId,
        conversationId,
        assistantId,
        channel,
        language,
        seq: finished.seq,
        end: end.kind,
        ...(end.kind === 'handoff' && { reason: end.reason }),
        ...(end.kind === 'answered' && { why: end.answer.why }),
        ...(end.kind === 'handoff' && { why: end.why }),
        ms,
        ...span.ids,
      },
      'turn ended',
    );
  };

  /** Ends the head. A handoff has a take-by time, if nobody has the conversation yet. */
  const endHead = async (conversation: AnswerableConversation, end: TurnEnd): Promise<EndedTurn> => {
    const moment = momentNow();
    const ended = act.endTurn(conversation, end, moment);
    const takeBy = ended.mustBeTaken ? await conversations.findTakeBy(conversation, moment.at) : null;
    const changes = { ...ended.changes, ...(takeBy && { takeBy }) };
    return { ...ended, changes, end, reply: replyOf(ended, conversation.holding) };
  };

  /**
   * Answers the first pending turn and the turns after it that the engine answers immediately, so that one commit
   * stores all of them. The last pending turn is left for the next commit, because more turns may have arrived after
   * it. A retried turn is answered alone, because another turn may have caused the failure.
   */
  const answerPending = async (
    { read, tries }: LeasedTurn,
    {
      ends,
      attempt,
      spanOf,
    }: { ends: Map<string, TurnEnd>; attempt: number; spanOf: (turn: PendingTurn) => TraceSpan },
  ): Promise<EndedTurn[]> => {
    const ended: EndedTurn[] = [];
    const atMost = tries > 1 ? 1 : Math.max(1, read.waiting.length - 1);
    let conversation = read;
    for (const turn of read.waiting.slice(0, atMost)) {
      const made = ended.flatMap(({ entries }) => entries);
      const history = async (entries: number) => {
        const stored = await conversations.history.findLatest(read, entries - made.length);
        return [...stored, ...made.slice(-entries).flatMap(({ messages }) => messages)];
      };
      const question = { conversation, turn, attempt, history };
      // A turn that takes longer is left for the next commit, so that the answered turns are committed now.
      if (ended.length > 0 && !ends.has(turn.turnId) && !(await askEngine.answersImmediately(question))) break;
      const { context } = spanOf(turn);
      const answer = (): Promise<TurnEnd> => workFor(read.assistantId, () => askEngine.endOf(question));
      const ask = (): Promise<TurnEnd> => within(tracing.step('engine', context), answer());
      const end: TurnEnd = ends.get(turn.turnId) ?? (tries > MAX_TRIES ? { kind: 'failed' } : await ask());
      ends.set(turn.turnId, end);
      const one = await endHead(conversation, end);
      ended.push(one);
      conversation = applied(conversation, one);
      if (end.kind === 'failed' || draining.aborted) break;
    }
    return ended;
  };

  /** The spans of the turns that are answered together. Each is in the trace of its own turn. */
  const openSpans = ({ tries }: LeasedTurn) => {
    const spans = new Map<string, TraceSpan>();
    return {
      of: ({ turnId, trace }: PendingTurn): TraceSpan => {
        const attributes = { 'parley.turn_id': turnId, 'parley.try': tries };
        const span = spans.get(turnId) ?? tracing.step('answer', trace, { kind: 'consumer', attributes });
        spans.set(turnId, span);
        return span;
      },
      find: (turnId: string): TraceSpan => spans.get(turnId) ?? NO_SPAN,
      /** Ends the spans of turns that were not committed. */
      end: (): void => {
        for (const span of spans.values()) span.end('not_committed');
      },
    };
  };

  const commitIn = async (
    read: AnswerableConversation,
    ended: EndedTurn[],
    spanOf: (turnId: string) => TraceSpan,
  ): ReturnType<Dependencies['conversations']['commit']> => {
    const steps = ended.map(({ finished }) => tracing.step('commit', spanOf(finished.turnId).context));
    try {
      const committed = await conversations.commit(read, ended, steps);
      if (committed) for (const step of steps) step.end();
      return committed;
    } finally {
      for (const step of steps) step.end('not_committed');
    }
  };

  /**
   * Answers and commits, and repeats both if the conversation has changed. Returns null if this turn is no longer the
   * first pending turn.
   */
  const answerAndCommit = async (leased: LeasedTurn): Promise<Progress | null> => {
    const spans = openSpans(leased);
    try {
      return await repeatUntilCommitted(leased, spans);
    } finally {
      spans.end();
    }
  };

  const repeatUntilCommitted = async (
    leased: LeasedTurn,
    spans: ReturnType<typeof openSpans>,
  ): Promise<Progress | null> => {
    const { key, turnId } = leased;
    let { read } = leased;
    let ends = new Map<string, TurnEnd>();
    let attempt = leased.tries;
    for (;;) {
      const ended = await answerPending({ ...leased, read }, { ends, attempt, spanOf: spans.of });
      const committed = await commitIn(read, ended, spans.find);
      if (committed) {
        for (const one of ended) {
          const span = spans.find(one.finished.turnId);
          announceEnd(read, one, span);
          span.note({ 'parley.end': one.end.kind });
          span.end(one.end.kind === 'failed' ? 'failed' : undefined);
        }
        const failed = ended[0]?.reply.outcome === 'failed';
        return { nextTurnId: committed.nextTurnId, ended: ended.length, failed };
      }
      const now = await conversations.findForAnswer(key);
      if (!now || !headOf(now, turnId)) return null;
      if (!isUnchanged(now, read)) {
        ends = new Map();
        attempt += 1;
      }
      read = now;
    }
  };

  /** The conversation, or null if this turn is not its oldest pending turn. */
  const readHead = async ({ key, turnId }: TurnRef): Promise<AnswerableConversation | null> => {
    const read = await conversations.findForAnswer(key);
    return headOf(read, turnId) && read;
  };

  /**
   * Acquires the lease of a session's first pending turn. `seen` shows that the turn is the first, so that a stray job
   * never leases a later one. It is null if this worker's own commit made the turn the first. The read and the lease
   * then run at the same time.
   */
  const acquireHead = async (ref: TurnRef, seen: AnswerableConversation | null) => {
    if (seen) return [seen, await leases.acquire(ref)] as const;
    const [read, lease] = await Promise.allSettled([readHead(ref), leases.acquire(ref)]);
    if (lease.status === 'rejected') throw lease.reason;
    if (read.status === 'fulfilled') return [read.value, lease.value] as const;
    // The lease is released explicitly, because otherwise it would be renewed until this process ends.
    if (lease.value) leases.release(ref, lease.value.token, true);
    throw read.reason;
  };

  const endsWithoutProvider = async (read: AnswerableConversation): Promise<boolean> => {
    const [head] = read.waiting;
    return head !== undefined && askEngine.endsWithoutProvider(read, head);
  };

  const NO_PROGRESS: Progress = { nextTurnId: null, ended: 0, failed: false };

  /** Answers one head under a lease, together with the turns of the same commit. */
  const answerUnderLease = async (ref: TurnRef, seen: AnswerableConversation | null): Promise<Progress> => {
    const [read, lease] = await acquireHead(ref, seen);
    if (!lease) return NO_PROGRESS;
    if (!read) {
      leases.release(ref, lease.token, true);
      return NO_PROGRESS;
    }
    try {
      if (!seen && !(await endsWithoutProvider(read))) {
        leases.release(ref, lease.token, true);
        return { ...NO_PROGRESS, nextTurnId: ref.turnId, needsProvider: true };
      }
      const progress = await answerAndCommit({ ...ref, read, tries: lease.tries });
      // The lease is released, because the turn may be answered later: a failed turn after a resume, another turn when
      // it becomes the first pending turn. The release also resets the number of tries.
      if (!progress || progress.failed) leases.release(ref, lease.token, true);
      else leases.expire(ref);
      return progress ?? NO_PROGRESS;
    } catch (cause) {
      // An unavailable store or a stopping process does not count as a try. The sweep retries later.
      const isStoreUnavailable = isMongoUnavailable(cause);
      leases.release(ref, lease.token, isStoreUnavailable || draining.aborted);
      const line = { err: cause, turnId: ref.turnId, tries: lease.tries };
      logger[isStoreUnavailable ? 'warn' : 'error'](line, 'a turn was not answered');
      // After the last try, only the sweep retries.
      return { ...NO_PROGRESS, nextTurnId: isStoreUnavailable || lease.tries > MAX_TRIES ? null : ref.turnId };
    }
  };

  /**
   * Answers a turn with a provider once a slot is free. The turn is read again, because another worker may have
   * answered it during the wait.
   */
  const answerWithProvider = async (ref: TurnRef): Promise<string | null> => {
    if (draining.aborted) return ref.turnId;
    const read = await readHead(ref);
    return read && (await answerUnderLease(ref, read)).nextTurnId;
  };

  return async ({ key, turnId }) => {
    if (inFlight.isWaiting(turnId)) return;
    const enqueue = (next: string): void => turnQueue.enqueue({ key, turnId: next });
    let seen = await readHead({ key, turnId });
    if (!seen) return;
    if (!(await endsWithoutProvider(seen))) {
      const { assistantId } = seen;
      inFlight.start({ assistantId, turnId, answer: () => answerWithProvider({ key, turnId }), enqueue });
      return;
    }
    let next: string | null = turnId;
    for (let count = 0; next !== null && count < TURNS_IN_A_ROW && !draining.aborted; ) {
      const progress: Progress = await answerUnderLease({ key, turnId: next }, seen);
      next = progress.nextTurnId;
      if (progress.needsProvider) break;
      count += Math.max(1, progress.ended);
      seen = null;
    }
    if (next !== null) enqueue(next);
  };
};
