import * as z from 'zod';
import { publicOperation } from '../assistants/operation.ts';
import { cursor as cursorText } from '../platform/cursor.ts';
import { wholeNumber } from '../platform/whole-number.ts';
import { HISTORY_MAX } from './history.ts';
import { ConversationListView, EscalationView, HistoryView } from './view.ts';

const integer = (min: number, max: number, description: string) =>
  wholeNumber(min, max).meta({
    description,
    override: { type: 'integer', minimum: min, maximum: max, pattern: undefined },
  });

const cursor = cursorText.meta({ description: 'The `nextCursor` of the page before.' });

const HistoryQuery = z.object({
  limit: integer(1, HISTORY_MAX, `Messages a page; ${HISTORY_MAX.toLocaleString('en')} when left out.`).optional(),
  cursor: cursor.optional(),
  after_seq: integer(
    0,
    Number.MAX_SAFE_INTEGER,
    'Only messages whose `seq` is higher. The highest `seq` you have, or 0 for all; a message that still waits for its ' +
      'answer has no `seq` and is left out.',
  ).optional(),
  wait: integer(
    0,
    25,
    'With `after_seq`: seconds to wait until there is a message with a higher `seq`. When they are over, the answer is ' +
      '200 with no messages. Without `after_seq` it has no effect.',
  ).optional(),
});

const ListQuery = z.object({
  session_id: z.string().min(1).optional().meta({ description: 'The conversation of this session alone.' }),
  updated_after: z.iso
    .datetime({ offset: true })
    .optional()
    .meta({ description: 'Only what changed after this time.' }),
  limit: integer(1, 100, 'Conversations a page; 100 when left out.').optional(),
  cursor: cursor.optional(),
});

export const EscalateRequest = z
  .object({
    reason: z
      .string()
      .refine((value) => value.isWellFormed() && !value.includes('\0'), 'must be well-formed Unicode')
      .refine((value) => value.trim() !== '' && [...value].length <= 500, 'must be 1–500 characters')
      .meta({ description: '`manual` when left out.', minLength: 1, maxLength: 500 })
      .nullish(),
    lead_score: z.number().min(0).max(100).nullish().meta({ description: 'Replaces the stored one.' }),
  })
  .meta({ id: 'EscalateRequest' });

const AT = '2026-05-04T10:15:30.123Z';

const CONVERSATION = {
  conversationId: '6f1d2c3b-8a49-4e5f-9b7a-1c2d3e4f5a6b',
  sessionId: 'visitor-42',
  channel: 'api',
  language: 'en',
  status: 'open',
  leadScore: 20,
  tags: [{ tag: 'opening hours', color: null }],
  createdAt: AT,
  updatedAt: AT,
  escalatedAt: null,
  escalationReason: null,
  resolvedAt: null,
  resolvedBy: null,
};

const message = (role: string, content: string, messageId: string) => ({
  messageId,
  turnId: '6f1d2c3b-8a49-4d10-a2f3-0a1b2c3d4e5f',
  seq: 1,
  role,
  content,
  language: 'en',
  createdAt: AT,
});

const HISTORY = {
  ...CONVERSATION,
  messages: [
    message('user', 'What are your opening hours?', '0d4f7a66-1b1e-4f0a-8f7e-5c3f5a0f9b21'),
    message('assistant', 'We are open from 9 to 5.', 'f3a1c9d2-5b7e-4c8a-8e1f-9d0b2a4c6e8f'),
  ],
  hasMore: false,
  nextCursor: null,
};

const POLLING = [
  'Long polling is how a caller gets an operator’s reply: send `after_seq` with the highest `seq` you have, and `wait`. The ' +
    'answer comes as soon as there is something newer, or after so many seconds without messages; then ask again. A ' +
    'request that waits counts into a limit of its own, apart from the key’s other requests.',
  'What is newer may have any role. A handoff leaves a `system` message with a `seq` of its own, so a poll right after an ' +
    'escalation returns that message; go on with its `seq`.',
  'A visitor’s message and the reply to it share one `seq` and appear together. While a message waits for its reply, its ' +
    '`seq` is null: a poll neither returns it nor ends because of it.',
  'A change of status or tags alone does not end a poll, but every answer shows both as they are then.',
].join('\n\n');

const common = { tag: 'Conversations', auth: 'apiKey', limiter: 'key' } as const;
const params = z.object({ id: z.uuid().meta({ description: 'A `conversationId`.' }) });

export const conversationOperations = {
  list: publicOperation({
    ...common,
    method: 'get',
    path: '/api/v1/conversations',
    id: 'listConversations',
    summary: 'List conversations, oldest change first',
    description: 'How a receiver that was down catches up: ask for what changed after the last `updatedAt` it knows.',
    query: ListQuery,
    answer: ConversationListView,
    answerExample: { conversations: [CONVERSATION], hasMore: false, nextCursor: null },
  }),
  get: publicOperation({
    ...common,
    limiter: 'key or poll',
    method: 'get',
    path: '/api/v1/conversations/:id',
    id: 'getConversation',
    summary: 'Read a conversation with its messages',
    description: `Oldest message first; without \`limit\` up to 1,000.\n\n${POLLING}`,
    params,
    query: HistoryQuery,
    answer: HistoryView,
    answerExample: HISTORY,
    errors: ['not_found'],
  }),
  erase: publicOperation({
    ...common,
    method: 'delete',
    path: '/api/v1/conversations/:id',
    id: 'eraseConversation',
    summary: 'Erase a conversation',
    description: 'Hard deletion of its messages and texts. The session may begin anew, under a new `conversationId`.',
    params,
    errors: ['not_found'],
  }),
  escalate: publicOperation({
    ...common,
    method: 'post',
    path: '/api/v1/conversations/:id/escalate',
    id: 'escalateConversation',
    summary: 'Hand a conversation to a person',
    description:
      'Already escalated: the first reason is kept and no second event is sent. Resolved: opens it again. The first time, ' +
      'the conversation gets a `system` message.',
    params,
    body: EscalateRequest,
    bodyOptional: true,
    bodyExample: { reason: 'asked twice' },
    answer: EscalationView,
    answerExample: {
      conversationId: CONVERSATION.conversationId,
      status: 'escalated',
      reason: 'manual',
      leadScore: 20,
      language: 'en',
      escalatedAt: AT,
    },
    errors: ['not_found'],
  }),
};
