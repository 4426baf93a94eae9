import { newId } from '../platform/ids.ts';
import type { ConversationEvent, ConversationEventKind } from '../webhooks/event.ts';
import type { OutboxEvent, StoredConversation } from './conversation.ts';

/** Endpoints that want an event of this kind at this moment. */
export type ReceiversOf = (event: ConversationEventKind) => string[];

/** An event as it enters the outbox. Null if no endpoint wants it. */
export const newOutboxEvent = (event: ConversationEvent, receiversOf: ReceiversOf, at: Date): OutboxEvent | null => {
  const endpoints = receiversOf(event.event);
  if (endpoints.length === 0) return null;
  return { ...event, eventId: newId(), timestamp: Math.floor(at.getTime() / 1000), at, endpoints };
};

type Dependencies = {
  /** The enabled endpoints of an assistant, by the event kinds they want. */
  receivers: (assistantId: string) => Promise<ReceiversOf>;
  /** The conversation's outbox has a new event. Never throws. */
  wakeDeliveries: (conversationKey: string) => void;
};

const NO_RECEIVERS: ReceiversOf = () => [];

/**
 * Every write that may announce an event runs through this function. It gives the write the endpoints that want the
 * event (none for a playground conversation), and wakes the delivery worker if the write stored an event. The write
 * stores the event in the same update as the change.
 */
export const createAnnounce =
  ({ receivers, wakeDeliveries }: Dependencies) =>
  async <Result extends object | null>(
    { _id: key, assistantId, channel }: Pick<StoredConversation, '_id' | 'assistantId' | 'channel'>,
    write: (receiversOf: ReceiversOf) => Promise<Result>,
  ): Promise<Result> => {
    const result = await write(channel === 'playground' ? NO_RECEIVERS : await receivers(assistantId));
    if (result && 'announced' in result && result.announced === true) wakeDeliveries(key);
    return result;
  };

export type Announce = ReturnType<typeof createAnnounce>;
