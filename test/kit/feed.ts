import { randomUUID } from 'node:crypto';
import { conversationModels, type OutboxEvent, type StoredConversation } from '../../src/conversations/conversation.ts';
import { initialState } from '../../src/conversations/state.ts';
import { countAnnounced, newOutboxEvent } from '../../src/conversations/outbox.ts';
import { serverDate } from '../../src/platform/process/clock.ts';
import { createBatcher } from '../../src/platform/process/batch.ts';
import { conversationKeyOf, newPrefixedId } from '../../src/platform/process/ids.ts';
import { collectionOf, DURABLE, updateMany } from '../../src/platform/mongo/mongo.ts';
import type { Service } from '../../src/service.ts';

type Fed = { eventId: string; key: string; content: string; committedAt: number };

/**
 * Writes events into a conversation's outbox like an accepted turn, but without a chat. This tests deliveries with more
 * load, and in more edge cases, than a conversation would.
 */
export const createFeed = (service: Pick<Service, 'mongo' | 'endpoints' | 'deliveryQueue'>) => {
  const conversations = collectionOf<StoredConversation>(conversationModels(service.mongo).conversations);

  const push = createBatcher<{ key: string; events: OutboxEvent[] }, void>(async (items) => {
    await updateMany(
      service.mongo,
      'conversations',
      items.map(({ key, events }) => ({
        q: { _id: key },
        u: { $push: { outbox: { $each: events } }, ...countAnnounced(events) },
      })),
    );
    return items.map(() => undefined);
  });

  return {
    /** Creates conversations without events, and returns their keys. */
    openConversations: async (assistantId: string, count: number): Promise<string[]> => {
      const now = serverDate();
      const rows = Array.from({ length: count }, (): StoredConversation => {
        const sessionId = randomUUID();
        const _id = conversationKeyOf({ sessionKey: assistantId, sessionId, playground: false });
        return {
          _id,
          conversationId: newPrefixedId(_id),
          assistantId,
          sessionId,
          channel: 'api',
          language: 'en',
          ...initialState(),
          headSince: now,
          waiting: [],
          createdAt: now,
          updatedAt: now,
        };
      });
      await conversations.insertMany(rows, { writeConcern: DURABLE });
      return rows.map(({ _id }) => _id);
    },

    /** Adds these events to one conversation's outbox, and wakes the worker unless `silent`. */
    say: async (
      assistantId: string,
      key: string,
      contents: string[],
      { at = serverDate(), silent = false }: { at?: Date; silent?: boolean } = {},
    ): Promise<Fed[]> => {
      const receiversOf = await service.endpoints.receivers(assistantId);
      const events = contents.map((content) => {
        const payload = { role: 'user' as const, content, language: 'en' };
        const event = newOutboxEvent({ event: 'message.received', payload }, receiversOf, { key, at });
        if (!event) throw new Error('nobody wants this event');
        return event;
      });
      await push({ key, events });
      const committedAt = performance.now();
      if (!silent) service.deliveryQueue.wake({ _id: key, assistantId });
      return events.map(({ eventId }, index) => ({ eventId, key, content: contents[index] as string, committedAt }));
    },
  };
};
