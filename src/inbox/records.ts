import type { Connection } from 'mongoose';
import { createReadPositions } from './read-positions.ts';

/** What operators store for a conversation outside its document. An erasure deletes it too. */
export const createInboxRecords = (connection: Connection) => {
  const readPositions = createReadPositions(connection);
  return {
    models: readPositions.models,
    readPositions,
    eraseConversation: (conversationId: string, until?: AbortSignal): Promise<void> =>
      readPositions.erase(conversationId, until),
  };
};

export type InboxRecords = ReturnType<typeof createInboxRecords>;
