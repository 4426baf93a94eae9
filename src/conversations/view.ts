import * as z from 'zod';
import { ReplySource, SuggestedAction } from '../assistants/suggested-action.ts';
import {
  AttributesView,
  CHANNELS,
  type ConversationState,
  MESSAGE_ROLES,
  STATUSES,
  type StoredConversation,
  toAttributesView,
} from './conversation.ts';
import type { HistoryPage, NumberedMessage } from './history.ts';

/** A date that is a string in JSON. */
const time = z.date().meta({
  description: 'ISO 8601, UTC.',
  example: '2026-05-04T10:15:30.123Z',
  override: { type: 'string', format: 'date-time' },
});
const uuid = z.uuid().meta({ example: '6f1d2c3b-8a49-4e5f-9b7a-1c2d3e4f5a6b' });
const language = z.string().meta({ description: 'Canonical BCP 47 tag.', example: 'en' });
const score = z.number().min(0).max(100);

export const TagView = z.object({ tag: z.string(), color: z.string().nullable() }).meta({ id: 'Tag' });

/** What callers see of a conversation (docs/contract.md, Read a conversation). */
export const ConversationView = z
  .object({
    conversationId: uuid,
    sessionId: z.string().meta({ example: 'visitor-42' }),
    channel: z.enum(CHANNELS).meta({ description: 'Where the first message came from.' }),
    language,
    status: z.enum(STATUSES),
    leadScore: score,
    tags: z.array(TagView),
    createdAt: time,
    updatedAt: time,
    escalatedAt: time.nullable(),
    escalationReason: z.string().nullable(),
    resolvedAt: time.nullable(),
    resolvedBy: z.string().nullable().meta({ description: 'The operator’s id.' }),
  })
  .meta({ id: 'Conversation' });
export type ConversationView = z.infer<typeof ConversationView>;

export const MessageView = z
  .object({
    messageId: uuid,
    turnId: uuid.nullable().meta({
      description:
        'The turn of this message; null for messages of operators and the system, and for what the assistant says by itself.',
    }),
    seq: z.int().min(1).nullable().meta({
      description:
        'Position in the conversation: 1, 2, 3 … without gaps. The two messages of a turn share one. Null while the turn is pending.',
    }),
    role: z.enum(MESSAGE_ROLES),
    content: z.string(),
    language: language.nullable(),
    suggestedActions: z.array(SuggestedAction).optional(),
    sources: z
      .array(ReplySource)
      .optional()
      .meta({ description: 'What a reply of the assistant is taken from; only with `include=sources`.' }),
    mergedInto: uuid
      .optional()
      .meta({ description: 'The later message of the visitor that was answered together with this one.' }),
    createdAt: time,
  })
  .meta({ id: 'Message' });

const page = {
  hasMore: z.boolean(),
  nextCursor: z.string().nullable().meta({ description: 'For the query parameter `cursor` of the next page.' }),
};

export const HistoryView = z
  .object({ ...ConversationView.shape, attributes: AttributesView, messages: z.array(MessageView), ...page })
  .meta({ id: 'ConversationHistory' });

export const AttributesAnswer = z.object({ conversationId: uuid, attributes: AttributesView });

export const ConversationListView = z
  .object({ conversations: z.array(ConversationView), ...page })
  .meta({ id: 'ConversationList' });

export const EscalationView = z
  .object({
    conversationId: uuid,
    status: z.literal('escalated'),
    reason: z.string(),
    leadScore: score,
    language,
    escalatedAt: time,
  })
  .meta({ id: 'Escalation' });

export const toView = (conversation: Pick<StoredConversation, keyof ConversationView>): ConversationView => ({
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

/** With `withSources`, each message of the assistant has the field `sources`, even if it has no sources. */
export const toMessageView = (message: NumberedMessage, withSources: boolean): z.infer<typeof MessageView> => ({
  messageId: message.messageId,
  turnId: message.turnId,
  seq: message.seq,
  role: message.role,
  content: message.content,
  language: message.language,
  ...(message.suggestedActions &&
    message.suggestedActions.length > 0 && { suggestedActions: message.suggestedActions }),
  ...(withSources && message.role === 'assistant' && { sources: message.sources ?? [] }),
  ...(message.mergedInto && { mergedInto: message.mergedInto.messageId }),
  createdAt: message.createdAt,
});

export const toHistoryView = (
  conversation: StoredConversation,
  { messages, hasMore }: HistoryPage,
  { nextCursor, withSources }: { nextCursor: string | null; withSources: boolean },
): z.infer<typeof HistoryView> => ({
  ...toView(conversation),
  attributes: toAttributesView(conversation.attributes),
  messages: messages.map((message) => toMessageView(message, withSources)),
  hasMore,
  nextCursor,
});

export const toListView = (
  conversations: Pick<StoredConversation, keyof ConversationView>[],
  nextCursor: string | null,
): z.infer<typeof ConversationListView> => ({
  conversations: conversations.map(toView),
  hasMore: nextCursor !== null,
  nextCursor,
});

/** The view of an escalated conversation. Such a conversation always has a reason and a time. */
export const toEscalationView = (conversation: ConversationState): z.infer<typeof EscalationView> => ({
  conversationId: conversation.conversationId,
  status: 'escalated',
  reason: conversation.escalationReason ?? '',
  leadScore: conversation.leadScore,
  language: conversation.language,
  escalatedAt: conversation.escalatedAt ?? conversation.updatedAt,
});
