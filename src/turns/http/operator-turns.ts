import type { Job } from 'bullmq';
import * as z from 'zod';
import { type RateLimiter, rateLimitHeaders } from '../../assistants/rate-limit.ts';
import type { AssistantStore } from '../../assistants/store.ts';
import { STREAM, wantsStream } from './turn-routes.ts';
import { CHANNELS, type RecentTurn, type StoredConversation } from '../../conversations/conversation.ts';
import type { ConversationStore, FoundTurn, TurnConversation } from '../../conversations/store.ts';
import { pendingRowsOf } from '../../events/list.ts';
import type { DeliveryStore } from '../../events/store.ts';
import { toDeliveryRow } from '../../events/view.ts';
import { notFound } from '../../platform/process/errors.ts';
import type { PartitionedQueue } from '../../platform/redis/queue.ts';
import type { TurnLeases } from '../leases.ts';
import type { TurnsJob } from '../queue.ts';
import type { DeliveredReplies } from '../waiters.ts';
import type { Submit } from '../start-turn.ts';
import type { StreamTurn } from '../stream.ts';
import { ChatRequest, ChatResponse, SessionId } from '../turn.ts';
import { EventKind } from '../../conversations/event.ts';
import { DeliveryRow } from '../../events/http/deliveries.ts';
import { type Handled, handled, operation, time, uuid } from '../../operators/operation.ts';

const SESSION_MAX = 200;

/**
 * The session id in the playground. It contains the operator's id, so that two operators who choose the same id get
 * different sessions.
 */
const ownSession = (operatorId: string, sessionId: string): string => `${operatorId}:${sessionId}`;

export const isPlaygroundOf = (
  operatorId: string,
  { channel, sessionId }: Pick<StoredConversation, 'channel' | 'sessionId'>,
): boolean => channel === 'playground' && sessionId.startsWith(ownSession(operatorId, ''));

export const playgroundOperations = {
  turn: operation({
    method: 'post',
    path: '/assistants/:id/playground',
    lasts: true,
    id: 'playgroundTurn',
    summary: 'Try the assistant; no events are sent',
    audience: 'operators',
    resource: 'assistant',
    body: z.object({
      sessionId: SessionId.refine((value) => value.length <= SESSION_MAX, `must be at most ${SESSION_MAX} characters`),
      message: ChatRequest.shape.message,
      language: ChatRequest.shape.language,
    }),
    answer: ChatResponse,
    stream: STREAM,
    limited: true,
    errors: ['rate_limited', 'session_busy', 'reply_timeout'],
  }),
};

type Dependencies = {
  assistants: Pick<AssistantStore, 'getAssistant'>;
  submit: Submit;
  streamTurn: StreamTurn;
  rateLimiter: Pick<RateLimiter, 'forPlayground'>;
};

/** Playground operations add no line to the audit trail, because only the operator sees the conversation. */
export const playgroundRoutes = ({ assistants, submit, streamTurn, rateLimiter }: Dependencies): Handled[] => [
  handled(playgroundOperations.turn, async ({ params: { id = '' }, body, operator, req, res }) => {
    res.set(rateLimitHeaders(await rateLimiter.forPlayground(operator.operatorId)));
    const { sessionId, message, language = null } = body;
    req.body = undefined; // the turn may wait for seconds
    const turn = {
      assistant: await assistants.getAssistant(id),
      channel: 'playground' as const,
      sessionId: ownSession(operator.operatorId, sessionId),
      message,
      language,
      idempotencyKey: null,
    };
    if (wantsStream(req)) {
      await streamTurn(turn, req, res);
      return null;
    }
    const { response, delivered } = await submit(turn);
    res.on('finish', delivered);
    return response;
  }),
];

type TurnTraceDependencies = {
  conversations: Pick<ConversationStore, 'findTurn' | 'history' | 'outbox'>;
  deliveries: DeliveryStore;
  leases: TurnLeases;
  deliveredReplies: DeliveredReplies;
  queues: { turns: PartitionedQueue<TurnsJob> };
};

const JOBS_LOOKED_AT = 2_500;

export const isOthersPlayground = (
  operatorId: string,
  conversation: Pick<StoredConversation, 'channel' | 'sessionId'>,
): boolean => conversation.channel === 'playground' && !isPlaygroundOf(operatorId, conversation);

const timeOrNull = (ms: number | undefined): Date | null => (ms === undefined ? null : new Date(ms));

/** The job of a turn. Null does not mean that the job never existed, because jobs are removed after use. */
const findJob = async ({ queues }: TurnTraceDependencies, key: string, turnId: string) => {
  const jobs = await queues.turns
    .of(key)
    .getJobs(['active', 'waiting', 'prioritized', 'delayed', 'completed', 'failed'], 0, JOBS_LOOKED_AT);
  // A job is undefined if it was removed after the ids were listed.
  const job = jobs.find((one: Job<TurnsJob> | undefined) => one?.data.turns.some((turn) => turn.turnId === turnId));
  if (!job) return null;
  return {
    jobId: job.id ?? null,
    state: await job.getState(),
    addedAt: new Date(job.timestamp),
    startedAt: timeOrNull(job.processedOn),
    endedAt: timeOrNull(job.finishedOn),
  };
};

type Visitor = { messageId: string; seq: number | null; content: string; language: string | null; acceptedAt: Date };
type ReplyShown = { messageId: string; seq: number; content: string; createdAt: Date; why?: Record<string, unknown> };

const findVisitor = async ({ conversations }: TurnTraceDependencies, found: FoundTurn): Promise<Visitor | null> => {
  if (found.state === 'pending') {
    const { messageId, seq = null, message: content, language, acceptedAt } = found.turn;
    return { messageId, seq, content, language, acceptedAt };
  }
  const message = await conversations.history.findMessage(found.conversation, found.turn);
  if (!message) return null;
  const { messageId, content, language, createdAt: acceptedAt } = message;
  return { messageId, seq: found.turn.seq, content, language, acceptedAt };
};

const findReply = async (
  { conversations }: TurnTraceDependencies,
  conversation: TurnConversation,
  { replySeq: seq, replyMessageId: messageId }: RecentTurn,
): Promise<ReplyShown | null> => {
  if (seq === undefined || messageId === undefined) return null;
  const message = await conversations.history.findMessage(conversation, { seq, messageId });
  if (!message) return null;
  const { content, createdAt, why } = message;
  return { messageId, seq, content, createdAt, ...(why && { why }) };
};

/**
 * Finds the events of a turn. Events do not contain the id of their turn, so they are found by their time: the time of
 * the turn's acceptance or, for a handoff, the time of its reply.
 */
const findEvents = async (
  { conversations, deliveries: store }: TurnTraceDependencies,
  { _id: key, conversationId }: TurnConversation,
  times: Date[],
) => {
  const outbox = await conversations.outbox.read(key);
  const records = await store.findHappenedAt(conversationId, times);
  const claimed = new Set(records.map(({ _id }) => _id));
  const pending = (outbox ? pendingRowsOf(outbox) : []).filter(
    ({ deliveryId, happenedAt }) =>
      !claimed.has(deliveryId) && times.some((time) => time.getTime() === happenedAt.getTime()),
  );
  const deliveries = [...records.map(toDeliveryRow).toReversed(), ...pending];
  return [...Map.groupBy(deliveries, ({ eventId }) => eventId).entries()].map(([eventId, some]) => ({
    eventId,
    event: some[0]?.event ?? null,
    happenedAt: some[0]?.happenedAt ?? null,
    deliveries: some,
  }));
};

const statusOf = (found: FoundTurn, leased: boolean): string => {
  if (found.state === 'finished') return found.turn.outcome;
  return found.head && leased ? 'answering' : 'accepted';
};

/**
 * Everything that is known about a turn, in order of time. Only the operator of a playground conversation can see its
 * turns.
 */
const readTurnTrace = async (dependencies: TurnTraceDependencies, turnId: string, operatorId: string) => {
  const found = await dependencies.conversations.findTurn(turnId);
  if (!found || isOthersPlayground(operatorId, found.conversation)) throw notFound();
  const { conversation } = found;
  const { _id: key, conversationId, assistantId, sessionId, channel } = conversation;
  const [message, reply, job, leased, delivered] = await Promise.all([
    findVisitor(dependencies, found),
    found.state === 'finished' ? findReply(dependencies, conversation, found.turn) : null,
    findJob(dependencies, key, turnId),
    dependencies.leases.findLeased([{ key, turnId }]),
    dependencies.deliveredReplies.find([{ key, turnId }]),
  ]);
  const times = [message?.acceptedAt, reply?.createdAt].filter((time) => time !== undefined);
  return {
    turnId,
    conversationId,
    assistantId,
    sessionId,
    channel,
    status: statusOf(found, leased.has(turnId)),
    waitsUntil: (found.state === 'pending' && found.turn.quick?.until) || null,
    mergedInto: (found.state === 'finished' && found.turn.mergedInto) || null,
    acceptedAt: message?.acceptedAt ?? null,
    ms: message && reply ? reply.createdAt.getTime() - message.acceptedAt.getTime() : null,
    callerGotReply: delivered.has(turnId),
    message,
    job,
    reply,
    events: await findEvents(dependencies, conversation, times),
  };
};

const TurnTraceView = z
  .object({
    turnId: uuid,
    conversationId: uuid,
    assistantId: uuid,
    sessionId: z.string(),
    channel: z.enum(CHANNELS),
    status: z.string(),
    waitsUntil: time
      .nullable()
      .meta({ description: 'Pending: until then it waits for another message, to be answered together with it.' }),
    mergedInto: uuid.nullable().meta({ description: 'The later message whose reply answers this one too.' }),
    acceptedAt: time.nullable(),
    ms: z.number().nullable().meta({ description: 'From acceptance to the reply’s commit.' }),
    callerGotReply: z.boolean().meta({ description: 'True: the reply was written to a caller. Known for 11 minutes.' }),
    message: z
      .object({
        messageId: uuid,
        seq: z.int().nullable(),
        content: z.string(),
        language: z.string().nullable(),
        acceptedAt: time,
      })
      .nullable(),
    job: z
      .object({
        jobId: z.string().nullable(),
        state: z.string(),
        addedAt: time,
        startedAt: time.nullable(),
        endedAt: time.nullable(),
      })
      .nullable()
      .meta({ description: 'Null: no job is known any more.' }),
    reply: z
      .object({
        messageId: uuid,
        seq: z.int(),
        content: z.string(),
        createdAt: time,
        why: z.record(z.string(), z.unknown()).optional(),
      })
      .nullable(),
    events: z.array(
      z.object({
        eventId: uuid,
        event: EventKind.nullable(),
        happenedAt: time.nullable(),
        deliveries: z.array(DeliveryRow),
      }),
    ),
  })
  .meta({ id: 'TurnWay' });

export const turnOperations = {
  read: operation({
    method: 'get',
    path: '/turns/:id',
    id: 'getTurnWay',
    summary: 'Read the trace of a turn: acceptance, job, reply, events and deliveries, with their times',
    audience: 'owners',
    resource: 'turn',
    answer: TurnTraceView,
  }),
};

export const turnRoutes = (dependencies: TurnTraceDependencies): Handled[] => [
  handled(turnOperations.read, ({ params: { id = '' }, operator: { operatorId }, costly }) =>
    // This is costly, because the job of the turn is searched among thousands.
    costly(() => readTurnTrace(dependencies, id, operatorId)),
  ),
];
