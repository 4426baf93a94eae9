import type { QueryClient } from '@tanstack/react-query';
import { dropDraft } from './composer/drafts.ts';
import { removeRow } from './list/change-rows.ts';
import { eventsPath, threadKey } from './thread/thread.ts';

/** Removes an erased conversation from this page: its row, its draft and what was read of it. */
export const forgetConversation = (client: QueryClient, conversationId: string): void => {
  dropDraft(conversationId);
  removeRow(client, conversationId);
  client.removeQueries({ queryKey: threadKey(conversationId), type: 'inactive' });
  client.removeQueries({ queryKey: [eventsPath(conversationId)], type: 'inactive' });
};
