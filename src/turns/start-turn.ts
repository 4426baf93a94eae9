import type { Assistant } from '../assistants/assistant.ts';
import type { Accepted, NewTurn } from '../conversations/accept.ts';
import type { ChannelName } from '../conversations/conversation.ts';
import { dedupeKeyOf } from '../conversations/duplicates.ts';
import type { ConversationStore } from '../conversations/store.ts';
import { decideLanguage, type LanguageDecision } from '@parley/understanding/text';
import { serverDate } from '../process/clock.ts';
import { withDeadline } from '../process/deadline.ts';
import { ApiError } from '../process/errors.ts';
import { conversationKeyOf, newId, newPrefixedId } from '../process/ids.ts';
import type { Logger } from '../process/logger.ts';
import type { OrUnavailable } from '../mongo/silence.ts';
import type { PassedTurn } from './gate.ts';
import type { DeliveredReplies } from './delivered-replies.ts';
import type { IdempotencyKeys } from './idempotency-keys.ts';
import type { TurnQueue } from './queue.ts';
import type { Progress, Replies, Waiter } from './replies.ts';
import { storedReplyOf, toResponse } from './turn-view.ts';
import type { ChatResponse } from './turn.ts';

export type TurnRequest = {
  assistant: Assistant;
  channel: ChannelName;
  /** The API key of the request, if it has one. */
  keyId?: string | null;
  sessionId: string;
  message: string;
  /** A canonical BCP 47 tag, or null if the language must be detected. */
  language: string | null;
  idempotencyKey: string | null;
  /** True if the response has the sources of the reply. */
  withSources?: boolean;
  /**
   * True if the caller gets 202 immediately. Nobody waits for the reply, and the turn counts as delivered when it is
   * answered (docs/contract.md, Retry is safe).
   */
  async?: boolean;
  /** Waits until the turn may be accepted (docs/design.md, Fair shares). Not set for a playground turn. */
  pass?: () => Promise<PassedTurn>;
  /** Set if the caller wants a stream. Called with the known text while the reply is written. */
  onProgress?: (progress: Progress) => void;
};

type PrepareTurnDependencies = {
  conversations: Pick<ConversationStore, 'findLanguage'>;
  idempotencyKeys: Pick<IdempotencyKeys, 'reserve'>;
  replies: Pick<Replies, 'channel' | 'streamChannel'>;
};

/** Makes a turn from a request: decides its language, gives it ids and reserves its `Idempotency-Key`. */
const createPrepareTurn = ({ conversations, idempotencyKeys, replies }: PrepareTurnDependencies) => {
  /** A turn with 202 has a channel too, because its reply ends its time in flight. */
  const channelOf = ({ onProgress }: TurnRequest): string => (onProgress ? replies.streamChannel : replies.channel);

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
      ...(request.keyId && { keyId: request.keyId }),
      dedupeKey: idempotencyKey === null ? dedupeKeyOf(message) : null,
      async: request.async === true,
      replyTo: channelOf(request),
      acceptedAt: serverDate(),
    };
  };
};

/**
 * Counts the requests in flight in this process, by session. If a session has only one request in flight, its turn is
 * most likely the head of the pending turns. If it has several, a turn is most likely not the head.
 */
const createSessionsInFlight = () => {
  const counts = new Map<string, number>();

  return {
    /**
     * Counts a request. The caller must call the returned function when the request has ended; further calls have no
     * effect.
     */
    enter: (key: string): (() => void) => {
      counts.set(key, (counts.get(key) ?? 0) + 1);
      let counted = true;
      return () => {
        if (!counted) return;
        counted = false;
        const left = (counts.get(key) ?? 1) - 1;
        if (left === 0) counts.delete(key);
        else counts.set(key, left);
      };
    },

    isAlone: (key: string): boolean => (counts.get(key) ?? 0) <= 1,
  };
};

/** The accepted turn, or the earlier turn that this request repeats. */
type StartedTurn = {
  turnId: string;
  /** Null for a caller who waits for the whole answer, because the answer contains the id. */
  conversationId: string | null;
  /**
   * True if an earlier or concurrent request created the turn. The response then has the header `Idempotent-Replayed:
   * true`.
   */
  replayed: boolean;
  /** Waits for the answer. Throws the error that the caller must get. Not called for a 202. */
  response: () => Promise<ChatResponse>;
  /** Call this after the response is written. From then on, a repeated message may become a new turn. */
  delivered: () => void;
  /** Call this when nobody waits for the reply any more. */
  end: () => void;
};

/**
 * Why a request created no new turn (docs/contract.md, Retry is safe). `keyed`: because its `Idempotency-Key` was
 * known.
 */
export type Repetition = 'joined' | 'replayed' | 'resumed' | 'keyed';

type Dependencies = {
  conversations: ConversationStore;
  idempotencyKeys: IdempotencyKeys;
  deliveredReplies: DeliveredReplies;
  turnQueue: Pick<TurnQueue, 'enqueue'>;
  replies: Replies;
  replyTimeoutMs: number;
  /** Aborted, with the error that waiting callers get, when the process stops and they must not wait any longer. */
  mustEnd: AbortSignal;
  onRepeated: (kind: Repetition) => void;
  onBusy: () => void;
  orUnavailable: OrUnavailable;
  logger: Logger;
};

const repetitionOf = (accepted: Accepted): Repetition | null => {
  if (accepted.kind === 'joined' || accepted.kind === 'replayed') return accepted.kind;
  return accepted.kind === 'accepted' && accepted.resumed ? 'resumed' : null;
};

/** True if the turn is one of those that reply workers answer in their order. A provider's turns have slots of their own. */
const isInFlight = ({ assistant }: TurnRequest, accepted: Accepted): accepted is Accepted & { kind: 'accepted' } =>
  assistant.engine.kind === 'retrieval' && accepted.kind === 'accepted' && !accepted.resumed;

/**
 * True if the conversation's id is needed before the answer. A caller who waits for the whole answer gets the id with
 * the answer.
 */
const needsConversationId = ({ async, onProgress, idempotencyKey }: TurnRequest): boolean =>
  async === true || onProgress !== undefined || idempotencyKey !== null;

/** The conversation's id, for requests that need the id before the answer. */
export const knownConversationOf = ({ conversationId }: Pick<StartedTurn, 'conversationId'>): string => {
  if (conversationId === null) throw new Error('the conversation of this turn was not read back');
  return conversationId;
};

/**
 * Starts a turn, for every channel (docs/contract.md, Sending a message): accepts the turn or finds the turn that it
 * repeats, and enqueues the head. The caller decides whether to wait for the answer.
 */
export type StartTurn = (request: TurnRequest) => Promise<StartedTurn>;

export const createStartTurn = (dependencies: Dependencies): StartTurn => {
  const { conversations, idempotencyKeys, deliveredReplies, turnQueue, replies, replyTimeoutMs, logger } = dependencies;
  const { mustEnd, onRepeated, onBusy, orUnavailable } = dependencies;
  const inFlight = createSessionsInFlight();
  const storedReply = storedReplyOf(conversations);
  const prepareTurn = createPrepareTurn({ conversations, idempotencyKeys, replies });

  const accept = async (
    request: TurnRequest,
    turn: NewTurn,
    watch: (turnId: string) => void,
  ): Promise<Exclude<Accepted, { kind: 'busy' }>> => {
    const { assistant, idempotencyKey } = request;
    const accepted = await conversations.accept(turn, {
      windowMs: assistant.dedupeWindowSeconds * 1000,
      readBack: needsConversationId(request) || !inFlight.isAlone(turn.key),
      watch,
    });
    if (accepted.kind === 'busy') {
      onBusy();
      throw new ApiError('session_busy', { headers: { 'Retry-After': '1' } });
    }
    const repetition = repetitionOf(accepted);
    if (repetition) onRepeated(idempotencyKey === null ? repetition : 'keyed');
    if (idempotencyKey !== null) {
      const { conversationId } = accepted.kind === 'replayed' ? accepted.conversation : accepted;
      if (conversationId !== null) {
        idempotencyKeys.bind(assistant.assistantId, idempotencyKey, conversationId);
      }
    }
    // If the job is lost, a sweep adds it again.
    if (accepted.kind === 'accepted' && accepted.head) turnQueue.enqueue({ key: turn.key, turnId: accepted.turnId });
    return accepted;
  };

  return async (request) => {
    const startedAt = performance.now();
    const { withSources = false } = request;
    const passed = await request.pass?.();
    // If the turn is not accepted, the reserved key keeps its turn id for the retry.
    const turn = await orUnavailable(prepareTurn(request)).catch((cause: unknown) => {
      passed?.leave();
      throw cause;
    });
    const { key } = turn;
    const waiters = new Map<string, Waiter>();
    const watch = (turnId: string): Waiter => {
      const waiter = waiters.get(turnId) ?? replies.watch({ key, turnId }, request.onProgress);
      waiters.set(turnId, waiter);
      return waiter;
    };
    const leave = inFlight.enter(key);
    const end = (): void => {
      leave();
      passed?.leave();
      for (const waiter of waiters.values()) waiter.cancel();
    };
    try {
      passed?.follow(replies.watch({ key, turnId: turn.turnId }));
      if (!request.async) watch(turn.turnId);
      const accepted = await accept(request, turn, request.async ? () => undefined : watch);
      if (isInFlight(request, accepted)) passed?.stay(accepted.head);
      else passed?.leave();
      if (request.async) end();
      if (accepted.kind === 'replayed') {
        const { conversation, turn: known } = accepted;
        const { conversationId } = conversation;
        return {
          turnId: known.turnId,
          conversationId,
          replayed: true,
          response: async () =>
            toResponse(await orUnavailable(storedReply(conversation, known)), { conversationId, withSources }),
          delivered: () => deliveredReplies.mark({ key, turnId: known.turnId }),
          end,
        };
      }
      const { turnId, conversationId } = accepted;
      const response = async (): Promise<ChatResponse> => {
        const waiter = watch(turnId);
        waiter.arm();
        const left = replyTimeoutMs - (performance.now() - startedAt);
        const published = await withDeadline(waiter.reply, Math.max(0, left), {
          late: () => new ApiError('reply_timeout'),
          signal: mustEnd,
        });
        const ms = Math.round(performance.now() - startedAt);
        logger.debug({ turnId, conversationId: published.conversationId, ms }, 'turn answered');
        return toResponse(published.reply, { conversationId: published.conversationId, withSources });
      };
      return {
        turnId,
        conversationId,
        replayed: accepted.kind === 'joined',
        response,
        delivered: () => deliveredReplies.mark({ key, turnId }),
        end,
      };
    } catch (cause) {
      end();
      throw cause;
    }
  };
};

type Submitted = {
  response: ChatResponse;
  turnId: string;
  /**
   * True for the answer of an earlier or concurrent request with the same message. The response then has the header
   * `Idempotent-Replayed: true`.
   */
  replayed: boolean;
  /** Call this once the response was written. From then on, a repeated message may become a new turn. */
  delivered: () => void;
};

/** Starts a turn and waits for its answer. */
export type Submit = (request: TurnRequest) => Promise<Submitted>;

export const createSubmit =
  (startTurn: StartTurn): Submit =>
  async (request) => {
    const { turnId, replayed, delivered, response, end } = await startTurn(request);
    try {
      return { response: await response(), turnId, replayed, delivered };
    } finally {
      end();
    }
  };
