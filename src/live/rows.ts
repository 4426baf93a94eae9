import type { Connection } from 'mongoose';
import { type ChannelName, conversationModels, type StoredConversation } from '../conversations/conversation.ts';
import type { Inbox } from '../inbox/inbox.ts';
import { ROW_FIELDS } from '../inbox/row.ts';
import { collectionOf } from '../platform/mongo.ts';
import type { LiveRow } from './subscriber.ts';

const NO_PLAYGROUND: { $ne: ChannelName } = { $ne: 'playground' };

/**
 * Reads the rows of these conversation keys, as far as they belong to these assistants. They have no read position, because one row is sent to all operators.
 * Playground conversations are in no inbox.
 */
export const createReadRows = (connection: Connection, inbox: Pick<Inbox, 'toRows'>) => {
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  return async (keys: string[], assistantIds: string[] | null): Promise<LiveRow[]> => {
    const wanted = {
      _id: { $in: keys },
      channel: NO_PLAYGROUND,
      ...(assistantIds && { assistantId: { $in: assistantIds } }),
    };
    const rows = await inbox.toRows(await conversations.find(wanted, { projection: ROW_FIELDS }).toArray(), null);
    return rows.map(({ readSeq: _own, ...row }) => ({
      conversationId: row.conversationId,
      assistantId: row.assistantId,
      json: JSON.stringify(row),
    }));
  };
};
