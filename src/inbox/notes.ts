import { type Connection, Schema } from 'mongoose';
import { serverDate } from '../platform/process/clock.ts';
import { invalid } from '../platform/process/errors.ts';
import { newId } from '../platform/process/ids.ts';
import { collectionOf, DURABLE, type Indexed } from '../platform/mongo/mongo.ts';
import { inBatches, insertAtMost } from '../platform/mongo/batches.ts';

/** The ids of a conversation's parts begin with the conversation's id. `;` is the character after `:`. */
export const partsOf = (conversationId: string) => ({ _id: { $gt: `${conversationId}:`, $lt: `${conversationId};` } });

const NOTES_MAX = 500;
const READ_BATCH = 20;

export type Note = { noteId: string; operatorId: string; content: string; createdAt: Date };

type StoredNote = Omit<Note, 'noteId'> & { _id: string };

const noteSchema = new Schema<StoredNote>(
  {
    _id: { type: String, required: true },
    operatorId: { type: String, required: true },
    content: { type: String, required: true },
    createdAt: { type: Date, required: true },
  },
  { collection: 'notes', versionKey: false },
);

const idOf = (conversationId: string, noteId: string): string => `${conversationId}:${noteId}`;

/** Notes that operators write about a conversation. Visitors and callers never see them. */
export type Notes = {
  models: Indexed[];
  add: (conversationId: string, note: Pick<Note, 'operatorId' | 'content'>) => Promise<Note>;
  find: (conversationId: string, noteId: string) => Promise<Note | null>;
  remove: (conversationId: string, noteId: string) => Promise<void>;

  /** The notes of a conversation, oldest first, in small parts, because together they may have some MiB. */
  read: (conversationId: string) => AsyncGenerator<Note[]>;

  erase: (conversationId: string, until?: AbortSignal) => Promise<void>;
};

export const createNotes = (connection: Connection): Notes => {
  const model = connection.model<StoredNote>('Note', noteSchema);
  const notes = collectionOf<StoredNote>(model);
  const toNote = ({ _id, operatorId, content, createdAt }: StoredNote): Note => ({
    noteId: _id.slice(_id.indexOf(':') + 1),
    operatorId,
    content,
    createdAt,
  });

  return {
    models: [model],

    add: async (conversationId, { operatorId, content }) => {
      const note = { noteId: newId(), operatorId, content, createdAt: serverDate() };
      const { noteId, ...stored } = note;
      const tooMany = () => invalid('content', 'too_many', `a conversation has at most ${NOTES_MAX} notes`);
      const bound = { collection: notes, filter: partsOf(conversationId), max: NOTES_MAX, tooMany };
      await insertAtMost(bound, { _id: idOf(conversationId, noteId), ...stored });
      return note;
    },

    find: async (conversationId, noteId) => {
      const stored = await notes.findOne({ _id: idOf(conversationId, noteId) });
      return stored && toNote(stored);
    },

    remove: async (conversationId, noteId) => {
      await notes.deleteOne({ _id: idOf(conversationId, noteId) }, { writeConcern: DURABLE });
    },

    async *read(conversationId: string): AsyncGenerator<Note[]> {
      const rows = notes.find(partsOf(conversationId), { batchSize: READ_BATCH }).sort({ createdAt: 1, _id: 1 });
      while (await rows.hasNext()) yield rows.readBufferedDocuments(READ_BATCH).map(toNote);
    },

    erase: (conversationId, until) =>
      inBatches({ collection: notes, filter: partsOf(conversationId), ...(until && { until }) }, (some) =>
        notes.deleteMany(some, { writeConcern: DURABLE }),
      ),
  };
};
