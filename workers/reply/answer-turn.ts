import type { Assistant } from '../../src/assistants/assistant.ts';
import type { AssistantStore } from '../../src/assistants/store.ts';
import type { Committed } from '../../src/conversations/commit.ts';
import type { AnswerableConversation, TurnEnd } from '../../src/conversations/turn-end.ts';
import type { WaitingTurn } from '../../src/conversations/conversation.ts';
import type { Hints, TurnRef } from '../../src/conversations/hints.ts';
import type { ConversationStore } from '../../src/conversations/store.ts';
import type { EndpointStore } from '../../src/events/endpoint-store.ts';
import type { DeliveryQueue } from '../../src/events/queue.ts';
import type { Logger } from '../../src/platform/logger.ts';
import { isConnectionFailure } from '../../src/platform/mongo.ts';
import type { CountTurn } from '../../src/service-metrics.ts';
import type { TurnQueue } from '../../src/turns/queue.ts';
import type { Publish } from '../../src/turns/replies.ts';
import { createDeltaFeed } from './delta-feed.ts';
import type { AssistantEngine, AssistantProfile, TurnContext } from './engines/engine.ts';
import { endWithApology, endWithReply, holdingTextOf } from './handoff.ts';
import { inspectMessage } from './guard.ts';
import { refuse } from './refusal.ts';
import { scoreLead } from './lead-score.ts';

/** A turn fails only by our fault, after so many tries that were begun (contract §2). */
const MAX_TRIES = 3;
/** Turns of one line answered in a row before the line goes back to the queue, so that no session holds a job for ever. */
const TURNS_IN_A_ROW = 50;

export type Dependencies = {
  conversations: ConversationStore;
  assistants: AssistantStore;
  endpoints: EndpointStore;
  hints: Hints;
  engine: AssistantEngine;
  turnQueue: TurnQueue;
  deliveryQueue: DeliveryQueue;
  publish: Publish;
  countTurn: CountTurn;
  draining: AbortSignal;
  logger: Logger;
};

const rounded = (ms: number): number => Math.round(ms * 100) / 100;

type Ended = { nextTurnId: string | null; failed: boolean };

/** The head's conversation as read; null where this turn is not the head (any more). */
const headOf = (conversation: AnswerableConversation | null, turnId: string): WaitingTurn | null => {
  const head = conversation?.waiting[0];
  return head?.turnId === turnId ? head : null;
};

/**
 * Answers heads of lines. A turn may be answered twice by the queue; it is stored once, since the commit matches only the
 * conversation that was read, with this turn at its head (design §2).
 */
export const createAnswerTurn = (dependencies: Dependencies) => {
  const {
    conversations,
    assistants,
    endpoints,
    hints,
    engine,
    turnQueue,
    deliveryQueue,
    publish,
    countTurn,
    draining,
    logger,
  } = dependencies;

  const profileOf = async (assistant: Assistant): Promise<AssistantProfile> => ({
    assistantId: assistant.assistantId,
    version: String(assistant.version),
    name: assistant.name,
    instructions: assistant.instructions,
    languages: assistant.languages,
    threshold: assistant.threshold,
    knowledge: await assistants.findKnowledge(assistant),
    engine: assistant.engine,
    allowedLinks: assistant.allowedLinks,
  });

  const askEngine = async (
    conversation: AnswerableConversation,
    turn: WaitingTurn,
    { assistant, attempt }: { assistant: Assistant; attempt: number },
  ): Promise<TurnEnd> => {
    const { leadScore, leadBecause, lowConfidenceStreak, engineErrorStreak } = conversation;
    const scored = scoreLead({
      previous: leadScore,
      explanation: leadBecause,
      message: turn.message,
      turnNumber: conversation.seq + 1,
    });
    const lead = { leadScore: scored.score, leadBecause: scored.because };
    const { status } = conversation;
    const circumstances = { assistant, turn, status, streaks: { lowConfidenceStreak, engineErrorStreak }, lead };
    if (status === 'escalated') {
      return { kind: 'held', holdingText: holdingTextOf(assistant, turn.language), ...lead };
    }
    const begunAt = performance.now();
    const waitMs = Date.now() - turn.acceptedAt.getTime();
    const profile = await profileOf(assistant);
    const { historyEntries = 2 } = engine;
    const wanted = typeof historyEntries === 'number' ? historyEntries : historyEntries(profile);
    const history = await conversations.messages.findLatest(conversation, wanted);
    const feed = createDeltaFeed({
      turnId: turn.turnId,
      attempt,
      replyTo: turn.replyTo,
      findReplyTo: async () => {
        const now = await conversations.findForAnswer(conversation._id);
        return headOf(now, turn.turnId)?.replyTo ?? [];
      },
      publish,
    });
    const contextMs = performance.now() - begunAt;
    const found = assistant.guard === 'off' ? null : inspectMessage(turn.message);
    const refused = found !== null && assistant.guard === 'refuse';
    const canKnow = profile.knowledge.length > 0 || profile.engine?.kind === 'openai';
    try {
      const ask: TurnContext = {
        assistant: profile,
        message: turn.message,
        language: turn.language,
        history: history.map(({ role, content, why }) => ({ role, content, why })),
        signal: draining,
        onDelta: feed.push,
      };
      const reply = refused ? refuse(turn.language) : await engine.reply(ask);
      const why = {
        ...reply.why,
        ...(turn.languageBy && { languageBy: turn.languageBy }),
        ...(found && { guard: { found, action: refused ? 'refused' : 'flagged' } }),
        stages: { wait: waitMs, context: rounded(contextMs), engine: rounded(performance.now() - begunAt - contextMs) },
      };
      return endWithReply({ ...reply, why }, { ...circumstances, canKnow });
    } catch (cause) {
      // Broken off since this process stops: another one asks afresh.
      if (draining.aborted) throw cause;
      logger.error({ err: cause, turnId: turn.turnId, engine: engine.name }, 'the engine failed');
      return endWithApology(circumstances);
    } finally {
      feed.end();
    }
  };

  const endOf = async (
    conversation: AnswerableConversation,
    turn: WaitingTurn,
    { tries, attempt }: { tries: number; attempt: number },
  ): Promise<TurnEnd> => {
    if (tries > MAX_TRIES) return { kind: 'failed' };
    const assistant = await assistants.findAssistant(conversation.assistantId);
    return assistant ? askEngine(conversation, turn, { assistant, attempt }) : { kind: 'failed' };
  };

  const announceEnd = (
    conversation: AnswerableConversation,
    turn: WaitingTurn,
    end: TurnEnd,
    committed: Committed,
  ): void => {
    const { _id: key, conversationId, assistantId, channel } = conversation;
    const { turnId, replyTo, language, acceptedAt } = turn;
    const ms = Date.now() - acceptedAt.getTime();
    publish(replyTo, { turnId, conversationId, reply: committed.reply });
    countTurn(end.kind, ms / 1000);
    if (committed.announced) deliveryQueue.wake(key);
    logger.info(
      {
        turnId,
        conversationId,
        assistantId,
        channel,
        language,
        seq: committed.seq,
        end: end.kind,
        ...(end.kind === 'handoff' && { reason: end.reason }),
        ...(end.kind === 'answered' && { why: end.answer.why }),
        ...(end.kind === 'handoff' && { why: end.why }),
        ms,
      },
      'turn ended',
    );
  };

  /** Reads, answers, commits; again where the conversation changed in between. Null: this turn is not the head (any more). */
  const answerHead = async (
    { key, turnId }: TurnRef,
    { tries, read }: { tries: number; read: AnswerableConversation },
  ): Promise<Ended | null> => {
    let answered = null as { seq: number; status: string; leadScore: number; end: TurnEnd } | null;
    let attempt = tries;
    for (let tried = 0; ; tried += 1) {
      const conversation = tried === 0 ? read : await conversations.findForAnswer(key);
      const turn = headOf(conversation, turnId);
      if (!conversation || !turn) return null;
      // A waiter that joined meanwhile changes nothing of the answer; a message or a handoff does.
      const { seq, status, leadScore } = conversation;
      if (answered?.seq !== seq || answered.status !== status || answered.leadScore !== leadScore) {
        answered = { seq, status, leadScore, end: await endOf(conversation, turn, { tries, attempt }) };
        attempt += 1;
      }
      const receiversOf =
        conversation.channel === 'playground' ? () => [] : await endpoints.receivers(conversation.assistantId);
      const committed = await conversations.commit(conversation, answered.end, receiversOf);
      if (!committed) continue;
      announceEnd(conversation, turn, answered.end, committed);
      return { nextTurnId: committed.nextTurnId, failed: committed.reply.outcome === 'failed' };
    }
  };

  /**
   * Seen as the head before it is taken: a stray job must not hold a turn whose time comes a moment later. One that
   * became head by this worker's own commit is known to be it.
   */
  const takeUp = async (ref: TurnRef, { inARow }: { inARow: boolean }) => {
    if (!inARow) {
      const read = await conversations.findForAnswer(ref.key);
      return [read, headOf(read, ref.turnId) && (await hints.take(ref))] as const;
    }
    const [read, take] = await Promise.allSettled([conversations.findForAnswer(ref.key), hints.take(ref)]);
    if (take.status === 'rejected') throw take.reason;
    if (read.status === 'fulfilled') return [read.value, take.value] as const;
    // What is held is held for as long as this process lives, unless it is let go.
    if (take.value) hints.release(ref, take.value.token, true);
    throw read.reason;
  };

  /** One head under a take. The next head of its line, or null. */
  const answerTaken = async (ref: TurnRef, options: { inARow: boolean }): Promise<string | null> => {
    const [read, take] = await takeUp(ref, options);
    if (!take) return null;
    if (!read) {
      hints.release(ref, take.token, true);
      return null;
    }
    try {
      const ended = await answerHead(ref, { tries: take.tries, read });
      // One that failed may be resumed under its id, one that is not the head may become it: each begins anew then.
      if (!ended || ended.failed) hints.release(ref, take.token, true);
      else hints.letLapse(ref);
      return ended?.nextTurnId ?? null;
    } catch (cause) {
      // A store that is away is nobody's try: the sweep asks again once it is back. Nor is a process that stops.
      const away = isConnectionFailure(cause);
      hints.release(ref, take.token, away || draining.aborted);
      const line = { err: cause, turnId: ref.turnId, tries: take.tries };
      logger[away ? 'warn' : 'error'](line, 'a turn was not answered');
      // After its last try it is left to the sweep, which asks again in its own time.
      return away || take.tries > MAX_TRIES ? null : ref.turnId;
    }
  };

  /** Answers a line from this head on. */
  return async ({ key, turnId }: TurnRef): Promise<void> => {
    let next: string | null = turnId;
    for (let count = 0; next !== null && count < TURNS_IN_A_ROW && !draining.aborted; count += 1) {
      next = await answerTaken({ key, turnId: next }, { inARow: count > 0 });
    }
    if (next !== null) turnQueue.enqueue({ key, turnId: next });
  };
};

export type AnswerTurn = ReturnType<typeof createAnswerTurn>;
