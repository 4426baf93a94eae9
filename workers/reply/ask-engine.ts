import type { Assistant } from '../../src/assistants/assistant.ts';
import type { AssistantStore } from '../../src/assistants/store.ts';
import type { Message, PendingTurn } from '../../src/conversations/conversation.ts';
import type { ConversationStore } from '../../src/conversations/store.ts';
import type { AnswerableConversation } from '../../src/conversations/turn-commit.ts';
import type { TurnEnd } from '../../src/turns/end-turn.ts';
import { serverNow } from '../../src/platform/clock.ts';
import type { Logger } from '../../src/platform/logger.ts';
import type { Publish } from '../../src/turns/replies.ts';
import { boundedWhy } from './bounded-why.ts';
import { createDeltaFeed } from './delta-feed.ts';
import type { AssistantEngine, AssistantProfile, TurnContext } from './engines/engine.ts';
import { inspectMessage } from './guard.ts';
import { endWithApology, endWithReply, holdingTextOf } from './handoff.ts';
import { scoreLead } from './lead-score.ts';
import type { SemanticSearchOf } from './vectors/semantic-search.ts';
import { refusalReply } from './refusal.ts';

type Dependencies = {
  conversations: ConversationStore;
  assistants: AssistantStore;
  engine: AssistantEngine;
  semanticSearchOf: SemanticSearchOf;
  publish: Publish;
  draining: AbortSignal;
  logger: Logger;
};

type Question = {
  /** The conversation as it was read, or as it is after the previous turn of the same commit. */
  conversation: AnswerableConversation;
  turn: PendingTurn;
  /**
   * The number of this answer. Callers who receive the reply as a stream use it to tell a new answer from an earlier
   * one.
   */
  attempt: number;
  history: (entries: number) => Promise<Message[]>;
};

const rounded = (ms: number): number => Math.round(ms * 100) / 100;

/**
 * Decides how a turn ends: with an engine's reply, with the guard's refusal, or with the holding text of an escalated
 * conversation.
 */
export const createAskEngine = (dependencies: Dependencies) => {
  const { conversations, assistants, engine, semanticSearchOf, publish, draining, logger } = dependencies;

  const profileOf = async (assistant: Assistant): Promise<AssistantProfile> => {
    const { entries, leftOut } = await assistants.findKnowledge(assistant);
    return {
      assistantId: assistant.assistantId,
      version: String(assistant.version),
      name: assistant.name,
      instructions: assistant.instructions,
      languages: assistant.languages,
      threshold: assistant.threshold,
      knowledge: entries,
      leftOut,
      engine: assistant.engine,
      allowedLinks: assistant.allowedLinks,
    };
  };

  const endWithEngine = async (
    { conversation, turn, attempt, history }: Question,
    assistant: Assistant,
  ): Promise<TurnEnd> => {
    const { leadScore, leadBecause, lowConfidenceStreak, engineErrorStreak, status } = conversation;
    const scored = scoreLead({
      previous: leadScore,
      explanation: leadBecause,
      message: turn.message,
      turnNumber: conversation.seq + 1,
    });
    const lead = { leadScore: scored.score, leadBecause: scored.because };
    const circumstances = { assistant, turn, status, streaks: { lowConfidenceStreak, engineErrorStreak }, lead };
    if (status === 'escalated') {
      return { kind: 'held', holdingText: holdingTextOf(assistant, turn.language), ...lead };
    }
    const startedAt = performance.now();
    const waitMs = serverNow() - turn.acceptedAt.getTime();
    const profile = await profileOf(assistant);
    const feed = createDeltaFeed({
      turnId: turn.turnId,
      attempt,
      replyTo: turn.replyTo,
      findReplyTo: async () => {
        const now = await conversations.findForAnswer(conversation._id);
        return now?.waiting.find(({ turnId }) => turnId === turn.turnId)?.replyTo ?? [];
      },
      publish,
    });
    const contextMs = performance.now() - startedAt;
    const found = assistant.guard === 'off' ? null : inspectMessage(turn.message);
    const isRefused = found !== null && assistant.guard === 'refuse';
    const canKnow = profile.knowledge.length > 0 || profile.engine?.kind === 'openai';
    // A failed read of the history counts as a failure of the store, even if the engine catches the error.
    let historyFailure: { cause: unknown } | null = null;
    const readHistory: TurnContext['history'] = async (entries) => {
      const messages = await history(entries).catch((cause: unknown) => {
        historyFailure = { cause };
        throw cause;
      });
      return messages.map(({ role, content, why }) => ({ role, content, why }));
    };
    const throwHistoryFailure = (): void => {
      if (historyFailure) throw historyFailure.cause;
    };
    try {
      const ask: TurnContext = {
        assistant: profile,
        message: turn.message,
        language: turn.language,
        history: readHistory,
        signal: draining,
        semanticSearch: semanticSearchOf(assistant),
        onDelta: feed.push,
      };
      const reply = isRefused ? refusalReply(turn.language) : await engine.reply(ask);
      throwHistoryFailure();
      const why = boundedWhy({
        ...reply.why,
        ...(turn.languageBy && { languageBy: turn.languageBy }),
        ...(found && { guard: { found, action: isRefused ? 'refused' : 'flagged' } }),
        stages: {
          wait: waitMs,
          context: rounded(contextMs),
          engine: rounded(performance.now() - startedAt - contextMs),
        },
      });
      return endWithReply({ ...reply, why }, { ...circumstances, canKnow });
    } catch (cause) {
      throwHistoryFailure();
      // This process is stopping, so another process will answer the turn.
      if (draining.aborted) throw cause;
      logger.error({ err: cause, turnId: turn.turnId, engine: engine.name }, 'the engine failed');
      return endWithApology(circumstances);
    } finally {
      feed.end();
    }
  };

  return {
    /** Decides how a turn ends. The turn fails if the assistant was deleted. */
    endOf: async (question: Question): Promise<TurnEnd> => {
      const assistant = await assistants.findAssistant(question.conversation.assistantId);
      return assistant ? endWithEngine(question, assistant) : { kind: 'failed' };
    },

    /** True if the turn needs no provider, so that it ends within milliseconds. */
    endsWithoutProvider: async (
      { assistantId, status }: AnswerableConversation,
      { message }: PendingTurn,
    ): Promise<boolean> => {
      const assistant = await assistants.findAssistant(assistantId);
      if (assistant === null || status === 'escalated') return true;
      if (engine.needsProvider?.(await profileOf(assistant)) === false) return true;
      return assistant.guard === 'refuse' && inspectMessage(message) !== null;
    },

    /**
     * True if the turn waits for neither a provider nor the model, so that it may share a commit with the turns before
     * it.
     */
    answersImmediately: async ({ conversation, turn, history }: Question): Promise<boolean> => {
      const assistant = await assistants.findAssistant(conversation.assistantId);
      if (assistant === null || conversation.status === 'escalated') return true;
      if (!engine.answersImmediately) return false;
      const { message, language } = turn;
      return engine.answersImmediately({
        assistant: await profileOf(assistant),
        message,
        language,
        history,
        signal: draining,
        semanticSearch: semanticSearchOf(assistant),
      });
    },
  };
};

export type AskEngine = ReturnType<typeof createAskEngine>;
