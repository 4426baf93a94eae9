import type { RecentTurn, StoredConversation } from '../conversations/conversation.ts';
import type { ConversationStore } from '../conversations/store.ts';
import { ApiError, notFound } from '../platform/errors.ts';
import type { Reply } from './replies.ts';
import type { ChatResponse } from './turn.ts';

/** The stored answer of a finished turn. */
export const storedReplyOf =
  (conversations: ConversationStore) =>
  async (conversation: StoredConversation, turn: RecentTurn): Promise<Reply> => {
    if (turn.outcome === 'failed' || turn.replySeq === undefined) return { outcome: 'failed' };
    const entry = await conversations.history.findEntry(conversation, turn.replySeq);
    const message = entry?.find(({ messageId }) => messageId === turn.replyMessageId);
    if (!message) return { outcome: 'erased' };
    const { content, messageId, suggestedActions } = message;
    return { outcome: 'answered', reply: content, messageId, ...(suggestedActions && { suggestedActions }) };
  };

export const toResponse = (reply: Reply, conversationId: string): ChatResponse => {
  if (reply.outcome === 'erased') throw notFound();
  if (reply.outcome === 'failed') throw new ApiError('internal_error');
  const { reply: text, suggestedActions, messageId } = reply;
  return { reply: text, ...(suggestedActions && { suggestedActions }), conversationId, messageId };
};
