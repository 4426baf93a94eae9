import type { StoredConversation } from '../conversations/conversation.ts';
import type { ConversationStore } from '../conversations/store.ts';
import type { HistoryPosition, NumberedMessage } from '../conversations/history.ts';

/** Reads all messages of a conversation, page by page. */
export const readAllMessages = async (
  { history }: Pick<ConversationStore, 'history'>,
  conversation: StoredConversation,
): Promise<NumberedMessage[]> => {
  const messages: NumberedMessage[] = [];
  let from: HistoryPosition | null = null;
  do {
    const page: Awaited<ReturnType<typeof history.readPage>> = await history.readPage(
      conversation,
      from ? { from } : {},
    );
    messages.push(...page.messages);
    from = page.next;
  } while (from);
  return messages;
};
