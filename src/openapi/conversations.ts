import * as z from 'zod';
import type { ZodOpenApiPathsObject } from 'zod-openapi';
import { EscalateRequest, HistoryQuery, ListQuery } from '../conversations/routes.ts';
import { ConversationListView, EscalationView, HistoryView } from '../conversations/view.ts';
import { noContent, notFoundBehindTheDoor, ok, problems } from './responses.ts';

const tags = ['Conversations'];
const security = [{ apiKey: [] }];
const path = z.object({ id: z.uuid().meta({ description: 'A `conversationId`.' }) });
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

const ESCALATION = {
  conversationId: CONVERSATION.conversationId,
  status: 'escalated',
  reason: 'manual',
  leadScore: 20,
  language: 'en',
  escalatedAt: AT,
};

const behindTheDoor = {
  ...problems('missing_api_key', 'invalid_api_key', 'rate_limited', 'internal_error', 'unavailable'),
};

/** The conversation endpoints (contract §4). */
export const conversationPaths: ZodOpenApiPathsObject = {
  '/api/v1/conversations': {
    get: {
      operationId: 'listConversations',
      summary: 'List conversations, oldest change first',
      description: 'Lets a receiver catch up after a failure: ask for what changed after the last `updatedAt` it has.',
      tags,
      security,
      requestParams: { query: ListQuery },
      responses: {
        '200': ok(ConversationListView, {
          example: { conversations: [CONVERSATION], hasMore: false, nextCursor: null },
        }),
        ...behindTheDoor,
        ...problems('validation_failed'),
      },
    },
  },
  '/api/v1/conversations/{id}': {
    get: {
      operationId: 'getConversation',
      summary: 'Read a conversation with its messages',
      description:
        'Oldest first; up to 1,000 messages without `limit`. `after_seq` gives only newer messages. `wait` holds the response ' +
        'until there is one, at most that many seconds: this is how a caller gets an operator’s reply. Waiting requests ' +
        'have their own limit.',
      tags,
      security,
      requestParams: { path, query: HistoryQuery },
      responses: {
        '200': ok(HistoryView, { example: HISTORY }),
        ...notFoundBehindTheDoor,
        ...behindTheDoor,
        ...problems('validation_failed'),
      },
    },
    delete: {
      operationId: 'eraseConversation',
      summary: 'Erase a conversation',
      description: 'Deletes its messages and texts for good. The session can start again, with a new `conversationId`.',
      tags,
      security,
      requestParams: { path },
      responses: { '204': noContent, ...notFoundBehindTheDoor, ...behindTheDoor },
    },
  },
  '/api/v1/conversations/{id}/escalate': {
    post: {
      operationId: 'escalateConversation',
      summary: 'Escalate a conversation to a person',
      description:
        'An escalated conversation keeps its first reason and sends no second event. A resolved one is opened again.',
      tags,
      security,
      requestParams: { path },
      requestBody: { content: { 'application/json': { schema: EscalateRequest, example: { reason: 'asked twice' } } } },
      responses: {
        '200': ok(EscalationView, { example: ESCALATION }),
        ...notFoundBehindTheDoor,
        ...behindTheDoor,
        ...problems('payload_too_large', 'validation_failed', 'invalid_json'),
      },
    },
  },
};
