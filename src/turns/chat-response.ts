import type { RecentTurn } from '../conversations/conversation.ts';
import type { ConversationStore, TurnConversation } from '../conversations/store.ts';
import { ApiError, notFound } from '../platform/errors.ts';
import type { Reply } from './replies.ts';
import type { ChatResponse } from './turn.ts';

/** The stored answer of a finished turn. */
export const storedReplyOf =
  (conversations: ConversationStore) =>
  async (conversation: TurnConversation, turn: RecentTurn): Promise<Reply> => {
    const { replySeq: seq, replyMessageId: messageId } = turn;
    if (turn.outcome === 'failed' || seq === undefined || messageId === undefined) return { outcome: 'failed' };
    const message = await conversations.history.findMessage(conversation, { seq, messageId });
    if (!message) return { outcome: 'erased' };
    const { content, suggestedActions } = message;
    return { outcome: 'answered', reply: content, messageId, ...(suggestedActions && { suggestedActions }) };
  };

export const toResponse = (reply: Reply, conversationId: string): ChatResponse => {
  if (reply.outcome === 'erased') throw notFound();
  if (reply.outcome === 'failed') throw new ApiError('internal_error');
  const { reply: text, suggestedActions, messageId } = reply;
  return { reply: text, ...(suggestedActions && { suggestedActions }), conversationId, messageId };
};
