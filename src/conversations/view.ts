import type { StoredConversation } from './conversation.ts';
import type { HistoryPage, NumberedMessage } from './messages.ts';

/** What callers see of a conversation (contract §4). Times are ISO 8601 UTC. */
export const toView = (conversation: StoredConversation) => ({
  conversationId: conversation.conversationId,
  sessionId: conversation.sessionId,
  channel: conversation.channel,
  language: conversation.language,
  status: conversation.status,
  leadScore: conversation.leadScore,
  tags: conversation.tags,
  createdAt: conversation.createdAt,
  updatedAt: conversation.updatedAt,
  escalatedAt: conversation.escalatedAt,
  escalationReason: conversation.escalationReason,
  resolvedAt: conversation.resolvedAt,
  resolvedBy: conversation.resolvedBy,
});
export type ConversationView = ReturnType<typeof toView>;

const toMessageView = (message: NumberedMessage) => ({
  messageId: message.messageId,
  turnId: message.turnId,
  seq: message.seq,
  role: message.role,
  content: message.content,
  language: message.language,
  ...(message.suggestedActions &&
    message.suggestedActions.length > 0 && { suggestedActions: message.suggestedActions }),
  createdAt: message.createdAt,
});

export const toHistoryView = (conversation: StoredConversation, page: HistoryPage, nextCursor: string | null) => ({
  ...toView(conversation),
  messages: page.messages.map(toMessageView),
  hasMore: page.hasMore,
  nextCursor,
});

export const toEscalationView = (conversation: StoredConversation) => ({
  conversationId: conversation.conversationId,
  status: 'escalated' as const,
  reason: conversation.escalationReason,
  leadScore: conversation.leadScore,
  language: conversation.language,
  escalatedAt: conversation.escalatedAt,
});
