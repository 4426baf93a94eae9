import type { Connection } from 'mongoose';
import type { StoredConversation } from '../conversations/conversation.ts';
import type { HistoryPosition, NumberedMessage } from '../conversations/history.ts';
import type { ConversationStore } from '../conversations/store.ts';
import { LIST_MAX, pendingRowsOf } from '../deliveries/list.ts';
import type { DeliveryStore } from '../deliveries/store.ts';
import { type ListedDelivery, toDeliveryRow } from '../deliveries/view.ts';
import type { EventKind } from '../webhooks/event.ts';
import { type CannedReplies, createCannedReplies } from './canned-replies.ts';
import { createManagedTags, type ManagedTags } from './managed-tags.ts';
import { createNotes, type Notes } from './notes.ts';
import { createReadPositions, type ReadPositions } from './read-positions.ts';
import type { Indexed } from '../mongo/mongo.ts';

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

/** What is kept of a message: its texts may be long. */
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

const oldestFirst = (a: ListedDelivery, b: ListedDelivery): number => a.createdAt.getTime() - b.createdAt.getTime();

/** The events of a conversation with their deliveries, newest first: those of the newest 200 deliveries. */
export const createListEvents =
  ({ conversations, deliveries }: Dependencies) =>
  async (conversation: StoredConversation) => {
    const { _id: key, assistantId, conversationId, seq } = conversation;
    // The outbox is read before the records. So an event that is claimed between the two reads is found in both.
    const outbox = await conversations.outbox.read(key);
    const from = { seq: Math.max(0, seq - LIST_MAX), index: Number.MAX_SAFE_INTEGER, waitingAfter: null };
    const records = await deliveries.listRecords({ assistantId, conversationId, limit: LIST_MAX });
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
