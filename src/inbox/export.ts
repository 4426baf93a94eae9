import type { StoredConversation } from '../conversations/conversation.ts';
import type { ConversationStore } from '../conversations/store.ts';
import type { HistoryPosition, NumberedMessage } from '../conversations/history.ts';

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
