import type { Connection } from 'mongoose';
import { conversationModels, type OutboxEvent, type StoredConversation } from '../conversations/conversation.ts';
import { serverNow } from '../platform/clock.ts';
import { collectionOf, createReader, createStoreBatcher, updateAndRead, updateMany } from '../platform/mongo.ts';
import { BACKLOG_MAX, pendingOf, type Outbox, OUTBOX_FIELDS, type StaleOutbox } from './outbox.ts';
import { type Pull, pullStatements } from './pull.ts';

/**
 * How many events to read after a pull. Two events are enough to find the next event in most cases, without reading a
 * long stream each time.
 */
const LOOK_AHEAD = 2;
const NEXT_FIELDS = { ...OUTBOX_FIELDS, outbox: { $slice: LOOK_AHEAD } };
const STUB_FIELDS = Object.fromEntries(
  [
    'conversationId',
    ...['opening', 'outbox'].flatMap((at) => ['eventId', 'at', 'endpoints'].map((name) => `${at}.${name}`)),
  ].map((path) => [path, 1]),
);

export type FindStale = {
  olderThanMs: number;
  exclude: string[];
  limit: number;
  /**
   * Streams whose first event is older than this are found even if their endpoint is excluded. Streams that exceed the
   * backlog limit are also always found.
   */
  expiredMs?: number;
};

/** Reads and writes the part of a conversation's document that deliveries use. */
export const createOutboxStore = (connection: Connection) => {
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  /** The outbox of a conversation, or null if the conversation is gone. Reads are batched. */
  const read: (key: string) => Promise<Outbox | null> = createReader(conversations, OUTBOX_FIELDS);
  const readNext: typeof read = createReader(conversations, NEXT_FIELDS);

  /**
   * Pulls and reads in one round trip. Returns null if the pull needs two statements or matches no document; the caller
   * then updates and reads separately.
   */
  const pullAndRead = async (item: Pull): Promise<Outbox | null> => {
    const [statement, ...others] = pullStatements(item);
    if (!statement || others.length > 0) return null;
    return updateAndRead<Outbox>(connection, 'conversations', { ...statement, fields: NEXT_FIELDS });
  };

  const pull = createStoreBatcher<Pull, Outbox | null>(async (items) => {
    const [first] = items;
    const pulled = first && items.length === 1 ? await pullAndRead(first) : null;
    if (pulled) return [pulled];
    await updateMany(connection, 'conversations', items.flatMap(pullStatements));
    return Promise.all(items.map(({ key }) => readNext(key)));
  });

  /** True if all events that were read are for other endpoints and the outbox may have more events. */
  const mayHideNext = (next: Outbox, endpointId: string): boolean =>
    (next.outbox?.length ?? 0) >= LOOK_AHEAD && pendingOf(next, endpointId).length === 0;

  return {
    read,

    /**
     * Removes ended events from their stream. Call this only after MongoDB has acknowledged their outcomes. Returns the
     * beginning of the changed outbox, so that the caller can choose the next event. With `readWhole`, returns the
     * whole changed outbox.
     */
    pullEnded: async (
      outbox: Outbox,
      endpointId: string,
      ended: OutboxEvent[],
      { readWhole = false }: { readWhole?: boolean } = {},
    ): Promise<Outbox | null> => {
      const { _id: key, conversationId, opening } = outbox;
      const first = ended.filter(({ eventId }) => eventId === opening?.eventId);
      const rest = ended.filter(({ eventId }) => eventId !== opening?.eventId);
      const stream = { key, conversationId, endpointId };
      const [, after] = await Promise.all([
        first.length > 0 && rest.length > 0 ? pull({ ...stream, ended: first, opening: true }) : null,
        rest.length > 0
          ? pull({ ...stream, ended: rest, opening: false })
          : pull({ ...stream, ended: first, opening: true }),
      ]);
      return after && (readWhole || mayHideNext(after, endpointId)) ? read(key) : after;
    },

    /**
     * Conversations with a pending event older than `olderThanMs` by MongoDB's clock, oldest first. `exclude` lists
     * endpoints whose streams are suspended. A conversation whose events are all for these endpoints is left out.
     */
    findStale: async ({ olderThanMs, exclude, limit, expiredMs }: FindStale): Promise<StaleOutbox[]> => {
      const now = serverNow();
      const older = (ms: number) => ({ $lt: new Date(now - ms) });
      const others = { $elemMatch: { $nin: exclude } };
      const due = <Condition>(wanted: Condition, ...anyway: Condition[]): { $or?: Condition[] } =>
        exclude.length === 0 ? {} : { $or: [wanted, ...anyway] };
      const expired = (path: string) => (expiredMs === undefined ? [] : [{ [path]: older(expiredMs) }]);
      const [openings, outboxes] = await Promise.all([
        conversations
          .find(
            {
              opening: { $exists: true },
              'opening.at': older(olderThanMs),
              ...due<object>({ 'opening.endpoints': others }, ...expired('opening.at')),
            },
            { projection: STUB_FIELDS },
          )
          .hint('openings')
          .limit(limit)
          .toArray(),
        conversations
          .find(
            {
              'outbox.0': { $exists: true },
              'outbox.0.at': older(olderThanMs),
              ...due<object>(
                { outbox: { $elemMatch: { endpoints: others } } },
                { [`outbox.${BACKLOG_MAX}`]: { $exists: true } },
                ...expired('outbox.0.at'),
              ),
            },
            { projection: STUB_FIELDS },
          )
          .hint('outbox_heads')
          .limit(limit)
          .toArray(),
      ]);
      return [...new Map([...openings, ...outboxes].map((row) => [row._id, row as StaleOutbox])).values()];
    },

    /** Conversations with pending events for this endpoint. */
    findKeysOf: async (endpointId: string, limit: number): Promise<string[]> => {
      const options = { projection: { _id: 1 } };
      const [openings, outboxes] = await Promise.all([
        conversations
          .find({ opening: { $exists: true }, 'opening.endpoints': endpointId }, options)
          .hint('openings')
          .limit(limit)
          .toArray(),
        conversations
          .find({ 'outbox.0': { $exists: true }, 'outbox.endpoints': endpointId }, options)
          .hint('outbox_heads')
          .limit(limit)
          .toArray(),
      ]);
      return [...new Set([...openings, ...outboxes].map(({ _id }) => _id))];
    },
  };
};

export type OutboxStore = ReturnType<typeof createOutboxStore>;
