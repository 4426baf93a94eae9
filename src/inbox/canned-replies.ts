import { type Connection, Schema } from 'mongoose';
import { serverDate } from '../process/clock.ts';
import { invalid, notFound } from '../process/errors.ts';
import { insertAtMost } from '../mongo/batches.ts';
import { collectionOf, type Indexed } from '../mongo/mongo.ts';
import { newId } from '../process/ids.ts';

const CANNED_REPLIES_MAX = 500;
const READ_BATCH = 20;

/** A text that operators of an assistant use again. Its placeholders are stored as written; the page fills them. */
export type CannedReply = {
  cannedReplyId: string;
  assistantId: string;
  title: string;
  content: string;
  createdAt: Date;
  updatedAt: Date;
};

type StoredCannedReply = Omit<CannedReply, 'cannedReplyId'> & { _id: string };
type CannedReplyInput = Pick<CannedReply, 'title' | 'content'>;

const cannedReplySchema = new Schema<StoredCannedReply>(
  {
    _id: { type: String, required: true },
    assistantId: { type: String, required: true },
    title: { type: String, required: true },
    content: { type: String, required: true },
    createdAt: { type: Date, required: true },
    updatedAt: { type: Date, required: true },
  },
  { collection: 'cannedReplies', versionKey: false, strictQuery: 'throw' },
);
cannedReplySchema.index({ assistantId: 1, title: 1 });

const toCannedReply = ({ _id, ...stored }: StoredCannedReply): CannedReply => ({ cannedReplyId: _id, ...stored });

export type CannedReplies = {
  models: Indexed[];

  /** The replies of an assistant, by title, in small parts, because together they may be a few MiB. */
  read: (assistantId: string) => AsyncGenerator<CannedReply[]>;

  get: (cannedReplyId: string) => Promise<CannedReply>;
  add: (assistantId: string, input: CannedReplyInput) => Promise<CannedReply>;
  update: (cannedReplyId: string, input: Partial<CannedReplyInput>) => Promise<CannedReply>;
  remove: (cannedReplyId: string) => Promise<void>;
};

export const createCannedReplies = (connection: Connection): CannedReplies => {
  const replies = connection.model<StoredCannedReply>('CannedReply', cannedReplySchema);
  const collection = collectionOf<StoredCannedReply>(replies);
  return {
    models: [replies],

    async *read(assistantId: string): AsyncGenerator<CannedReply[]> {
      const rows = collection.find({ assistantId }, { batchSize: READ_BATCH }).sort({ title: 1, _id: 1 });
      while (await rows.hasNext()) yield rows.readBufferedDocuments(READ_BATCH).map(toCannedReply);
    },

    get: async (cannedReplyId) => {
      const stored = await replies.findById(cannedReplyId).lean();
      if (!stored) throw notFound();
      return toCannedReply(stored);
    },

    add: async (assistantId, input) => {
      const tooMany = () =>
        invalid('title', 'too_many', `an assistant has at most ${CANNED_REPLIES_MAX} canned replies`);
      const now = serverDate();
      const stored = { _id: newId(), assistantId, ...input, createdAt: now, updatedAt: now };
      await insertAtMost({ collection, filter: { assistantId }, max: CANNED_REPLIES_MAX, tooMany }, stored);
      return toCannedReply(stored);
    },

    update: async (cannedReplyId, input) => {
      const update = { $set: { ...input, updatedAt: serverDate() } };
      const stored = await replies.findByIdAndUpdate(cannedReplyId, update, { returnDocument: 'after' }).lean();
      if (!stored) throw notFound();
      return toCannedReply(stored);
    },

    remove: async (cannedReplyId) => {
      const { deletedCount } = await replies.deleteOne({ _id: cannedReplyId });
      if (deletedCount === 0) throw notFound();
    },
  };
};
