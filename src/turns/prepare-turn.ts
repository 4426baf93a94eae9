import type { Assistant } from '../assistants/assistant.ts';
import type { ChannelName } from '../conversations/conversation.ts';
import { dedupeKeyOf } from '../conversations/duplicates.ts';
import type { NewTurn } from '../conversations/new-turn.ts';
import type { ConversationStore } from '../conversations/store.ts';
import { serverDate } from '../platform/clock.ts';
import { ApiError } from '../platform/errors.ts';
import { conversationKeyOf, newId, newPrefixedId } from '../platform/ids.ts';
import { decideLanguage, type LanguageDecision } from '../language/decide.ts';
import type { IdempotencyKeys } from './idempotency-keys.ts';
import type { Progress } from './progress.ts';
import type { Replies } from './replies.ts';
import type { WaitingTurn } from './waiting-turns.ts';

export type TurnRequest = {
  assistant: Assistant;
  channel: ChannelName;
  sessionId: string;
  message: string;
  /** A canonical BCP 47 tag, or null if the language must be detected. */
  language: string | null;
  idempotencyKey: string | null;
  /**
   * True if the caller gets 202 immediately. Nobody waits for the reply, and the turn counts as delivered when it is
   * answered (docs/contract.md, Retry is safe).
   */
  async?: boolean;
  /** Counts the turn as waiting. Not set for a playground turn. */
  waiting?: WaitingTurn;
  /** Set if the caller wants a stream. Called with the known text while the reply is written. */
  onProgress?: (progress: Progress) => void;
};

type Dependencies = {
  conversations: ConversationStore;
  idempotencyKeys: IdempotencyKeys;
  replies: Pick<Replies, 'channel' | 'streamChannel'>;
};

/** Makes a turn from a request: decides its language, gives it ids and reserves its `Idempotency-Key`. */
export const createPrepareTurn = ({ conversations, idempotencyKeys, replies }: Dependencies) => {
  const channelOf = ({ async, onProgress }: TurnRequest): string | null => {
    if (async) return null;
    return onProgress ? replies.streamChannel : replies.channel;
  };

  /** Decides the language. Reads the conversation's language only if the message alone does not decide. */
  const languageOf = async (
    { assistant, message, language: given }: TurnRequest,
    key: string,
  ): Promise<LanguageDecision> => {
    const evidence = { given, message, allowed: assistant.languages };
    const alone = decideLanguage({ ...evidence, previous: null });
    if (alone.decided) return alone;
    return decideLanguage({ ...evidence, previous: await conversations.findLanguage(key) });
  };

  const reserve = async (
    request: TurnRequest,
    key: string,
    turnId: string,
  ): Promise<Pick<NewTurn, 'turnId' | 'reservation'>> => {
    const { assistant, idempotencyKey, message } = request;
    if (idempotencyKey === null) return { turnId, reservation: null };
    const reserved = await idempotencyKeys.reserve({
      assistantId: assistant.assistantId,
      idempotencyKey,
      conversationKey: key,
      message,
      turnId,
    });
    if (reserved.state === 'reused') throw new ApiError('idempotency_key_reused');
    return { turnId: reserved.turnId, reservation: reserved.state };
  };

  return async (request: TurnRequest): Promise<NewTurn> => {
    const { assistant, channel, sessionId, message, idempotencyKey } = request;
    const { assistantId, sessionKey } = assistant;
    const key = conversationKeyOf({ sessionKey, sessionId, playground: channel === 'playground' });
    const [decided, reservation] = await Promise.all([
      languageOf(request, key),
      reserve(request, key, newPrefixedId(key)),
    ]);
    return {
      key,
      conversationId: newPrefixedId(key),
      assistantId,
      sessionId,
      channel,
      ...reservation,
      messageId: newId(),
      message,
      language: decided.language,
      languageBy: decided.by,
      dedupeKey: idempotencyKey === null ? dedupeKeyOf(message) : null,
      async: request.async === true,
      replyTo: channelOf(request),
      acceptedAt: serverDate(),
    };
  };
};
