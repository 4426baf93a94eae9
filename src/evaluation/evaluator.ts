import { setTimeout as sleep } from 'node:timers/promises';
import type { Embedder } from '@parley/understanding';
import type { DraftKnowledge } from '../assistants/drafts/draft-reads.ts';
import type { VersionStore } from '../assistants/drafts/versions.ts';
import type { Answered, Asked, Besides, Evaluations, GivenReply, HeldEvaluation } from './evaluations.ts';
import { compareReplies, type Difference, judgeReply, type TriedReply, type Verdict } from './question.ts';
import { REPLY_MAX } from './question-sets.ts';
import { readReply } from '../insights/figures.ts';
import { cosine } from '../insights/group-misses.ts';
import { keepLease } from '../platform/mongo/batches.ts';
import { isMongoUnavailable } from '../platform/mongo/failures.ts';
import { withDeadline } from '../platform/process/deadline.ts';
import { newToken } from '../platform/process/ids.ts';
import type { Lifecycle } from '../platform/process/lifecycle.ts';
import type { Logger } from '../platform/process/logger.ts';
import { createPaces } from '../platform/process/paced-slots.ts';
import { workFor } from '../platform/process/slices.ts';
import { startSweeper } from '../platform/process/sweeper.ts';
import { type AskEngine, boundedWhy } from '../replies/ask-engine.ts';
import { factsIn } from '../replies/engines/openai/reply-filter.ts';

const LOOK_EVERY_MS = 1_000;
/** A third of what a lease lasts. */
const RENEW_MS = 10_000;
/** How long one evaluation is worked on before the evaluations of other assistants have their turn. */
const TURN_MS = 3_000;
/**
 * This many evaluations, each of another assistant, ask providers beside the one that is worked on. Slow assistants have
 * at most half of these places.
 */
export const ASKING_MAX = 16;
/**
 * An evaluation without a provider whose turn takes longer waits, mostly for a large index, and goes on beside the others
 * too. At most so many of them, because turns wait for the indexes of all. Slow assistants have at most half of these
 * places.
 */
const BESIDE_AFTER_MS = 5_000;
const WAITING_MAX = 4;
/**
 * Drafts take memory, so at most this many are worked on at once. Of slow assistants, one that asks a provider and one that
 * asks none.
 */
const DRAFTS_AT_ONCE = 3;
const SLOW_DRAFTS = 1;
/** A question that takes longer makes its assistant slow. */
const ASKING = { slowMs: 2_000, hangsMs: 8_000, holdersMax: 500 };
/** Answers are stored together: at most this many, and at the latest after this time. */
const STORED_AT_ONCE = 20;
const STORED_AFTER_MS = 1_000;
/** After each question the evaluator rests, `share` times as long as it took, so that turns of visitors go first. */
const REST = { share: 6, leastMs: 20, mostMs: 1_000 };

type Options = {
  evaluations: Evaluations;
  versions: Pick<VersionStore, 'keepResult'>;
  askEngine: Pick<AskEngine, 'openDraft' | 'tryOut'>;
  embedder: Embedder;
  lifecycle: Lifecycle;
  logger: Logger;
  /** How often the lease is renewed, in ms. */
  renewMs?: number;
  /** After which time an evaluation without a provider leaves its turn to the next one, in ms. */
  besideAfterMs?: number;
};

/** After so many workers were killed with the same question, the evaluation fails. Otherwise it would end them all. */
const MAX_TRIES = 3;

/** For each of two texts, at most this many facts are stored that only this text has. */
const FACTS_MAX = 10;
const FACT_MAX_LENGTH = 200;

const cut = (text: string): string => text.slice(0, REPLY_MAX).toWellFormed();

const rest = (ms: number): Promise<void> =>
  sleep(Math.min(REST.mostMs, Math.max(REST.leastMs, ms)), undefined, { ref: false });

/** Why a question gets no answer: the assistant was deleted, or a call exceeds the evaluation's or the day's budget. */
type Unanswered = 'assistant gone' | 'tokens used up';

const onlyIn = (facts: Set<string>, others: Set<string>): string[] =>
  [...facts]
    .filter((fact) => !others.has(fact))
    .slice(0, FACTS_MAX)
    .map((fact) => fact.slice(0, FACT_MAX_LENGTH).toWellFormed());

/** `isFallBack`: the provider failed, so this reply says nothing about what the provider would have answered. */
type Replied = { given: GivenReply; language: string; isFallBack: boolean; judged: Verdict | null };

/**
 * Answers the questions of evaluations, one at a time and at a bounded pace (docs/design.md, Evaluation). Evaluations
 * that ask a provider run beside the others. Conversations, figures and events do not show evaluations. Every reply
 * worker looks for evaluations, and each evaluation belongs to one worker at a time.
 */
export const openEvaluator = (options: Options): void => {
  const { evaluations, versions, askEngine, embedder, lifecycle, logger, renewMs = RENEW_MS } = options;
  const { besideAfterMs = BESIDE_AFTER_MS } = options;
  const { draining } = lifecycle;
  const token = newToken();
  const paces = createPaces(ASKING);

  /** The reply of what is live or of the draft, and how it is judged by the expected answer. */
  const replyOf = async (
    held: HeldEvaluation,
    { question: message, language, expected }: Asked,
    draft?: DraftKnowledge,
  ): Promise<Replied | Unanswered> => {
    const reserveTokens = held.provider ? (tokens: number) => evaluations.reserveTokens(held, tokens) : undefined;
    // Not a share of the assistant's turns, which must not wait for its evaluations.
    const trying = workFor(`evaluation of ${held.assistantId}`, () =>
      askEngine.tryOut(held.assistantId, { message, language }, { draft, reserveTokens }),
    );
    const tried = await paces.watch(held.assistantId, trying);
    if (!tried) return 'assistant gone';
    const { text, suggestedActions: actions, sources = [], confidence, why, language: spoken } = tried.reply;
    if (why['budget'] === 'used_up') return 'tokens used up';
    const { outcome: kind } = readReply({ why });
    const reply: TriedReply = { kind, text, actions, sources };
    const isOwnText = why['engine'] === 'openai';
    const isFallBack = why['fallBack'] !== undefined;
    const { entries } = tried;
    const canJudge = expected !== null && entries !== null && !isFallBack;
    const judged = canJudge ? await judgeReply(expected, reply, { entries, isOwnText }) : null;
    const given = { kind, confidence, reply: cut(text), sources, why: boundedWhy(why) };
    return { given, language: spoken, isFallBack, judged };
  };

  /**
   * A provider words the same reply differently each time. So a person is shown what else differs: the facts, and the
   * meaning.
   */
  const differenceOf = async (
    { assistantId, provider }: HeldEvaluation,
    before: string | undefined,
    { given: { reply: now }, language }: Replied,
  ): Promise<Difference | null> => {
    if (!provider || before === undefined || before === now) return null;
    const asked = { holder: assistantId, priority: 'background' } as const;
    const [earlier, later] = (await embedder.embed([before, now], 'passage', asked)) ?? [];
    const meaning = earlier && later ? cosine(earlier, later) : null;
    const [one, other] = [factsIn(before, language), factsIn(now, language)];
    return { before: onlyIn(one, other), now: onlyIn(other, one), meaning };
  };

  const answer = async (
    held: HeldEvaluation,
    asked: Asked,
    draft: DraftKnowledge | null,
  ): Promise<Answered | Unanswered> => {
    const live = await replyOf(held, asked);
    if (typeof live === 'string') return live;
    if (!draft) {
      const verdict = live.judged ?? (asked.before?.reply === live.given.reply ? 'same' : 'other');
      const difference = verdict === 'other' ? await differenceOf(held, asked.before?.reply, live) : null;
      return { verdict, ...live.given, ...(difference && { difference }) };
    }
    const drafted = await replyOf(held, asked, draft);
    if (typeof drafted === 'string') return drafted;
    const compared = ({ given: { kind, reply: text }, judged }: Replied) => ({ kind, text, judged });
    const isUnsure = live.isFallBack || drafted.isFallBack;
    const verdict = isUnsure ? 'other' : compareReplies(compared(live), compared(drafted));
    const difference = verdict === 'other' ? await differenceOf(held, live.given.reply, drafted) : null;
    return {
      verdict,
      judged: drafted.judged,
      ...drafted.given,
      ...(difference && { difference }),
      live: { ...live.given, judged: live.judged },
    };
  };

  /**
   * A question that cannot be answered counts as wrong. Throws if MongoDB is unavailable or the process stops, so that
   * the evaluation continues later.
   */
  const failed = (cause: unknown, { evaluationId }: HeldEvaluation): Answered => {
    if (isMongoUnavailable(cause) || draining.aborted) throw cause;
    logger.error({ err: cause, evaluationId }, 'a question could not be evaluated');
    const why = { engine: 'none', error: 'engine_error' };
    return { verdict: 'wrong', kind: 'notAnswered', confidence: 0, reply: '', sources: [], why };
  };

  /** A version keeps what a set has found of it. An evaluation of two versions says nothing of either. */
  const keepResult = async (held: HeldEvaluation): Promise<void> => {
    const { evaluationId, assistantId, set, counts, versions: answering } = await evaluations.get(held);
    const [version, other] = answering;
    if (held.draftRevision !== null || !set || version === undefined || other !== undefined) return;
    await versions.keepResult({ assistantId, version }, { evaluationId, set: set.name, counts, judged: counts });
  };

  /** Works on an evaluation until it ends, its time is up, or `over`. True if it has ended. */
  const work = async (held: HeldEvaluation, over: AbortSignal): Promise<boolean> => {
    if (held.tries > MAX_TRIES) {
      const { evaluationId, assistantId, next } = held;
      logger.error({ evaluationId, assistantId, next }, 'an evaluation has ended its workers, so it is given up');
      await evaluations.complete(held, 'failed');
      return true;
    }
    // A provider's answers cost money, so each is stored immediately.
    const atOnce = held.provider ? 1 : STORED_AT_ONCE;
    const opened = held.draftRevision === null ? null : await askEngine.openDraft(held.assistantId, held.draftRevision);
    if (opened?.isReady === false) {
      await rest(REST.mostMs);
      return false;
    }
    const until = performance.now() + TURN_MS;
    while (!over.aborted && performance.now() < until) {
      const questions = await evaluations.readNext(held, atOnce);
      if (questions.length === 0) {
        await keepResult(held);
        await evaluations.complete(held, 'done');
        return true;
      }
      if (held.draftRevision !== null && !(await askEngine.openDraft(held.assistantId, held.draftRevision))) {
        await evaluations.complete(held, 'stopped');
        return true;
      }
      const answers: { nth: number; answer: Answered }[] = [];
      let isUsedUp = false;
      const storeAt = performance.now() + STORED_AFTER_MS;
      for (const one of questions) {
        const startedAt = performance.now();
        const made = await answer(held, one, opened?.draft ?? null).catch((cause: unknown) => failed(cause, held));
        isUsedUp = made === 'tokens used up';
        if (made === 'tokens used up') break;
        if (made === 'assistant gone') {
          await evaluations.complete(held, 'failed');
          return true;
        }
        answers.push({ nth: one.nth, answer: made });
        const took = performance.now() - startedAt;
        await rest(REST.share * took);
        if (over.aborted || performance.now() > storeAt) break;
      }
      if (!(await evaluations.record(held, answers))) return false;
      if (isUsedUp) {
        await evaluations.complete(held, 'stopped', { isUsedUp });
        return true;
      }
    }
    return false;
  };

  const workInTurn = async (held: HeldEvaluation): Promise<void> => {
    const { signal: over, stop } = keepLease(() => evaluations.renew(held), { everyMs: renewMs, until: draining });
    try {
      const { evaluationId, assistantId } = held;
      if (await work(held, over)) logger.info({ evaluationId, assistantId }, 'an evaluation ended');
    } finally {
      stop();
      // Otherwise another worker would wait for the end of the lease.
      await evaluations.release(held).catch(() => undefined);
    }
  };

  /**
   * The evaluations in work, by assistant: those that ask a provider, whose calls may take half a minute, the one that has
   * its turn, and those that wait. One of each assistant.
   */
  const working = new Map<string, { held: HeldEvaluation; done: Promise<boolean> }>();

  const besides = (): Besides => {
    const isSlow = ({ assistantId }: HeldEvaluation): boolean => paces.of(assistantId) !== 'fast';
    const isOfDraft = ({ draftRevision }: HeldEvaluation): boolean => draftRevision !== null;
    const areTaken = (all: HeldEvaluation[], asking: number, others: number) => ({
      noneAsking: all.filter(({ provider }) => provider).length >= asking,
      noneWaiting: all.filter(({ provider }) => !provider).length >= others,
    });
    const all = [...working.values()].map(({ held }) => held);
    const slow = all.filter(isSlow);
    return {
      ...areTaken(all, ASKING_MAX, WAITING_MAX),
      assistantIds: [...working.keys()],
      noDrafts: all.filter(isOfDraft).length >= DRAFTS_AT_ONCE,
      slow: {
        ...areTaken(slow, ASKING_MAX / 2, WAITING_MAX / 2),
        assistantIds: paces.slow(),
        drafts: areTaken(slow.filter(isOfDraft), SLOW_DRAFTS, SLOW_DRAFTS),
      },
    };
  };

  const round = async (): Promise<void> => {
    while (!draining.aborted) {
      const held = await evaluations.acquire(token, besides());
      if (!held) return;
      const { evaluationId, assistantId } = held;
      const done = workInTurn(held)
        .then(() => true)
        .catch((cause: unknown) => {
          logger.warn({ err: cause, evaluationId }, 'an evaluation failed: it goes on later');
          return false;
        })
        .finally(() => working.delete(assistantId));
      working.set(assistantId, { held, done });
      // Null if it goes on beside the next one.
      const isDone = held.provider ? null : await withDeadline(done, besideAfterMs).catch(() => null);
      if (isDone === false) return; // the next look takes it again
    }
  };

  const sweeper = startSweeper('evaluations', round, { everyMs: LOOK_EVERY_MS, logger });
  lifecycle.add('evaluations', sweeper, async (opened) => {
    await opened.stop();
    await Promise.all([...working.values()].map(({ done }) => done));
  });
};
