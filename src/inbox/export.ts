import type { StoredConversation } from '../conversations/conversation.ts';
import type { ConversationStore } from '../conversations/store.ts';
import type { HistoryPosition, NumberedMessage } from '../conversations/history.ts';

/** A page is small, because each of its messages may have 8,000 characters. */
const PAGE = 200;

/** Reads all messages of a conversation, page by page. */
export async function* readAllMessages(
  { history }: Pick<ConversationStore, 'history'>,
  conversation: StoredConversation,
): AsyncGenerator<NumberedMessage[]> {
  let from: HistoryPosition | null = null;
  do {
    const page: Awaited<ReturnType<typeof history.readPage>> = await history.readPage(conversation, {
      limit: PAGE,
      ...(from && { from }),
    });
    yield page.messages;
    from = page.next;
  } while (from);
}

/** Writes an object as JSON, with a last field `messages` whose list is never whole in memory. */
export async function* toJson(head: object, pages: AsyncIterable<object[]>): AsyncGenerator<string> {
  yield `${JSON.stringify(head).slice(0, -1)},"messages":[`;
  let separator = '';
  for await (const page of pages) {
    if (page.length === 0) continue;
    yield `${separator}${page.map((one) => JSON.stringify(one)).join()}`;
    separator = ',';
  }
  yield ']}';
}
