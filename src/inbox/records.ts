import type { Connection } from 'mongoose';
import { createCannedReplies } from './canned-replies.ts';
import { createManagedTags } from './managed-tags.ts';
import { createNotes } from './notes.ts';
import { createReadPositions } from './read-positions.ts';

/** What operators store outside a conversation's document. An erasure deletes what belongs to the conversation. */
export const createInboxRecords = (connection: Connection) => {
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
    eraseConversation: async (conversationId: string, until?: AbortSignal): Promise<void> => {
      await notes.erase(conversationId, until);
      await readPositions.erase(conversationId, until);
    },
  };
};

export type InboxRecords = ReturnType<typeof createInboxRecords>;
