import type { Connection } from 'mongoose';
import { type ConversationEvent, type ConversationEventKind } from '../events/event.ts';
import { createBatcher } from '../platform/batch.ts';
import { newId } from '../platform/ids.ts';
import { collectionOf, updateMany, type UpdateStatement } from '../platform/mongo.ts';
import { conversationModels, type OutboxEvent, type StoredConversation } from './conversation.ts';

/** More unsent events of one conversation to one endpoint than this: the oldest end `not_sent: backlog` (contract §6). */
export const BACKLOG_MAX = 500;

/** The events of one conversation to one endpoint: sent in order, one at a time. */
export type EventLine = { key: string; endpointId: string };

/** Endpoints that want an event of this kind at this moment. */
export type ReceiversOf = (event: ConversationEventKind) => string[];

/** An event as it enters the outbox; null where nobody wants it, for then no event is kept. */
export const newOutboxEvent = (event: ConversationEvent, receiversOf: ReceiversOf, at: Date): OutboxEvent | null => {
  const endpoints = receiversOf(event.event);
  if (endpoints.length === 0) return null;
  return { ...event, eventId: newId(), timestamp: Math.floor(at.getTime() / 1000), at, endpoints };
};

/** What a delivery needs to know of a conversation: who it is, and its events in order. */
export type Outbox = Pick<
  StoredConversation,
  '_id' | 'conversationId' | 'assistantId' | 'sessionId' | 'channel' | 'opening' | 'outbox'
>;

/** A line's unsent events, oldest first: `opening`, then those of the outbox that name the endpoint. */
export const lineOf = (
  { opening, outbox = [] }: Pick<Outbox, 'opening' | 'outbox'>,
  endpointId: string,
): OutboxEvent[] =>
  [...(opening ? [opening] : []), ...outbox].filter(({ endpoints }) => endpoints.includes(endpointId));

export const endpointsOf = ({ opening, outbox = [] }: Pick<Outbox, 'opening' | 'outbox'>): string[] => [
  ...new Set([...(opening?.endpoints ?? []), ...outbox.flatMap(({ endpoints }) => endpoints)]),
];

const PROJECTION = { conversationId: 1, assistantId: 1, sessionId: 1, channel: 1, opening: 1, outbox: 1 };

type Pull = { key: string; conversationId: string; eventId: string; endpointId: string };

/**
 * The endpoint leaves the event's entry, or the entry goes if it was the last: two statements whose filters exclude each
 * other, for the outbox and likewise for `opening`.
 */
const pullStatements = ({ key, conversationId, eventId, endpointId }: Pull): UpdateStatement[] => {
  const home = { _id: key, conversationId };
  const last = { eventId, endpoints: [endpointId] };
  const oneOfMany = { eventId, endpoints: endpointId, 'endpoints.1': { $exists: true } };
  const ofOpening = (match: Record<string, unknown>) =>
    Object.fromEntries(Object.entries(match).map(([name, value]) => [`opening.${name}`, value]));
  return [
    { q: { ...home, outbox: { $elemMatch: last } }, u: { $pull: { outbox: { eventId } } } },
    { q: { ...home, outbox: { $elemMatch: oneOfMany } }, u: { $pull: { 'outbox.$.endpoints': endpointId } } },
    { q: { ...home, ...ofOpening(last) }, u: { $unset: { opening: 1 } } },
    { q: { ...home, ...ofOpening(oneOfMany) }, u: { $pull: { 'opening.endpoints': endpointId } } },
  ];
};

/** The delivery side of the conversation document. */
export const createOutbox = (connection: Connection) => {
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  const readMany = async (keys: string[]): Promise<(Outbox | null)[]> => {
    const rows = await conversations.find({ _id: { $in: [...new Set(keys)] } }, { projection: PROJECTION }).toArray();
    const byKey = new Map(rows.map((row) => [row._id, row as Outbox]));
    return keys.map((key) => byKey.get(key) ?? null);
  };

  const pull = createBatcher<Pull, Outbox | null>(async (items) => {
    await updateMany(connection, 'conversations', items.flatMap(pullStatements));
    return readMany(items.map(({ key }) => key));
  });

  return {
    /** Batched; null where the conversation is gone. */
    read: createBatcher<string, Outbox | null>(readMany),

    /**
     * Takes an ended event off its line; call it only once its outcome is acknowledged. Answers with the outbox as it
     * stands after, from which the line's next event is chosen.
     */
    pullEnded: (ended: Pull): Promise<Outbox | null> => pull(ended),

    /**
     * Conversations with an unsent event older than `olderThanMs` by the server's clock, oldest first. `leaveOut`:
     * endpoints whose lines rest for a known reason; a conversation with nothing else to say is not found.
     */
    findStale: async ({
      olderThanMs,
      leaveOut,
      limit,
    }: {
      olderThanMs: number;
      leaveOut: string[];
      limit: number;
    }): Promise<Outbox[]> => {
      const older = (path: string) => ({ $expr: { $lt: [path, { $subtract: ['$$NOW', olderThanMs] }] } });
      const others = { $elemMatch: { $nin: leaveOut } };
      const [openings, outboxes] = await Promise.all([
        conversations
          .find(
            { opening: { $exists: true }, 'opening.endpoints': others, ...older('$opening.at') },
            { projection: PROJECTION },
          )
          .hint('openings')
          .limit(limit)
          .toArray(),
        conversations
          .find(
            {
              'outbox.0': { $exists: true },
              outbox: { $elemMatch: { endpoints: others } },
              'outbox.0.at': { $lt: new Date(Date.now() - olderThanMs) },
            },
            { projection: PROJECTION },
          )
          .hint('outbox_heads')
          .limit(limit)
          .toArray(),
      ]);
      return [...new Map([...openings, ...outboxes].map((row) => [row._id, row as Outbox])).values()];
    },
  };
};

export type OutboxStore = ReturnType<typeof createOutbox>;
