import type { Connection } from 'mongoose';
import type { OutboxEvent } from '../conversations/conversation.ts';
import { createHistory } from '../conversations/history.ts';
import { composeBody } from '../webhooks/event.ts';
import type { Outbox } from './outbox.ts';

/**
 * Composes the body of a pending event. The texts of a sent message are read from the history, because the outbox does
 * not hold them. Null if the message is gone, because its conversation was erased.
 */
export const createComposeBody = (connection: Connection) => {
  const history = createHistory(connection);
  return async (outbox: Outbox, event: OutboxEvent): Promise<string | null> => {
    if (event.event !== 'message.sent') return composeBody(event, outbox);
    const { seq, message_id: messageId } = event.payload;
    const message = await history.findMessage(outbox, { seq, messageId });
    return message && composeBody(event, outbox, message);
  };
};
