import type { AnswerableConversation } from '../conversations/commit.ts';
import type { Holding, PendingTurn, TurnRef } from '../conversations/conversation.ts';
import { applied, type Ended, endTogether, togetherIn, type TurnEnd, waitsUntil } from '../conversations/state.ts';
import type { ConversationStore } from '../conversations/store.ts';
import { momentNow } from '../conversations/transitions.ts';
import { isMongoUnavailable } from '../platform/mongo/failures.ts';
import { serverNow } from '../platform/process/clock.ts';
import { createPauses } from '../platform/process/deadline.ts';
import type { Logger } from '../platform/process/logger.ts';
import { createPacedSlots } from '../platform/process/paced-slots.ts';
import { workFor } from '../platform/process/slices.ts';
import { addTo, whatRemains } from '../platform/process/slots.ts';
import { NO_SPAN, type TraceSpan, type Tracing, within } from '../platform/process/tracing.ts';
import type { TurnLeases } from '../turns/leases.ts';
import type { TurnQueue, WokenTurn } from '../turns/queue.ts';
import { answeredWith, type Publish, type Reply } from '../turns/waiters.ts';
import type { AskEngine, Way } from './ask-engine.ts';

type ApartTurn = {
  assistantId: string;
  turnId: string;
  /** True if it waits for nothing but its slot. */
  isSoon: boolean;
  /** How long the turn waits for another message of its session. */
  pauseMs: number;
  /** Resolves with the id of the next turn to enqueue, or null. */
  answer: () => Promise<string | null>;
  /** Enqueues a turn. A session's next turn needs a new slot, so that no session keeps a slot for ever. */
  enqueue: (turnId: string) => void;
};

/** The turns of an assistant that wait for nothing but a slot have a share of their own, so that none waits for a provider. */
const holderOf = ({ assistantId, isSoon }: Pick<ApartTurn, 'assistantId' | 'isSoon'>): string =>
  isSoon ? `${assistantId} soon` : assistantId;

/**
 * Turns that wait for a provider, for a slot, or for another message of their session. A job only starts these turns, so
 * that jobs stay free for others. An assistant gets another slot only while it has fewer than are free beside the last
 * quarter, which is for assistants without any: one gets at most three eighths of the slots, and two get a quarter each.
 * Assistants whose turns take long share half of the slots in this way. A turn that waits has no lease, so another
 * worker may answer it.
 */
type InFlight = {
  /** True if the turn already waits for a message or a slot. A second job for it is then ignored. */
  isWaiting: (turnId: string) => boolean;

  /** True if half as many turns of the assistant wait as may: a job more would not help. */
  isFull: (assistantId: string) => boolean;

  start: (turn: ApartTurn) => void;

  /**
   * Waits for the answer of a turn in its job, for `JOB_MOST_MS` at most. One that takes longer counts among those in
   * slots as soon as it gets one. Its job ends in any case: what the gate lets in within this time bounds their number.
   */
  untilLate: (assistantId: string, answer: Promise<void>) => Promise<void>;

  /** True if turns of the assistant have taken so long, and still go on: further ones begin in slots. */
  isLate: (assistantId: string) => boolean;

  /** Enqueues waiting turns again, and waits for running turns. */
  close: () => Promise<void>;
};

/** A turn that keeps its slot for longer makes its assistant slow, or hanging. */
const ANSWERING = { slowMs: 2_000, hangsMs: 8_000 };
/** A turn has its job for at most this time. So long the gate counts it at least. */
const JOB_MOST_MS = 250;
/** Turns of a session are answered one after the other in a job or a slot for this time. Then another session has it. */
const IN_A_ROW_MS = 200;
/** With more of them, a turn does not wait here for another message: a sweep finds it. */
const PAUSES_MAX = 20_000;

export const createInFlight = ({ total, logger }: { total: number; logger: Logger }): InFlight => {
  const slots = createPacedSlots({ total, shareOf: whatRemains, ...ANSWERING });
  const waiting = new Set<string>();
  const running = new Set<Promise<void>>();
  /** How many turns of each assistant have left their jobs. */
  const late = new Map<string, number>();
  const pauses = createPauses();
  let closed = false;

  const run = async ({ turnId, pauseMs, answer, ...turn }: ApartTurn): Promise<string | null> => {
    const holder = holderOf(turn);
    waiting.add(turnId);
    if (pauseMs > 0 && !closed) await pauses.pause(pauseMs);
    const slot = await slots.acquire(holder);
    waiting.delete(turnId);
    // No slot was given, because the process is stopping or the list of waiting turns is full. In the second case the
    // sweep enqueues the turn again later.
    if (!slot) return closed ? turnId : null;
    try {
      return await slots.watch(holder, answer());
    } catch (cause) {
      logger.warn({ err: cause, turnId }, 'a turn was not answered');
      return null;
    } finally {
      slot.release();
    }
  };

  return {
    isWaiting: (turnId) => waiting.has(turnId),

    isFull: (assistantId) => {
      const full = slots.saturated();
      return [false, true].some((isSoon) => full.includes(holderOf({ assistantId, isSoon })));
    },

    start: (turn) => {
      if (waiting.has(turn.turnId) || (turn.pauseMs > 0 && pauses.size >= PAUSES_MAX)) return;
      const follow = async (): Promise<void> => {
        const next = await run(turn);
        if (next !== null) turn.enqueue(next);
      };
      const ended = follow().finally(() => running.delete(ended));
      running.add(ended);
    },

    isLate: (assistantId) => late.has(assistantId),

    untilLate: async (assistantId, answer) => {
      const { promise: isLate, resolve } = Promise.withResolvers<true>();
      const timer = setTimeout(resolve, JOB_MOST_MS, true);
      const ended = answer.then(
        () => undefined,
        () => undefined,
      );
      if (!(await Promise.race([ended, isLate]))) {
        clearTimeout(timer);
        return answer;
      }
      const over = new AbortController();
      addTo(late, assistantId, 1);
      void ended.finally(() => {
        addTo(late, assistantId, -1);
        over.abort();
      });
      const goOn = async (): Promise<void> => {
        const holder = holderOf({ assistantId, isSoon: true });
        const slot = await slots.acquire(holder, { signal: over.signal }).catch(() => null);
        try {
          await (slot ? slots.watch(holder, answer) : answer);
        } catch (cause) {
          logger.warn({ err: cause, assistantId }, 'a turn was not answered');
        } finally {
          slot?.release();
        }
      };
      const kept = goOn().finally(() => running.delete(kept));
      running.add(kept);
    },

    close: async () => {
      closed = true;
      slots.close();
      pauses.endAll();
      await Promise.all(running);
    },
  };
};

/** A turn fails only after this many tries (docs/contract.md, Accepted means answered). */
const MAX_TRIES = 3;
/** How an accepted turn ended: answered by an engine, handed off, held, merged into a later turn, or failed. */
export type CountTurn = (end: 'answered' | 'handoff' | 'held' | 'merged' | 'failed', seconds: number) => void;

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
type LeasedTurn = {
  key: string;
  turnId: string;
  read: AnswerableConversation;
  tries: number;
  /** How many turns, from this one on, are answered together. Messages that come later are not among them. */
  together: number;
};

/** The result of one step: the next head, whether this one failed, and whether the next one is answered another way. */
type StepResult = { nextTurnId: string | null; failed: boolean; isApart?: true };

/** A head that has ended, but whose end is not stored yet. `reply`: what its callers get. */
type EndedTurn = Ended & { end: TurnEnd; reply: Reply };

const replyOf = ({ entries, finished }: Ended, holding: Holding | null): Reply => {
  const { outcome, replyMessageId: messageId } = finished;
  if (outcome === 'failed') return { outcome };
  const message = entries[0]?.messages.find((one) => one.messageId === messageId);
  if (message) return answeredWith(message);
  if (!holding) throw new Error('a held turn needs a holding text');
  return { outcome, reply: holding.text, messageId: holding.messageId };
};

/** Turns that are answered together, as the engine reads them: the last one, with the text of all. */
const asOne = (group: PendingTurn[]): PendingTurn => {
  const last = group.at(-1);
  if (!last) throw new Error('a group has a turn');
  return group.length === 1 ? last : { ...last, message: group.map(({ message }) => message).join('\n') };
};

/** True if the first pending turn waits for others, or has waited for them. */
const isQuick = ({ status, waiting }: Pick<AnswerableConversation, 'status' | 'waiting'>): boolean =>
  status !== 'escalated' && waiting[0]?.quick !== undefined;

const msUntilAnswered = (read: AnswerableConversation): number =>
  Math.max(0, (waitsUntil(read)?.getTime() ?? 0) - serverNow());

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

/** What the log says of an end. */
const whatEnded = (end: TurnEnd) => ({
  end: end.kind,
  ...(end.kind === 'handoff' && { reason: end.reason }),
  ...(end.kind === 'answered' && { why: end.answer.why }),
  ...(end.kind === 'handoff' && { why: end.why }),
});

/**
 * Answers a turn, if it is the head of its session. For one that may take long, or that the gate does not count, the job
 * only starts the answer.
 */
type AnswerTurn = (turn: WokenTurn) => Promise<void>;

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
    const { mergedInto } = finished;
    countTurn(mergedInto === undefined ? end.kind : 'merged', ms / 1000);
    logger.info(
      {
        turnId,
        conversationId,
        assistantId,
        channel,
        language,
        seq: finished.seq,
        ...(mergedInto === undefined ? whatEnded(end) : { end: 'merged', mergedInto }),
        ms,
        ...span.ids,
      },
      'turn ended',
    );
  };

  /**
   * Ends the first `count` turns together, with the reply of the last one. A handoff has a take-by time, if nobody has
   * the conversation yet.
   */
  const endHeads = async (conversation: AnswerableConversation, end: TurnEnd, count: number): Promise<EndedTurn[]> => {
    const moment = momentNow();
    const all = endTogether(conversation, { end, count }, moment);
    const last = all.at(-1);
    if (!last) throw new Error('only a head can end');
    const takeBy = last.mustBeTaken ? await conversations.findTakeBy(conversation, moment.at) : null;
    const reply = replyOf(last, conversation.holding);
    return all.map((ended) => {
      const { mergedInto } = ended.finished;
      if (mergedInto !== undefined) return { ...ended, end, reply: { ...reply, mergedInto } };
      return { ...ended, changes: { ...ended.changes, ...(takeBy && { takeBy }) }, end, reply };
    });
  };

  /**
   * Answers the first pending turn and the turns after it that the engine answers immediately, so that one commit
   * stores all of them. The last pending turn is left for the next commit, because more turns may have arrived after
   * it. A retried turn is answered alone, because another turn may have caused the failure; turns that are answered
   * together stay together for their first three tries. No turn is answered while it waits for another message.
   */
  const answerPending = async (
    { read, tries, together }: LeasedTurn,
    {
      ends,
      attempt,
      spanOf,
    }: { ends: Map<string, TurnEnd>; attempt: number; spanOf: (turn: PendingTurn) => TraceSpan },
  ): Promise<EndedTurn[]> => {
    const ended: EndedTurn[] = [];
    const atMost = tries > 1 || isQuick(read) ? 1 : Math.max(1, read.waiting.length - 1);
    const isFailed = tries > MAX_TRIES * (together > 1 ? 2 : 1);
    const first = isQuick(read) && tries <= MAX_TRIES ? together : 1;
    let conversation = read;
    for (let step = 0; step < atMost; step += 1) {
      if (step > 0 && isQuick(conversation)) break;
      const group = conversation.waiting.slice(0, step === 0 ? first : 1);
      const turn = asOne(group);
      const made = ended.flatMap(({ entries }) => entries);
      const history = async (entries: number) => {
        const stored = await conversations.history.findLatest(read, entries - made.length);
        return [...stored, ...made.slice(-entries).flatMap(({ messages }) => messages)];
      };
      const messages = group.length > 1 && { messages: group.map(({ message }) => message) };
      const question = { conversation, turn, ...messages, attempt, history };
      // A turn that takes longer is left for the next commit, so that the answered turns are committed now.
      if (ended.length > 0 && !ends.has(turn.turnId) && !(await askEngine.answersImmediately(question))) break;
      const { context } = group.map(spanOf).at(-1) ?? NO_SPAN;
      const answer = (): Promise<TurnEnd> => workFor(read.assistantId, () => askEngine.endOf(question));
      const ask = (): Promise<TurnEnd> => within(tracing.step('engine', context), answer());
      const end: TurnEnd = ends.get(turn.turnId) ?? (isFailed ? { kind: 'failed' } : await ask());
      ends.set(turn.turnId, end);
      for (const one of await endHeads(conversation, end, group.length)) {
        ended.push(one);
        conversation = applied(conversation, one);
      }
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
  const answerAndCommit = async (leased: LeasedTurn): Promise<StepResult | null> => {
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
  ): Promise<StepResult | null> => {
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
        return { nextTurnId: committed.nextTurnId, failed };
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

  /** How the head is to be answered. One that waits, or has waited, for another message of its session is apart. */
  const wayOf = async (read: AnswerableConversation): ReturnType<AskEngine['wayOf']> => {
    const [head] = read.waiting;
    if (head === undefined || isQuick(read)) return 'apart';
    return workFor(holderOf({ ...read, isSoon: true }), () => askEngine.wayOf(read, head));
  };

  const NO_PROGRESS: StepResult = { nextTurnId: null, failed: false };

  /** Answers one head under a lease, together with the turns of the same commit. */
  const answerUnderLease = async (ref: TurnRef, seen: AnswerableConversation | null): Promise<StepResult> => {
    const [read, lease] = await acquireHead(ref, seen);
    if (!lease) return NO_PROGRESS;
    if (!read) {
      leases.release(ref, lease.token, true);
      return NO_PROGRESS;
    }
    try {
      if (!seen && (await wayOf(read)) !== 'job') {
        leases.release(ref, lease.token, true);
        return { ...NO_PROGRESS, nextTurnId: ref.turnId, isApart: true };
      }
      const progress = await answerAndCommit({
        ...ref,
        read,
        tries: lease.tries,
        together: togetherIn(read).length,
      });
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

  /** Answers this turn and those of its session after it, for a while. Returns the next one. */
  const answerInRow = async ({ key, turnId }: TurnRef, seen: AnswerableConversation): Promise<string | null> => {
    const until = performance.now() + IN_A_ROW_MS;
    let step = await answerUnderLease({ key, turnId }, seen);
    while (step.nextTurnId !== null && !step.isApart && !draining.aborted && performance.now() < until)
      step = await answerUnderLease({ key, turnId: step.nextTurnId }, null);
    return step.nextTurnId;
  };

  /**
   * Answers a turn once a slot is free. The turn is read again, because another worker may have answered it during the
   * wait. If further messages have come, it goes on waiting.
   */
  const answerApart = async (ref: TurnRef, way: Way): Promise<string | null> => {
    if (draining.aborted) return ref.turnId;
    const read = await readHead(ref);
    if (read && msUntilAnswered(read) > 0) return ref.turnId;
    if (read && way === 'job') return answerInRow(ref, read);
    return read && (await answerUnderLease(ref, read)).nextTurnId;
  };

  type Apart = { assistantId: string; way: Way; pauseMs: number };

  /** A function of its own, because what waits must keep ids only: a closure of the job would keep the conversation. */
  const startApart = ({ key, turnId }: TurnRef, { assistantId, way, pauseMs }: Apart): void =>
    inFlight.start({
      assistantId,
      turnId,
      isSoon: way !== 'apart',
      pauseMs,
      answer: () => answerApart({ key, turnId }, way),
      enqueue: (next) => turnQueue.enqueue({ key, turnId: next, assistantId }),
    });

  return async ({ key, turnId, assistantId: of }) => {
    // A sweep finds those that have no place in the line each time.
    if (inFlight.isWaiting(turnId) || (of !== undefined && inFlight.isFull(of))) return;
    const seen = await readHead({ key, turnId });
    if (!seen) return;
    const { assistantId } = seen;
    const isCounted = of === undefined && !inFlight.isLate(assistantId);
    const answerOrStart = async (): Promise<void> => {
      const way = await wayOf(seen);
      if (way === 'job' && isCounted) {
        const next = await answerInRow({ key, turnId }, seen);
        if (next !== null) turnQueue.enqueue({ key, turnId: next, assistantId });
      } else startApart({ key, turnId }, { assistantId, way, pauseMs: msUntilAnswered(seen) });
    };
    await inFlight.untilLate(assistantId, answerOrStart());
  };
};
