import { findContactDetails } from '@parley/understanding';
import { type Assistant, draftedSettingsOf, isInOrder, usualLanguage } from '../assistants/assistant.ts';
import type { DraftKnowledge } from '../assistants/drafts/draft-reads.ts';
import { closedText, nextOpening } from '../assistants/opening-hours.ts';
import type { AssistantStore } from '../assistants/store.ts';
import { MAX_SUGGESTED_ACTIONS, SuggestedAction } from '../assistants/suggested-action.ts';
import type { AnswerableConversation } from '../conversations/commit.ts';
import type { Message, PendingTurn, StoredConversation } from '../conversations/conversation.ts';
import type { Answer, HandoffReason, TurnEnd } from '../conversations/state.ts';
import type { ConversationStore } from '../conversations/store.ts';
import { decideLanguage } from '@parley/understanding/text';
import { isMongoUnavailable } from '../platform/mongo/failures.ts';
import { serverDate, serverNow } from '../platform/process/clock.ts';
import { restIfBusy } from '../platform/process/slices.ts';
import type { Logger } from '../platform/process/logger.ts';
import { type Publish, streamChannels } from '../turns/waiters.ts';
import {
  apologyText,
  type AssistantEngine,
  type AssistantProfile,
  type EngineEntry,
  type EngineReply,
  hasTexts,
  holdingText,
  refusalText,
  type TurnContext,
} from './engines/engine.ts';
import { inspectMessage } from './guard.ts';
import { scoreLead } from './lead-score.ts';
import type { Passages } from '../sources/passage-index.ts';
import type { DraftVectors, SemanticSearchOf } from '../assistants/knowledge/semantic-search.ts';

/** Maximum length of a reply's `why` as JSON. Every reply's `why` is stored and logged. */
const WHY_MAX = 4_096;
const NAME_MAX = 100;

const jsonLengthOf = (value: unknown): number => {
  try {
    return (JSON.stringify(value) ?? '').length;
  } catch {
    return Number.POSITIVE_INFINITY; // a cycle, or a value that JSON cannot express
  }
};

/**
 * Returns `why` unchanged if it is small enough. Otherwise keeps only `engine`, `kind` and `version`, and adds `cut:
 * true`.
 */
export const boundedWhy = (why: Record<string, unknown>): Record<string, unknown> => {
  if (jsonLengthOf(why) <= WHY_MAX) return why;
  const named = ['engine', 'kind'].flatMap((name) => {
    const value = why[name];
    return typeof value === 'string' ? [[name, value.slice(0, NAME_MAX).toWellFormed()]] : [];
  });
  const version = typeof why['version'] === 'number' ? { version: why['version'] } : {};
  return { ...Object.fromEntries(named), ...version, cut: true };
};

/** Pieces that arrive within this time are published together. */
const COALESCE_MS = 30;
/** How often the channels of newly waiting callers are read. */
const REFRESH_EVERY_MS = 1_000;

type Options = {
  turnId: string;
  attempt: number;
  /** Channels of the waiting callers, as read when the attempt began. */
  replyTo: string[];
  /** Reads the current channels. */
  findReplyTo: () => Promise<string[]>;
  publish: Publish;
};

/** The length of the text, without a surrogate pair that is cut in half at the end. */
const endOfWhole = (text: string): number => {
  const last = text.charCodeAt(text.length - 1);
  return last >= 0xd800 && last <= 0xdbff ? text.length - 1 : text.length;
};

/**
 * Publishes a reply to streaming callers while the reply is being written. A lost piece does no harm, because the
 * committed reply has the whole text. Each piece has its offset, so that a caller can notice a missed piece.
 */
const createDeltaFeed = ({ turnId, attempt, replyTo, findReplyTo, publish }: Options) => {
  let channels = streamChannels(replyTo);
  let text = '';
  let published = 0;
  let publishedAt = Number.NEGATIVE_INFINITY;
  let channelsReadAt = performance.now();
  let timer: NodeJS.Timeout | null = null;
  let ended = false;

  const publishDelta = (): void => {
    timer = null;
    const end = endOfWhole(text);
    if (end <= published) return;
    publish(channels, { turnId, attempt, from: published, delta: text.slice(published, end) });
    published = end;
    publishedAt = performance.now();
  };

  const refreshChannels = async (): Promise<void> => {
    channelsReadAt = performance.now();
    const now = streamChannels(await findReplyTo());
    if (ended) return;
    const added = now.filter((channel) => !channels.includes(channel));
    if (published > 0) publish(added, { turnId, attempt, from: 0, delta: text.slice(0, published) });
    channels = now;
  };

  return {
    push: (piece: string): void => {
      if (ended) return;
      text += piece;
      const now = performance.now();
      if (now - channelsReadAt > REFRESH_EVERY_MS) refreshChannels().catch(() => undefined);
      if (now - publishedAt > COALESCE_MS) publishDelta();
      else timer ??= setTimeout(publishDelta, COALESCE_MS);
    },
    /** Publishes the remaining text. Call it before the reply is published. */
    end: (): void => {
      ended = true;
      if (timer) clearTimeout(timer);
      publishDelta();
    },
  };
};

/** The reply to a message that the guard refuses. No engine is asked. */
const refusalReply = (wanted: string): EngineReply => {
  const language = hasTexts(wanted) ? wanted : 'en';
  return {
    text: refusalText(language),
    suggestedActions: [],
    confidence: 1,
    low: false,
    language,
    why: { engine: 'none', kind: 'refused', language },
  };
};

/**
 * This many low-confidence replies or engine errors in a row cause an escalation (docs/contract.md, Escalation by the
 * assistant).
 */
const STREAK_TO_HAND_OFF = 2;

type Lead = { leadScore: number; leadBecause: string[] };
type Streaks = Pick<StoredConversation, 'lowConfidenceStreak' | 'engineErrorStreak'>;

/**
 * Everything except the engine's answer that decides how a turn ends. A conversation that was resolved in the meantime
 * is not handed off.
 */
type Circumstances = {
  assistant: Assistant;
  turn: PendingTurn;
  status: StoredConversation['status'];
  streaks: Streaks;
  lead: Lead;
};

/** The holding text. Outside opening hours it also says when somebody answers. */
const holdingTextOf = ({ holdingText: own, openingHours }: Assistant, language: string): string => {
  const held = own ?? holdingText(language);
  const opening = nextOpening(openingHours, serverDate());
  return opening && openingHours ? `${held} ${closedText(language, opening, openingHours.timeZone)}` : held;
};

const handOff = (
  { assistant, turn, lead }: Pick<Circumstances, 'assistant' | 'turn' | 'lead'>,
  { reason, why }: { reason: HandoffReason; why: Record<string, unknown> },
): Extract<TurnEnd, { kind: 'handoff' }> => ({
  kind: 'handoff',
  reason,
  holdingText: holdingTextOf(assistant, turn.language),
  why,
  ...lead,
});

/** Ends a turn with an answer. Contact details beside the question may hand the conversation to a person. */
const endAnswered = (answer: Answer, { assistant, turn, status, lead }: Circumstances): TurnEnd => {
  const raises = assistant.contactsEscalate && status === 'open' && findContactDetails(turn.message) !== null;
  if (!raises) return { kind: 'answered', answer, ...lead };
  return { ...handOff({ assistant, turn, lead }, { reason: 'contact_details', why: answer.why }), answer };
};

const handoffReasonOf = (
  reply: EngineReply,
  { lowConfidenceStreak }: Streaks,
  canKnow: boolean,
): HandoffReason | null => {
  if (reply.escalate) return reply.escalate;
  return canKnow && reply.low && lowConfidenceStreak + 1 >= STREAK_TO_HAND_OFF ? 'low_confidence' : null;
};

/**
 * Keeps at most five of an engine's suggested actions, and only safe ones, as the rules for knowledge require
 * (docs/contract.md, Suggested actions).
 */
const safeActions = (actions: SuggestedAction[]): SuggestedAction[] =>
  actions.filter((action) => SuggestedAction.safeParse(action).success).slice(0, MAX_SUGGESTED_ACTIONS);

/** Ends a turn with the engine's answer, or with a handoff. */
const endWithReply = (reply: EngineReply, circumstances: Circumstances & { canKnow: boolean }): TurnEnd => {
  const { assistant, turn, status, streaks, canKnow, lead } = circumstances;
  const reason = status === 'resolved' ? null : handoffReasonOf(reply, streaks, canKnow);
  if (reason) return handOff({ assistant, turn, lead }, { reason, why: reply.why });
  const answer: Answer = {
    text: reply.text,
    language: reply.language,
    suggestedActions: safeActions(reply.suggestedActions),
    ...(reply.sources && { sources: reply.sources }),
    why: reply.why,
    lowConfidenceStreak: canKnow && reply.low ? streaks.lowConfidenceStreak + 1 : 0,
    engineErrorStreak: 0,
  };
  return endAnswered(answer, circumstances);
};

/**
 * Ends a turn after both the engine and its fall-back failed. The visitor gets an apology. The second such turn in a
 * row causes a handoff.
 */
const endWithApology = (circumstances: Circumstances): TurnEnd => {
  const { assistant, turn, status, streaks, lead } = circumstances;
  const why = { engine: 'none', error: 'engine_error' };
  if (status !== 'resolved' && streaks.engineErrorStreak + 1 >= STREAK_TO_HAND_OFF) {
    return handOff({ assistant, turn, lead }, { reason: 'engine_error', why });
  }
  const answer: Answer = {
    text: apologyText(turn.language),
    language: turn.language,
    suggestedActions: [],
    why,
    lowConfidenceStreak: streaks.lowConfidenceStreak,
    engineErrorStreak: streaks.engineErrorStreak + 1,
  };
  return endAnswered(answer, circumstances);
};

type Dependencies = {
  conversations: Pick<ConversationStore, 'findReplyTo'>;
  assistants: Pick<AssistantStore, 'drafts' | 'findAssistant' | 'findKnowledge' | 'getAssistant' | 'mustRead'>;
  engine: AssistantEngine;
  semanticSearchOf: SemanticSearchOf;
  /** For comparisons of drafts: an engine whose indexes take no memory from live ones, and the vectors of drafts. */
  draftEngine: AssistantEngine;
  draftVectors: DraftVectors;
  draftSearchOf: (draft: DraftKnowledge) => SemanticSearchOf;
  passages: Passages;
  /** Of drafts that add or remove sources. */
  draftPassages: Passages;
  publish: Publish;
  draining: AbortSignal;
  /** Since when the whole process stops. Then the calls of providers have a time limit. */
  stopping: AbortSignal;
  logger: Logger;
};

type Question = {
  /** The conversation as it was read, or as it is after the previous turn of the same commit. */
  conversation: AnswerableConversation;
  /** The turn. Of turns that are answered together the last one, with the text of all. */
  turn: PendingTurn;
  /** The texts of turns that are answered together. */
  messages?: string[];
  /**
   * The number of this answer. Callers who receive the reply as a stream use it to tell a new answer from an earlier
   * one.
   */
  attempt: number;
  history: (entries: number) => Promise<Message[]>;
};

/** The version that answers, for `why`. */
const versionOf = ({ publishedVersion }: AssistantProfile): { version?: number } =>
  publishedVersion === undefined ? {} : { version: publishedVersion };

const rounded = (ms: number): number => Math.round(ms * 100) / 100;

/**
 * `apart`: it waits for a provider, a read or an index. `soon`: it ends within milliseconds. `job`: so does it, and the
 * gate lets only so many of these in that it may be answered in its job, in the order of all.
 */
export type Way = 'job' | 'soon' | 'apart';

/**
 * Decides how a turn ends: with an engine's reply, with the guard's refusal, or with the holding text of an escalated
 * conversation.
 */
export type AskEngine = {
  /**
   * Answers a message without a conversation, for an evaluation: nothing is stored, and the model serves turns first.
   * Null if the assistant was deleted. With `draft`, the draft answers instead of the live version. Without
   * `reserveTokens`, no provider is asked. `entries`: what it knew. Null if that was changed while a provider was asked.
   */
  tryOut: (
    assistantId: string,
    asked: { message: string; language: string | null },
    options?: { draft?: DraftKnowledge | undefined; reserveTokens?: TurnContext['reserveTokens'] },
  ) => Promise<{ reply: EngineReply; entries: EngineEntry[] | null } | null>;

  /**
   * What the draft of an assistant answers from, if it has this revision. `isReady`: its vectors are made. Null if the
   * draft was changed, published or discarded meanwhile.
   */
  openDraft: (assistantId: string, revision: number) => Promise<{ draft: DraftKnowledge; isReady: boolean } | null>;

  /** Decides how a turn ends. The turn fails if the assistant was deleted. */
  endOf: (question: Question) => Promise<TurnEnd>;

  /** How the turn is to be answered. The turn of a deleted assistant fails in its job. */
  wayOf: (conversation: AnswerableConversation, turn: PendingTurn) => Promise<Way>;

  /**
   * True if the turn waits for neither a provider nor the model, so that it may share a commit with the turns before
   * it.
   */
  answersImmediately: (question: Question) => Promise<boolean>;
};

export const createAskEngine = (dependencies: Dependencies): AskEngine => {
  const { conversations, assistants, engine, semanticSearchOf, passages } = dependencies;
  const { publish, draining, stopping, logger } = dependencies;
  const { draftEngine, draftVectors, draftSearchOf, draftPassages } = dependencies;

  /** If a draft changes no source, the index of what is live serves. */
  const changesSources = ({ sources }: DraftKnowledge): boolean => Object.keys(sources).length > 0;

  /** The assistant with the sources of the draft. */
  const withSourcesOf = (assistant: Assistant, { sources: draft, revision }: DraftKnowledge) => ({
    ...assistant,
    draft,
    // The sum rises with each change of the draft or of passages. That there are any is not known.
    passages: { version: (assistant.passages?.version ?? 0) + revision, count: 1 },
  });

  /** The settings that no version has: the present ones count, also for turns of an earlier version. */
  const presentOf = ({ name, languages, tokensPerDay, ifTokensUsedUp }: Assistant) => {
    return { name, languages, tokensPerDay, ifTokensUsedUp };
  };

  const draftProfileOf = (assistant: Assistant, draft: DraftKnowledge): AssistantProfile => ({
    assistantId: assistant.assistantId,
    version: `${draft.version} ${draft.revision}`,
    ...presentOf(assistant),
    ...draftedSettingsOf(draft.settings),
    knowledge: draft.entries,
    leftOut: draft.leftOut,
  });

  /**
   * If a version is published, settings and entries are those of this version. Otherwise the settings are the present
   * ones.
   */
  const readProfile = async (assistant: Assistant): Promise<AssistantProfile> => {
    const { entries, leftOut, version, published } = await assistants.findKnowledge(assistant);
    return {
      assistantId: assistant.assistantId,
      version: String(version),
      ...presentOf(assistant),
      ...draftedSettingsOf(published?.settings ?? assistant),
      knowledge: entries,
      leftOut,
      ...(published && { publishedVersion: published.version }),
      readAgain: () => readProfile(assistant),
    };
  };
  const profileOf = async (assistant: Assistant, mayWait = false): Promise<AssistantProfile> => {
    const profile = await readProfile(assistant);
    if (profile.publishedVersion === undefined || !engine.atVersion) return profile;
    return Object.assign(await engine.atVersion(profile, mayWait), presentOf(assistant));
  };

  /** What the engine is asked with, and whether it has anything to answer from. */
  const openContext = async (
    assistant: Assistant,
    turn: Omit<TurnContext, 'assistant' | 'passages' | 'semanticSearch'>,
  ): Promise<{ ask: TurnContext; canKnow: boolean }> => {
    const profile = await profileOf(assistant, true);
    const ownPassages = passages.of(assistant, { version: profile.publishedVersion });
    const canKnow = profile.knowledge.length > 0 || ownPassages !== undefined || profile.engine?.kind === 'openai';
    const semanticSearch = semanticSearchOf(assistant);
    return { ask: { ...turn, assistant: profile, passages: ownPassages, semanticSearch }, canKnow };
  };

  const endWithEngine = async (
    { conversation, turn, messages, attempt, history }: Question,
    assistant: Assistant,
  ): Promise<TurnEnd> => {
    const rest = restIfBusy();
    if (rest) await rest;
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
    const feed = createDeltaFeed({
      turnId: turn.turnId,
      attempt,
      replyTo: turn.replyTo,
      findReplyTo: () => conversations.findReplyTo({ key: conversation._id, turnId: turn.turnId }),
      publish,
    });
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
    // The knowledge is in no variable here, because the engine lets it go while it waits for a provider.
    const { ask, canKnow } = await openContext(assistant, {
      message: turn.message,
      ...(messages && { messages }),
      language: turn.language,
      history: readHistory,
      signal: stopping,
      onDelta: feed.push,
    });
    const contextMs = performance.now() - startedAt;
    const found = assistant.guard === 'off' ? null : inspectMessage(turn.message);
    const isRefused = found !== null && assistant.guard === 'refuse';
    try {
      const reply = isRefused ? refusalReply(turn.language) : await engine.reply(ask);
      throwHistoryFailure();
      const why = boundedWhy({
        ...reply.why,
        ...versionOf(ask.assistant),
        ...(turn.languageBy && { languageBy: turn.languageBy }),
        ...(messages && { messages: messages.length }),
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
      // If this process is stopping, another one will answer the turn. If MongoDB is unavailable, no budget could be
      // reserved.
      if (draining.aborted || isMongoUnavailable(cause)) throw cause;
      logger.error({ err: cause, turnId: turn.turnId, engine: engine.name }, 'the engine failed');
      return endWithApology(circumstances);
    } finally {
      feed.end();
    }
  };

  return {
    openDraft: async (assistantId, revision) => {
      const draft = await assistants.drafts.findKnowledge(assistantId);
      if (draft?.revision !== revision) return null;
      const findOwner = async () => withSourcesOf(await assistants.getAssistant(assistantId), draft);
      const isReady =
        (await draftVectors.prepare(draft)) &&
        (!changesSources(draft) || (await draftPassages.prepare(Object.keys(draft.sources), findOwner)));
      return { draft, isReady };
    },

    tryOut: async (assistantId, { message, language: given }, { draft, reserveTokens } = {}) => {
      const assistant = await assistants.findAssistant(assistantId);
      if (!assistant) return null;
      const evidence = { given, message, allowed: assistant.languages, usual: usualLanguage(assistant) };
      const { language } = decideLanguage(evidence);
      const isRefused = assistant.guard === 'refuse' && inspectMessage(message) !== null;
      const owner = draft && changesSources(draft) ? withSourcesOf(assistant, draft) : null;
      const open = async (): Promise<TurnContext> => {
        const profile = draft ? draftProfileOf(assistant, draft) : await profileOf(assistant, true);
        if (!reserveTokens) delete profile.engine; // no provider is asked
        const by = { priority: 'background' as const, version: profile.publishedVersion };
        return {
          assistant: profile,
          message,
          language,
          history: async () => [],
          signal: stopping,
          semanticSearch: (draft ? draftSearchOf(draft) : semanticSearchOf)(assistant, 'background'),
          passages: owner ? draftPassages.of(owner, by) : passages.of(assistant, by),
          reserveTokens,
        };
      };
      const ask = await open();
      const own = draft ? draftEngine : engine;
      const reply = isRefused ? refusalReply(language) : await own.reply(ask);
      const why = { ...reply.why, ...versionOf(ask.assistant) };
      const { knowledge, version } = ask.assistant;
      if (knowledge.length > 0) return { reply: { ...reply, why }, entries: knowledge };
      if (draft) return { reply: { ...reply, why }, entries: draft.entries };
      // A provider was asked, and nothing has held the knowledge meanwhile.
      const now = await assistants.findKnowledge(assistant);
      return { reply: { ...reply, why }, entries: String(now.version) === version ? now.entries : null };
    },

    endOf: async (question) => {
      const assistant = await assistants.findAssistant(question.conversation.assistantId);
      return assistant ? endWithEngine(question, assistant) : { kind: 'failed' };
    },

    wayOf: async ({ assistantId, status }, { message }) => {
      const assistant = await assistants.findAssistant(assistantId);
      if (assistant === null) return 'job';
      const soon = isInOrder(assistant) ? 'job' : 'soon';
      if (status === 'escalated') return soon;
      if (assistants.mustRead(assistant)) return 'apart';
      const isImmediate = engine.needsProvider?.(await profileOf(assistant)) === false;
      if (isImmediate && !passages.isLongWait(assistant)) return soon;
      if (assistant.guard !== 'refuse') return 'apart';
      const rest = restIfBusy();
      if (rest) await rest;
      return inspectMessage(message) !== null ? soon : 'apart';
    },

    answersImmediately: async ({ conversation, turn, history }) => {
      const assistant = await assistants.findAssistant(conversation.assistantId);
      if (assistant === null || conversation.status === 'escalated') return true;
      if (!engine.answersImmediately) return false;
      const { message, language } = turn;
      const profile = await profileOf(assistant);
      return engine.answersImmediately({
        assistant: profile,
        message,
        language,
        history,
        signal: stopping,
        semanticSearch: semanticSearchOf(assistant),
        passages: passages.of(assistant, { version: profile.publishedVersion }),
      });
    },
  };
};
