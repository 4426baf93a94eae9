import { type Assistant, isInOrder, usualLanguage } from '../assistants/assistant.ts';
import type { Accepted, NewTurn } from '../conversations/accept.ts';
import type { ChannelName } from '../conversations/conversation.ts';
import { dedupeKeyOf } from '../conversations/accept.ts';
import type { ConversationStore } from '../conversations/store.ts';
import { decideLanguage, type LanguageDecision } from '@parley/understanding/text';
import { serverDate } from '../platform/process/clock.ts';
import { abortAfter, withDeadline } from '../platform/process/deadline.ts';
import { ApiError } from '../platform/process/errors.ts';
import { conversationKeyOf, newId, newPrefixedId, newToken } from '../platform/process/ids.ts';
import type { Logger } from '../platform/process/logger.ts';
import { addTo } from '../platform/process/slots.ts';
import { orFailed, type TraceSpan, type Tracing, within } from '../platform/process/tracing.ts';
import type { OrUnavailable } from '../platform/mongo/silence.ts';
import type { RedisClient } from '../platform/redis/redis.ts';
import type { Module } from '../service.ts';
import { createGate, type Gate, type PassedTurn } from './gate.ts';
import { type DeliveredReplies, openReplies, type Progress, type Replies, type Waiter } from './waiters.ts';
import type { IdempotencyKeys } from './idempotency-keys.ts';
import { type Allowance, createQuotas, type Quotas, type Reservation } from './allowances.ts';
import type { TurnQueue } from './queue.ts';
import { type ChatResponse, createReadTurn, type ReadTurn, storedReplyOf, toResponse } from './turn.ts';

export type TurnRequest = {
  assistant: Assistant;
  channel: ChannelName;
  /** The API key of the request, if it has one. */
  keyId?: string | null;
  /** The quotas that a new turn uses (`quotasOf`). Default: none. */
  quotas?: Allowance[];
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
  /**
   * Counts the message for its session, and waits until the turn may be accepted (docs/design.md, Fair shares). Not set
   * for a playground turn.
   */
  pass?: (conversationKey: string) => Promise<PassedTurn>;
  /** The caller's `traceparent`, unchanged. Set only for known callers, because strangers must not begin traces. */
  traceparent?: string | undefined;
  /** Set if the caller wants a stream. Called with the known text while the reply is written. */
  onProgress?: (progress: Progress) => void;
};

type PrepareTurnDependencies = {
  conversations: Pick<ConversationStore, 'findLanguage'>;
  idempotencyKeys: Pick<IdempotencyKeys, 'reserve'>;
  replies: Pick<Replies, 'channel' | 'streamChannel'>;
  replyTimeoutMs: number;
};

/** A group of quick messages is answered at most so many quiet times after its first message. */
const QUIET_TIMES = 3;

/** Makes a turn from a request: decides its language, gives it ids and reserves its `Idempotency-Key`. */
const createPrepareTurn = ({ conversations, idempotencyKeys, replies, replyTimeoutMs }: PrepareTurnDependencies) => {
  /**
   * How long the turn waits for another message. A caller waits for the whole group, so half of its time is left for the
   * answer. An operator who tries the assistant sends one message at a time.
   */
  const quickOf = ({ assistant, channel }: TurnRequest, acceptedAt: Date): NewTurn['quick'] => {
    if (assistant.quickMessageSeconds === null || channel === 'playground') return undefined;
    const quietMs = assistant.quickMessageSeconds * 1000;
    const after = (ms: number): Date => new Date(acceptedAt.getTime() + Math.min(ms, replyTimeoutMs / 2));
    return { until: after(quietMs), atLatest: after(QUIET_TIMES * quietMs) };
  };

  /** The channel of the reply. A turn with 202 has one too, because it is in flight until its reply comes. */
  const channelOf = ({ onProgress }: TurnRequest): string => (onProgress ? replies.streamChannel : replies.channel);

  /** Decides the language. Reads the conversation's language only if the message alone does not decide. */
  const languageOf = async (
    { assistant, message, language: given }: TurnRequest,
    key: string,
  ): Promise<LanguageDecision> => {
    const evidence = { given, message, allowed: assistant.languages, usual: usualLanguage(assistant) };
    const alone = decideLanguage({ ...evidence, previous: null });
    if (alone.decided) return alone;
    return decideLanguage({ ...evidence, previous: await conversations.findLanguage(key, assistant.assistantId) });
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

  return async (request: TurnRequest, key: string, span: TraceSpan): Promise<NewTurn> => {
    const { assistant, channel, sessionId, message, idempotencyKey } = request;
    const { assistantId } = assistant;
    const reservation = await reserve(request, key, newPrefixedId(key));
    // Only then, so that a refused turn costs no read, nor leaves one in flight that nobody counts.
    const decided = await languageOf(request, key);
    const acceptedAt = serverDate();
    const quick = quickOf(request, acceptedAt);
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
      acceptedAt,
      ...(quick && { quick }),
      ...(span.context !== null && { trace: span.context }),
    };
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
  quotas: Quotas;
  replies: Replies;
  replyTimeoutMs: number;
  /** Aborted, with the error that waiting callers get, when the process stops and they must not wait any longer. */
  mustEnd: AbortSignal;
  onRepeated: (kind: Repetition) => void;
  onBusy: () => void;
  onQuotaExceeded: () => void;
  orUnavailable: OrUnavailable;
  tracing: Tracing;
  logger: Logger;
};

type Known = Exclude<Accepted, { kind: 'busy' | 'refused' }>;

const conversationIdOf = (accepted: Known): string | null =>
  (accepted.kind === 'replayed' ? accepted.conversation : accepted).conversationId;

const repetitionOf = (accepted: Accepted): Repetition | null => {
  if (accepted.kind === 'joined' || accepted.kind === 'replayed') return accepted.kind;
  return accepted.kind === 'accepted' && accepted.resumed ? 'resumed' : null;
};

/** True if this request made the turn, also if it found its own turn after an unknown outcome. */
const isNewTurn = (accepted: Accepted, { messageId }: NewTurn): boolean => {
  switch (accepted.kind) {
    case 'accepted':
      return !accepted.resumed;
    case 'joined':
      return accepted.messageId === messageId;
    case 'replayed':
      return accepted.turn.messageId === messageId;
    default:
      return false;
  }
};

/** True for a new turn that reply workers answer in the order of all turns. */
const isInFlight = ({ assistant }: TurnRequest, accepted: Accepted): accepted is Accepted & { kind: 'accepted' } =>
  isInOrder(assistant) && accepted.kind === 'accepted' && !accepted.resumed;

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

const createStartTurn = (dependencies: Dependencies): StartTurn => {
  const { conversations, idempotencyKeys, deliveredReplies, turnQueue, replies, replyTimeoutMs, logger } = dependencies;
  const { mustEnd, onRepeated, onBusy, onQuotaExceeded, orUnavailable, quotas, tracing } = dependencies;
  /**
   * The requests in flight in this process, by session. If a session has only one, its turn is most likely the head of the
   * pending turns.
   */
  const inFlight = new Map<string, number>();
  const storedReply = storedReplyOf(conversations);
  const prepareTurn = createPrepareTurn({ conversations, idempotencyKeys, replies, replyTimeoutMs });

  /**
   * Reserves the turn in its quotas. Returns the error that the caller gets if the turn is new, or null if there is no
   * quota.
   */
  const reserve = async (
    { quotas: wanted = [] }: TurnRequest,
    turn: NewTurn,
  ): Promise<Reservation | ApiError | null> =>
    wanted.length === 0 ? null : orUnavailable(quotas.reserve(wanted, turn));

  const accept = async (
    request: TurnRequest,
    turn: NewTurn,
    { watch, span }: { watch: (turnId: string) => void; span: TraceSpan },
  ): Promise<Known> => {
    const { assistant, idempotencyKey } = request;
    const reserved = await reserve(request, turn);
    const isUsedUp = reserved instanceof ApiError;
    const accepted = await conversations
      .accept(turn, {
        windowMs: assistant.dedupeWindowSeconds * 1000,
        readBack: needsConversationId(request) || (inFlight.get(turn.key) ?? 0) > 1,
        watch,
        onlyRepeated: isUsedUp,
        span,
      })
      .catch((cause: unknown) => {
        // Only with this error it is certain that nothing was accepted.
        if (!isUsedUp && cause instanceof ApiError && cause.code === 'unavailable') reserved?.settle(false);
        throw cause;
      });
    if (!isUsedUp) reserved?.settle(isNewTurn(accepted, turn));
    if (accepted.kind === 'refused') {
      onQuotaExceeded();
      throw reserved;
    }
    if (accepted.kind === 'busy') {
      onBusy();
      throw new ApiError('session_busy', { headers: { 'Retry-After': '1' } });
    }
    const repetition = repetitionOf(accepted);
    if (repetition) onRepeated(idempotencyKey === null ? repetition : 'keyed');
    const conversationId = conversationIdOf(accepted);
    if (idempotencyKey !== null && conversationId !== null)
      idempotencyKeys.bind(assistant.assistantId, idempotencyKey, conversationId);
    return accepted;
  };

  const start = async (request: TurnRequest, span: TraceSpan): Promise<StartedTurn> => {
    const startedAt = performance.now();
    // What waits for the reply names only these: the message of the request may have 32 KB, and thousands may wait.
    const { assistant, channel, sessionId, withSources = false, onProgress } = request;
    const { sessionKey } = assistant;
    const key = conversationKeyOf({ sessionKey, sessionId, playground: channel === 'playground' });
    /** What the request holds until it ends. */
    const held = new DisposableStack();
    const end = (): void => {
      held.dispose();
      span.end();
    };
    const waiters = new Map<string, Waiter>();
    const watch = (turnId: string): Waiter => {
      const waiter = waiters.get(turnId) ?? replies.watch({ key, turnId }, onProgress);
      waiters.set(turnId, waiter);
      return waiter;
    };
    held.defer(() => waiters.forEach((waiter) => waiter.cancel()));
    try {
      const passed = request.pass && (await within(tracing.step('gate', span.context), request.pass(key)));
      held.defer(() => passed?.leave());
      // If the turn is not accepted, the reserved key keeps its turn id for the retry.
      const turn = await orUnavailable(prepareTurn(request, key, span));
      addTo(inFlight, key, 1);
      held.defer(() => addTo(inFlight, key, -1));
      if (!request.async) watch(turn.turnId); // first, because the first one is answered at once
      passed?.follow(replies.watch({ key, turnId: turn.turnId }));
      const step = tracing.step('accept', span.context);
      const watching = request.async ? () => undefined : watch;
      const accepted = await within(step, accept(request, turn, { watch: watching, span: step }));
      span.note({ 'parley.accepted': accepted.kind });
      const stays = isInFlight(request, accepted);
      if (accepted.kind === 'accepted' && accepted.head) {
        const { assistantId } = request.assistant;
        const uncounted = stays && passed ? {} : { assistantId };
        // If the job is lost, a sweep adds it again.
        turnQueue.enqueue({ key, turnId: accepted.turnId, ...uncounted }, span);
      }
      if (stays) passed?.stay(accepted.head);
      else passed?.leave();
      if (request.async) end();
      const waitForReply = async (turnId: string): Promise<ChatResponse> => {
        const waiter = watch(turnId);
        waiter.arm();
        const left = replyTimeoutMs - (performance.now() - startedAt);
        const late = (): ApiError => new ApiError('reply_timeout');
        const answered = await withDeadline(waiter.reply, Math.max(0, left), { late, signal: mustEnd });
        const { reply, conversationId } = answered;
        const ms = Math.round(performance.now() - startedAt);
        logger.debug({ turnId, conversationId, ms, ...span.ids }, 'turn answered');
        return toResponse(reply, { conversationId, withSources });
      };
      const { turnId } = accepted.kind === 'replayed' ? accepted.turn : accepted;
      return {
        turnId,
        conversationId: conversationIdOf(accepted),
        replayed: accepted.kind !== 'accepted',
        response: async () => {
          if (accepted.kind !== 'replayed') return waitForReply(turnId);
          const reply = await orUnavailable(storedReply(accepted.conversation, accepted.turn));
          return toResponse(reply, { conversationId: accepted.conversation.conversationId, withSources });
        },
        delivered: () => deliveredReplies.mark({ key, turnId }),
        end,
      };
    } catch (cause) {
      held.dispose();
      throw cause;
    }
  };

  return async (request) => {
    const { assistant, channel, traceparent } = request;
    const attributes = { 'parley.assistant_id': assistant.assistantId, 'parley.channel': channel };
    const span = tracing.begin('turn', traceparent, { kind: 'server', attributes });
    const started = await orFailed(span, start(request, span));
    return { ...started, response: () => orFailed(span, started.response()) };
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

const waitFor = async (starting: Promise<StartedTurn>): Promise<Submitted> => {
  const { turnId, replayed, delivered, response, end } = await starting;
  try {
    return { response: await response(), turnId, replayed, delivered };
  } finally {
    end();
  }
};

const createSubmit =
  (startTurn: StartTurn): Submit =>
  (request) =>
    waitFor(startTurn(request));

type Counted = {
  onRepeated: (kind: Repetition) => void;
  onRefused: (limit: 'session' | 'quota' | 'overload') => void;
};

export type OpenTurns = { gate: Gate; startTurn: StartTurn; submit: Submit; readTurn: ReadTurn };

/** All that an API process has for turns: their gate, their starts, and those who wait. The lifecycle closes it. */
export const openTurns = async (
  { service, config, logger, lifecycle }: Module,
  { subscriber, onRepeated, onRefused }: Counted & { subscriber: RedisClient },
): Promise<OpenTurns> => {
  const { conversations, leases, partitions, publisher, mongoWatch } = service;
  const { timing } = config;
  const storedReply = storedReplyOf(conversations);
  const { isPending, findTurn } = conversations;
  const channel = `${partitions.tags[0]}:replies:${newToken()}`;
  const waited = { isPending, findTurn, storedReply, timing, logger };
  const replies = await openReplies({ subscriber, hear: publisher.hear, channel, ...waited });
  lifecycle.add('replies', replies, (opened) => opened.close());
  const quotas = lifecycle.add('quotas', createQuotas(service.allowances, logger), (opened) => opened.close());
  const startTurn = createStartTurn({
    ...service,
    quotas,
    replies,
    replyTimeoutMs: config.REPLY_TIMEOUT_MS,
    mustEnd: abortAfter(lifecycle.draining, timing.replyStopAfterMs, new ApiError('reply_timeout')),
    onRepeated,
    onBusy: () => onRefused('session'),
    onQuotaExceeded: () => onRefused('quota'),
    orUnavailable: mongoWatch.orUnavailable,
    logger,
  });
  return {
    gate: createGate({ onRefused: () => onRefused('overload'), logger }),
    startTurn,
    submit: createSubmit(startTurn),
    readTurn: createReadTurn({ conversations, leases, storedReply }),
  };
};
