import { newId } from '../process/ids.ts';
import type { ConversationEvent, ConversationEventKind } from '../webhooks/event.ts';
import type { Message, OutboxEvent, StoredConversation } from './conversation.ts';

/** Returns the endpoints that want an event of this kind now. */
export type ReceiversOf = (event: ConversationEventKind) => string[];

/** The event as stored in the outbox, or null if no endpoint wants the event. */
export const newOutboxEvent = (event: ConversationEvent, receiversOf: ReceiversOf, at: Date): OutboxEvent | null => {
  const endpoints = receiversOf(event.event);
  if (endpoints.length === 0) return null;
  return { ...event, eventId: newId(), timestamp: Math.floor(at.getTime() / 1000), at, endpoints };
};

/**
 * The `message.sent` events of these messages. Visitor messages have none. A message without a language has the language
 * of the conversation.
 */
export const sentEvents = (messages: Message[], seq: number, language: string): ConversationEvent[] =>
  messages.flatMap(({ messageId, turnId, role, language: own }): ConversationEvent[] => {
    if (role === 'user') return [];
    const payload = { message_id: messageId, turn_id: turnId, seq, role, language: own ?? language };
    return [{ event: 'message.sent', payload }];
  });

type Dependencies = {
  /** Returns the enabled endpoints of an assistant, by the event kinds that they want. */
  receivers: (assistantId: string) => Promise<ReceiversOf>;
  /** Called when the conversation's outbox has a new event. Never throws. */
  wakeDeliveries: (conversationKey: string) => void;
};

const NO_RECEIVERS: ReceiversOf = () => [];

/**
 * Runs every write that may announce an event. The write gets the endpoints that want the event (none for a playground
 * conversation), and stores the event in the same update as the change. If an event was stored, the delivery worker is
 * woken.
 */
export type Announce = <Result extends object | null>(
  conversation: Pick<StoredConversation, '_id' | 'assistantId' | 'channel'>,
  write: (receiversOf: ReceiversOf) => Promise<Result>,
) => Promise<Result>;

export const createAnnounce =
  ({ receivers, wakeDeliveries }: Dependencies): Announce =>
  async <Result extends object | null>(
    { _id: key, assistantId, channel }: Pick<StoredConversation, '_id' | 'assistantId' | 'channel'>,
    write: (receiversOf: ReceiversOf) => Promise<Result>,
  ): Promise<Result> => {
    const result = await write(channel === 'playground' ? NO_RECEIVERS : await receivers(assistantId));
    if (result && 'announced' in result && result.announced === true) wakeDeliveries(key);
    return result;
  };
