import type { Request, RequestHandler, Response, Router } from 'express';
import * as z from 'zod';
import { type Access, callerOf, createPublicRouter, publicOperation } from '../assistants/access.ts';
import { IncludeQuery } from '../assistants/suggested-action.ts';
import { AttributesInput, type StoredConversation, toAttributesView } from './conversation.ts';
import { afterSeq, HISTORY_MAX, historyCursor } from './history.ts';
import type { ConversationStore } from './store.ts';
import {
  AttributesAnswer,
  ConversationListView,
  EscalationView,
  HistoryView,
  toEscalationView,
  toHistoryView,
  toListView,
} from './view.ts';
import { createTimeCursor, cursor, wholeNumber } from '../platform/process/validation.ts';
import { answerWith, answerWithList, bodyOf, queryOf } from '../platform/http/operation.ts';
import {
  buildAnswer,
  createRestedWork,
  limitEachAssistant,
  type LongPoll,
  signalOf,
  takeRoomForAnswer,
} from '../platform/http/request-slots.ts';
import type { OrUnavailable } from '../platform/mongo/silence.ts';
import { notFound } from '../platform/process/errors.ts';
import { conversationKeyOf } from '../platform/process/ids.ts';

const integer = (min: number, max: number, description: string) =>
  wholeNumber(min, max).meta({
    description,
    override: { type: 'integer', minimum: min, maximum: max, pattern: undefined },
  });

const HistoryQuery = z.object({
  limit: integer(1, HISTORY_MAX, `Messages per page. The default is ${HISTORY_MAX.toLocaleString('en')}.`).optional(),
  cursor: cursor.optional(),
  after_seq: integer(
    0,
    Number.MAX_SAFE_INTEGER,
    'Only messages with a higher `seq`. Send the highest `seq` you have, or 0 for all. A message that waits for its ' +
      'reply has no `seq` and is left out.',
  ).optional(),
  wait: integer(
    0,
    25,
    'With `after_seq`: seconds to wait for a message with a higher `seq`. If none comes, the response is 200 without ' +
      'messages. Without `after_seq` it has no effect.',
  ).optional(),
  include: IncludeQuery,
});

const ListQuery = z.object({
  session_id: z.string().min(1).optional().meta({ description: 'Only the conversation of this session.' }),
  updated_after: z.iso
    .datetime({ offset: true })
    .optional()
    .meta({ description: 'Only conversations that changed after this time.' }),
  limit: integer(1, 100, 'Conversations per page. The default is 100.').optional(),
  cursor: cursor.optional(),
});

export const EscalateRequest = z
  .object({
    reason: z
      .string()
      .refine((value) => value.isWellFormed() && !value.includes('\0'), 'must be well-formed Unicode')
      .refine((value) => value.trim() !== '' && [...value].length <= 500, 'must be 1–500 characters')
      .meta({ description: 'The default is `manual`.', minLength: 1, maxLength: 500 })
      .nullish(),
    lead_score: z.number().min(0).max(100).nullish().meta({ description: 'Replaces the stored score.' }),
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
  attributes: { plan: 'pro' },
  messages: [
    message('user', 'What are your opening hours?', '0d4f7a66-1b1e-4f0a-8f7e-5c3f5a0f9b21'),
    message('assistant', 'We are open from 9 to 5.', 'f3a1c9d2-5b7e-4c8a-8e1f-9d0b2a4c6e8f'),
  ],
  hasMore: false,
  nextCursor: null,
};

const POLLING = [
  'A caller gets an operator’s reply by long polling: send `after_seq` with the highest `seq` you have, and `wait`. The ' +
    'response comes as soon as there is a newer message, or without messages after `wait` seconds; then poll again. ' +
    'Waiting requests have their own limit, apart from the other requests of the key.',
  'A newer message may have any role. A handoff adds a `system` message with its own `seq`, so a poll right after an ' +
    'escalation returns that message. Continue with its `seq`.',
  'A visitor’s message and its reply share one `seq` and appear together. While a message waits for its reply, its `seq` is ' +
    'null, and a poll neither returns it nor ends because of it.',
  'A change of status or tags does not end a poll, but every response shows the current ones.',
].join('\n\n');

const common = { tag: 'Conversations', auth: 'apiKey', limiter: 'key' } as const;
const params = z.object({ id: z.uuid().meta({ description: 'A `conversationId`.' }) });

export const chatConversationOperations = {
  list: publicOperation({
    ...common,
    hasOwnTurn: true,
    method: 'get',
    path: '/api/v1/conversations',
    id: 'listConversations',
    summary: 'List conversations, oldest change first',
    description: 'Lets a receiver catch up after a failure: ask for what changed after the last `updatedAt` it has.',
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
    description: `Oldest message first; up to 1,000 messages without \`limit\`. A page holds at most 1 MiB of messages, so it may have fewer than \`limit\`; \`hasMore\` tells.\n\n${POLLING}`,
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
    description: 'Deletes its messages and texts for good. The session can start again, with a new `conversationId`.',
    params,
    errors: ['not_found'],
  }),
  escalate: publicOperation({
    ...common,
    method: 'post',
    path: '/api/v1/conversations/:id/escalate',
    id: 'escalateConversation',
    summary: 'Escalate a conversation to a person',
    description:
      'An escalated conversation keeps its first reason and sends no second event. A resolved one is opened again. The ' +
      'first escalation adds a `system` message.',
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
  setAttributes: publicOperation({
    ...common,
    method: 'post',
    path: '/api/v1/conversations/:id/attributes',
    id: 'setAttributes',
    summary: 'Tell facts about a visitor',
    description:
      'A flat object. `null` removes an attribute; others stay. At most 50 attributes and 8 KiB after the change. ' +
      'Operators see them beside the conversation. They are never sent as an event.',
    params,
    body: AttributesInput,
    bodyExample: { plan: 'pro', orders: 3, trial: null },
    answer: AttributesAnswer,
    answerExample: { conversationId: CONVERSATION.conversationId, attributes: { plan: 'pro', orders: 3 } },
    errors: ['not_found'],
  }),
};

const listCursor = createTimeCursor(/^[0-9a-f]{32}$/);

type Dependencies = {
  access: Access;
  conversations: ConversationStore;
  /** Tells the callers who wait for a reply in this conversation that no reply will come. */
  onErased: (conversation: StoredConversation) => void;
  longPoll: LongPoll;
  orUnavailable: OrUnavailable;
};

/** The conversation endpoints (docs/contract.md, Conversations). */
export const chatConversationRoutes = ({
  access,
  conversations,
  onErased,
  longPoll,
  orUnavailable,
}: Dependencies): Router => {
  const finding =
    <Found>(find: (conversationId: string, assistantId: string) => Promise<Found | null>) =>
    async (req: Request, res: Response): Promise<Found> => {
      const found = await orUnavailable(find(String(req.params.id), callerOf(res).assistant.assistantId));
      if (!found) throw notFound();
      return found;
    };
  const getOwn = finding(conversations.findById);
  const getHead = finding(conversations.findHead);

  /** Waits until the conversation has a message with a number above `afterSeq`, or is erased. Only the number is read. */
  const waitForNewer = async (
    req: Request,
    res: Response,
    { afterSeq, waitMs }: { afterSeq: number; waitMs: number },
  ) => {
    const { _id: key, conversationId, seq } = await getHead(req, res);
    const isNewer = (now: number | null): boolean => now === null || now > afterSeq;
    if (isNewer(seq)) return;
    const { assistantId } = callerOf(res).assistant;
    const isThere = async () => isNewer(await conversations.findSeq({ key, conversationId, assistantId }));
    await longPoll(req, res, { waitMs, isThere });
    await limitEachAssistant(assistantId, res); // the wait has given it back
  };

  const readHistory: RequestHandler = async (req, res) => {
    const { limit, cursor, after_seq, wait = 0, include } = queryOf(chatConversationOperations.get, req);
    const position = cursor === undefined ? undefined : historyCursor.decode(cursor);
    const newerOnly = after_seq !== undefined;
    if (newerOnly && wait > 0) await waitForNewer(req, res, { afterSeq: after_seq, waitMs: wait * 1000 });
    await takeRoomForAnswer(req, res);
    await buildAnswer(req, res, async () => {
      // The conversation is read after the wait, because status and tags can change without a new number.
      const conversation = await getOwn(req, res);
      const from = position ?? (newerOnly ? afterSeq(after_seq) : undefined);
      const page = await conversations.history.readPage(conversation, {
        ...(from && { from }),
        ...(limit !== undefined && { limit }),
        finalOnly: newerOnly,
      });
      const next = page.next && historyCursor.encode(page.next);
      const view = toHistoryView(conversation, page, { nextCursor: next, withSources: include === 'sources' });
      await answerWithList(chatConversationOperations.get, res, view, { list: 'messages', bytes: page.bytes });
    });
  };

  const rested = createRestedWork();
  const list: RequestHandler = async (req, res) => {
    const { session_id, updated_after, limit, cursor } = queryOf(chatConversationOperations.list, req);
    const { assistantId, sessionKey } = callerOf(res).assistant;
    const wanted = {
      assistantId,
      ...(session_id !== undefined && {
        key: conversationKeyOf({ sessionKey, sessionId: session_id, playground: false }),
      }),
      ...(updated_after !== undefined && { updatedAfter: new Date(updated_after) }),
      ...(limit !== undefined && { limit }),
      ...(cursor !== undefined && { after: listCursor.decode(cursor) }),
    };
    const read = async () => {
      await takeRoomForAnswer(req, res);
      return conversations.list(wanted);
    };
    const { conversations: rows, next } = await rested(assistantId, read, signalOf(res));
    answerWith(chatConversationOperations.list, res, toListView(rows, next && listCursor.encode(next)));
  };

  const escalate: RequestHandler = async (req, res) => {
    const { assistantId } = callerOf(res).assistant;
    // Checked before the body, so that the conversation of another assistant gives 404 whatever the body contains.
    await getHead(req, res);
    const { reason, lead_score } = bodyOf(chatConversationOperations.escalate, req);
    const { conversation } = await conversations.transitions.escalate(
      { conversationId: String(req.params.id), assistantId },
      { ...(reason != null && { reason }), ...(lead_score != null && { leadScore: lead_score }) },
    );
    answerWith(chatConversationOperations.escalate, res, toEscalationView(conversation));
  };

  const setAttributes: RequestHandler = async (req, res) => {
    const { assistantId } = callerOf(res).assistant;
    await getHead(req, res); // first, as for `escalate`
    const { conversation } = await conversations.transitions.setAttributes(
      { conversationId: String(req.params.id), assistantId },
      bodyOf(chatConversationOperations.setAttributes, req),
    );
    const { conversationId, attributes } = conversation;
    answerWith(chatConversationOperations.setAttributes, res, {
      conversationId,
      attributes: toAttributesView(attributes),
    });
  };

  const erase: RequestHandler = async (req, res) => {
    const { assistantId } = callerOf(res).assistant;
    const { erased, purged } = await conversations.erase({ ...(await getHead(req, res)), assistantId });
    if (erased) onErased(erased);
    await purged;
    res.status(204).end();
  };

  return createPublicRouter(access, [
    { operation: chatConversationOperations.list, handle: list },
    { operation: chatConversationOperations.get, handle: readHistory },
    { operation: chatConversationOperations.erase, handle: erase },
    { operation: chatConversationOperations.escalate, handle: escalate },
    { operation: chatConversationOperations.setAttributes, handle: setAttributes },
  ]);
};
