import type { Job } from 'bullmq';
import type { RecentTurn, StoredConversation } from '../../../src/conversations/conversation.ts';
import type { FoundTurn } from '../../../src/conversations/store.ts';
import type { StoredDelivery } from '../../../src/deliveries/delivery.ts';
import type { TurnsJob } from '../../../src/turns/queue.ts';
import { pendingRowsOf } from '../../../src/deliveries/list.ts';
import { toDeliveryRow } from '../../../src/deliveries/view.ts';
import { nothingUnder } from '../failure.ts';
import type { Opened } from '../session.ts';

const JOBS_LOOKED_AT = 2_500;

const timeOrNull = (ms: number | undefined): Date | null => (ms === undefined ? null : new Date(ms));

/** Jobs are hints and are forgotten: null says no more than that none is known now. */
const findJob = async ({ queues }: Opened, key: string, turnId: string) => {
  const queue = queues.turns.of(key);
  const jobs = await queue.getJobs(
    ['active', 'waiting', 'prioritized', 'delayed', 'completed', 'failed'],
    0,
    JOBS_LOOKED_AT,
  );
  // Removed between the listing and the reading, one comes back as nothing.
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

const findVisitor = async ({ conversations }: Opened, found: FoundTurn, turnId: string): Promise<Visitor | null> => {
  const { conversation } = found;
  if (found.state === 'waiting') {
    const turn = conversation.waiting.find((one) => one.turnId === turnId);
    return turn ? { ...turn, seq: turn.seq ?? null, content: turn.message } : null;
  }
  const entry = await conversations.history.findEntry(conversation, found.turn.seq);
  const message = entry?.find(({ messageId }) => messageId === found.turn.messageId);
  return message ? { ...message, seq: found.turn.seq, acceptedAt: message.createdAt } : null;
};

const findReply = async (
  { conversations }: Opened,
  conversation: StoredConversation,
  turn: RecentTurn,
): Promise<ReplyShown | null> => {
  if (turn.replySeq === undefined) return null;
  const entry = await conversations.history.findEntry(conversation, turn.replySeq);
  const message = entry?.find(({ messageId }) => messageId === turn.replyMessageId);
  if (!message) return null;
  const { messageId, content, createdAt, why } = message;
  return { messageId, seq: turn.replySeq, content, createdAt, ...(why && { why }) };
};

/**
 * An event does not name its turn; but what a turn announces carries the time of its acceptance, or, for a handoff, of its
 * reply.
 */
const findEvents = async (opened: Opened, { _id: key, conversationId }: StoredConversation, times: Date[]) => {
  const outbox = await opened.deliveries.outbox.read(key);
  const records = await opened.mongo
    .collection<StoredDelivery>('deliveries')
    .find({ conversationId, happenedAt: { $in: times } })
    .sort({ createdAt: 1, _id: 1 })
    .toArray();
  const claimed = new Set(records.map(({ _id }) => _id));
  const pending = (outbox ? pendingRowsOf(outbox) : []).filter(
    ({ deliveryId, happenedAt }) =>
      !claimed.has(deliveryId) && times.some((time) => time.getTime() === happenedAt.getTime()),
  );
  const deliveries = [...records.map((row) => toDeliveryRow(row as StoredDelivery)), ...pending];
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

/** Everything that is known of a turn, in the order it happened. */
export const readTurn = async (opened: Opened, turnId: string) => {
  const found = await opened.conversations.findTurn(turnId);
  if (!found) throw nothingUnder('turn', turnId);
  const { conversation } = found;
  const { _id: key, conversationId, assistantId, sessionId, channel } = conversation;
  const [message, reply, job, leased, delivered] = await Promise.all([
    findVisitor(opened, found, turnId),
    found.state === 'finished' ? findReply(opened, conversation, found.turn) : null,
    findJob(opened, key, turnId),
    opened.leases.findLeased([{ key, turnId }]),
    opened.deliveredReplies.find([{ key, turnId }]),
  ]);
  const times = [message?.acceptedAt, reply?.createdAt].filter((time) => time !== undefined);
  return {
    turnId,
    conversationId,
    assistantId,
    sessionId,
    channel,
    status: statusOf(found, leased.has(turnId)),
    acceptedAt: message?.acceptedAt ?? null,
    /** From acceptance to the reply's commit. */
    ms: message && reply ? reply.createdAt.getTime() - message.acceptedAt.getTime() : null,
    /** A caller is known to have got the reply; known for 11 minutes. */
    callerGotReply: delivered.has(turnId),
    message,
    job,
    reply,
    events: await findEvents(opened, conversation, times),
  };
};
