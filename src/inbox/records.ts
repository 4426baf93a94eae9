import type { Connection } from 'mongoose';
import type { StoredConversation, Tag } from '../conversations/conversation.ts';
import type { HistoryPosition, NumberedMessage } from '../conversations/history.ts';
import type { ConversationStore } from '../conversations/store.ts';
import { LIST_MAX, pendingRowsOf } from '../events/list.ts';
import type { DeliveryStore } from '../events/store.ts';
import { type ListedDelivery, toDeliveryRow } from '../events/view.ts';
import { inBatches, insertAtMost } from '../platform/mongo/batches.ts';
import { collectionOf, DURABLE, type Indexed, schemaOf } from '../platform/mongo/mongo.ts';
import { serverDate } from '../platform/process/clock.ts';
import { invalid, notFound, orNotFound } from '../platform/process/errors.ts';
import { newId } from '../platform/process/ids.ts';
import type { EventKind } from '../conversations/event.ts';

const READ_BATCH = 20;

/** The ids of a conversation's parts begin with the conversation's id. `;` is the character after `:`. */
const partsOf = (conversationId: string) => ({ _id: { $gt: `${conversationId}:`, $lt: `${conversationId};` } });

const NOTES_MAX = 500;

export type Note = { noteId: string; operatorId: string; content: string; createdAt: Date };

type StoredNote = Omit<Note, 'noteId'> & { _id: string };

const noteSchema = schemaOf<StoredNote>('notes');

const noteIdOf = (conversationId: string, noteId: string): string => `${conversationId}:${noteId}`;

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

const createNotes = (connection: Connection): Notes => {
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
      await insertAtMost(bound, { _id: noteIdOf(conversationId, noteId), ...stored });
      return note;
    },

    find: async (conversationId, noteId) => {
      const stored = await notes.findOne({ _id: noteIdOf(conversationId, noteId) });
      return stored && toNote(stored);
    },

    remove: async (conversationId, noteId) => {
      await notes.deleteOne({ _id: noteIdOf(conversationId, noteId) }, { writeConcern: DURABLE });
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

/** The tags that an assistant's operators choose from, with their colours. They may use other tags too. */
type StoredManagedTags = { _id: string; tags: Tag[] };

const managedTagsSchema = schemaOf<StoredManagedTags>('managedTags');

export type ManagedTags = {
  models: Indexed[];
  list: (assistantId: string) => Promise<Tag[]>;
  replace: (assistantId: string, tags: Tag[]) => Promise<Tag[]>;
  findColor: (assistantId: string, tag: string) => Promise<string | null>;
};

const createManagedTags = (connection: Connection): ManagedTags => {
  const lists = connection.model<StoredManagedTags>('ManagedTags', managedTagsSchema);
  const list = async (assistantId: string): Promise<Tag[]> => {
    const stored = await lists.findById(assistantId).lean();
    return (stored?.tags ?? []).map(({ tag, color }) => ({ tag, color: color ?? null }));
  };
  return {
    models: [lists],
    list,

    replace: async (assistantId, tags) => {
      await lists.updateOne({ _id: assistantId }, { $set: { tags } }, { upsert: true });
      return tags;
    },

    findColor: async (assistantId, tag) => (await list(assistantId)).find((one) => one.tag === tag)?.color ?? null,
  };
};

const CANNED_REPLIES_MAX = 500;

/** A text that operators of an assistant use again. Its placeholders are stored as written; the page fills them. */
type CannedReply = {
  cannedReplyId: string;
  assistantId: string;
  title: string;
  content: string;
  createdAt: Date;
  updatedAt: Date;
};

type StoredCannedReply = Omit<CannedReply, 'cannedReplyId'> & { _id: string };
type CannedReplyInput = Pick<CannedReply, 'title' | 'content'>;

const cannedReplySchema = schemaOf<StoredCannedReply>('cannedReplies');
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

const createCannedReplies = (connection: Connection): CannedReplies => {
  const replies = connection.model<StoredCannedReply>('CannedReply', cannedReplySchema);
  const collection = collectionOf<StoredCannedReply>(replies);
  return {
    models: [replies],

    async *read(assistantId: string): AsyncGenerator<CannedReply[]> {
      const rows = collection.find({ assistantId }, { batchSize: READ_BATCH }).sort({ title: 1, _id: 1 });
      while (await rows.hasNext()) yield rows.readBufferedDocuments(READ_BATCH).map(toCannedReply);
    },

    get: async (cannedReplyId) => {
      return toCannedReply(orNotFound(await replies.findById(cannedReplyId).lean()));
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
      return toCannedReply(orNotFound(stored));
    },

    remove: async (cannedReplyId) => {
      const { deletedCount } = await replies.deleteOne({ _id: cannedReplyId });
      if (deletedCount === 0) throw notFound();
    },
  };
};

/** The last message that an operator has read in a conversation. */
type StoredReadPosition = { _id: string; seq: number };

const readPositionSchema = schemaOf<StoredReadPosition>('readPositions');

const idOf = (conversationId: string, operatorId: string): string => `${conversationId}:${operatorId}`;

export type ReadPositions = {
  models: Indexed[];

  /** Moves an operator's position forward, never back, and returns it. */
  advance: (conversationId: string, operatorId: string, seq: number) => Promise<number>;

  /** How far the operator has read in each of these conversations. */
  find: (conversationIds: string[], operatorId: string) => Promise<Map<string, number>>;

  /** The positions of all operators in a conversation. */
  list: (conversationId: string) => Promise<{ operatorId: string; seq: number }[]>;

  erase: (conversationId: string, until?: AbortSignal) => Promise<void>;
};

const createReadPositions = (connection: Connection): ReadPositions => {
  const model = connection.model<StoredReadPosition>('ReadPosition', readPositionSchema);
  const positions = collectionOf<StoredReadPosition>(model);
  return {
    models: [model],

    advance: async (conversationId, operatorId, seq) => {
      const moved = await positions.findOneAndUpdate(
        { _id: idOf(conversationId, operatorId) },
        { $max: { seq } },
        { upsert: true, returnDocument: 'after' },
      );
      return moved?.seq ?? seq;
    },

    find: async (conversationIds, operatorId) => {
      if (conversationIds.length === 0) return new Map();
      const ids = new Map(conversationIds.map((id) => [idOf(id, operatorId), id]));
      const rows = await positions.find({ _id: { $in: [...ids.keys()] } }).toArray();
      return new Map(rows.map(({ _id, seq }) => [ids.get(_id) ?? '', seq]));
    },

    list: async (conversationId) => {
      const rows = await positions.find(partsOf(conversationId)).toArray();
      return rows.map(({ _id, seq }) => ({ operatorId: _id.slice(conversationId.length + 1), seq }));
    },

    erase: (conversationId, until) =>
      inBatches({ collection: positions, filter: partsOf(conversationId), ...(until && { until }) }, (some) =>
        positions.deleteMany(some),
      ),
  };
};

/** What operators store outside a conversation's document. An erasure deletes what belongs to the conversation. */
export type InboxRecords = {
  models: Indexed[];
  readPositions: ReadPositions;
  notes: Notes;
  cannedReplies: CannedReplies;
  managedTags: ManagedTags;
  eraseConversation: (conversationId: string, until?: AbortSignal) => Promise<void>;
};

export const createInboxRecords = (connection: Connection): InboxRecords => {
  const readPositions = createReadPositions(connection);
  const notes = createNotes(connection);
  const cannedReplies = createCannedReplies(connection);
  const managedTags = createManagedTags(connection);
  return {
    models: [...readPositions.models, ...notes.models, ...cannedReplies.models, ...managedTags.models],
    readPositions,
    notes,
    cannedReplies,
    managedTags,
    eraseConversation: async (conversationId, until) => {
      await notes.erase(conversationId, until);
      await readPositions.erase(conversationId, until);
    },
  };
};

/** A message without its text, which may be long. */
type MessageStub = Pick<NumberedMessage, 'seq' | 'role' | 'createdAt'>;

type Dependencies = { conversations: ConversationStore; deliveries: DeliveryStore };

const ROLES_OF: Partial<Record<EventKind, readonly NumberedMessage['role'][]>> = {
  'message.received': ['user'],
  'conversation.escalated': ['system'],
  'message.sent': ['assistant', 'operator', 'system'],
};

/**
 * Finds the messages of events. An event does not contain the number of its message, but it happened at the time of
 * the message. Several events of one kind and time belong to the messages in their order.
 */
const createFindSeq = (messages: MessageStub[]) => {
  const used = new Set<MessageStub>();
  return (event: EventKind, at: Date): number | null => {
    const roles = ROLES_OF[event];
    const message =
      roles &&
      messages.find(
        (one) =>
          !(event === 'message.sent' && used.has(one)) &&
          roles.includes(one.role) &&
          one.createdAt.getTime() === at.getTime(),
      );
    if (message && event === 'message.sent') used.add(message);
    return message?.seq ?? null;
  };
};

/** What every operator may see of a delivery. The URL and the bodies are for owners. */
const toStub = ({ deliveryId, endpointId, outcome, errorKind, status }: ListedDelivery) => ({
  deliveryId,
  endpointId,
  outcome,
  errorKind,
  status,
});

/** By the time of the event. An event that was sent again keeps its place. */
const oldestFirst = (a: ListedDelivery, b: ListedDelivery): number =>
  a.happenedAt.getTime() - b.happenedAt.getTime() || a.createdAt.getTime() - b.createdAt.getTime();

/** The events of a conversation with their deliveries, newest first: the newest events, with 200 deliveries together. */
export const createListEvents =
  ({ conversations, deliveries }: Dependencies) =>
  async (conversation: StoredConversation) => {
    const { _id: key, assistantId, conversationId, seq } = conversation;
    // The outbox is read before the records. So an event that is claimed between the two reads is found in both.
    const outbox = await conversations.outbox.read(key);
    const from = { seq: Math.max(0, seq - LIST_MAX), index: Number.MAX_SAFE_INTEGER, waitingAfter: null };
    const records = await deliveries.listRecords({
      assistantId,
      conversationId,
      newestEvents: true,
      limit: LIST_MAX,
    });
    const messages: MessageStub[] = [];
    for await (const page of readAllMessages(conversations, conversation, from))
      messages.push(...page.map(({ seq: number, role, createdAt }) => ({ seq: number, role, createdAt })));
    const claimed = new Set(records.deliveries.map(({ _id }) => _id));
    const own = outbox?.conversationId === conversationId ? pendingRowsOf(outbox) : [];
    const rows = [
      ...records.deliveries.map(toDeliveryRow),
      ...own.filter(({ deliveryId }) => !claimed.has(deliveryId)),
    ].toSorted(oldestFirst);
    const findSeq = createFindSeq(messages);
    return [...Map.groupBy(rows.slice(-LIST_MAX), ({ eventId }) => eventId)]
      .map(([eventId, some]) => {
        const [{ event, happenedAt: at }] = some as [ListedDelivery]; // a group has at least one row
        return { eventId, event, at, seq: findSeq(event, at), deliveries: some.map(toStub) };
      })
      .toSorted((a, b) => b.at.getTime() - a.at.getTime());
  };

/** A page is small, because each of its messages may have 8,000 characters. */
const PAGE = 50;

/** Reads all messages of a conversation from a position on, page by page. */
export async function* readAllMessages(
  { history }: Pick<ConversationStore, 'history'>,
  conversation: StoredConversation,
  start: HistoryPosition | null = null,
): AsyncGenerator<NumberedMessage[]> {
  let from = start;
  do {
    const page: Awaited<ReturnType<typeof history.readPage>> = await history.readPage(conversation, {
      limit: PAGE,
      ...(from && { from }),
    });
    yield page.messages;
    from = page.next;
  } while (from);
}
