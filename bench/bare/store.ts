import { mongo } from 'mongoose';

/**
 * With MONGODB_URL, the baseline is durable: one insert when a turn is accepted and one update with its reply, each in
 * the journal before it counts, and of the size of Parley's own. It keeps no promise beside that.
 */
type Stored = {
  _id: string;
  assistantId: string;
  sessionId: string;
  status: string;
  createdAt: Date;
  updatedAt: Date;
  waiting: object[];
  texts: Record<string, object[]>;
  recent: object[];
};

const url = process.env.MONGODB_URL;
const client = url === undefined ? null : await new mongo.MongoClient(url, { maxPoolSize: 32 }).connect();
const turns = client?.db().collection<Stored>('bare');
const DURABLE = { writeConcern: { w: 'majority', j: true } } as const;

export const storeTurn = async (id: string, { session_id, message }: { session_id: string; message: string }) => {
  const now = new Date();
  const waiting = [
    { turnId: id, messageId: id, message, language: 'en', acceptedAt: now, queuedAt: now, replyTo: [id] },
  ];
  const usual = { assistantId: id, sessionId: session_id, status: 'open', createdAt: now, updatedAt: now };
  await turns?.insertOne({ _id: id, ...usual, waiting, texts: {}, recent: [] }, DURABLE);
};

export const storeReply = async (id: string, { message, reply }: { message: string; reply: string }) => {
  const now = new Date();
  const about = { turnId: id, messageId: id, language: 'en', createdAt: now };
  const texts = [
    { role: 'user', content: message, ...about },
    {
      role: 'assistant',
      content: reply,
      suggestedActions: [],
      ...about,
      why: { engine: 'bare', kind: 'answer', ms: 1 },
    },
  ];
  const recent = { turnId: id, messageId: id, replyMessageId: id, outcome: 'answered', seq: 1, finishedAt: now };
  const change = { $set: { 'texts.1': texts, waiting: [], updatedAt: now }, $push: { recent } };
  await turns?.updateOne({ _id: id }, change, DURABLE);
};
