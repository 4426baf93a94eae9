import { type Connection, Schema } from 'mongoose';

/** At most this many groups of an assistant are kept. For a new one, the rarest is dropped, of those the oldest. */
export const MAX_GROUPS = 500;
export const MAX_EXAMPLES = 5;

export type MissExample = { conversationId: string; question: string; at: Date };
export type MissAnswer = { conversationId: string; content: string; at: Date };

/** A group of questions with the same meaning that the assistant could not answer. */
export type StoredMiss = {
  _id: string;
  assistantId: string;
  /** The question that stands for the group, and the conversation that it comes from. */
  question: string;
  conversationId: string;
  language: string | null;
  /** The folded words of the question, for grouping without a model. */
  words: string[];
  /** The question's vector as little-endian float32, and its model. Null until a model is available. */
  vector: Buffer | null;
  model: string | null;
  count: number;
  firstAt: Date;
  lastAt: Date;
  /** The latest questions of the group. */
  examples: MissExample[];
  /** What an operator wrote after one of the questions. */
  answer: MissAnswer | null;
  /** A dismissed group stays, so that its questions make no new group. A taught one opens again with a later miss. */
  state: 'open' | 'dismissed' | 'taught';
  taughtAt?: Date;
  entryId?: string;
};

const schema = new Schema<StoredMiss>(
  { _id: { type: String, required: true } },
  { collection: 'misses', versionKey: false, strict: false },
);
schema.index({ assistantId: 1 });
// The conversations whose text a group holds, for their erasure.
schema.index({ conversationId: 1 });
schema.index({ 'examples.conversationId': 1 });
schema.index({ 'answer.conversationId': 1 });

export const missModel = (connection: Connection) => connection.model<StoredMiss>('Miss', schema);
