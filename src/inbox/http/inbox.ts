import { once } from 'node:events';
import type { Response } from 'express';
import * as z from 'zod';
import { type RateLimiter, rateLimitHeaders } from '../../assistants/rate-limit.ts';
import type { AssistantStore } from '../../assistants/store.ts';
import { CHANNELS, MESSAGE_ROLES, STATUSES } from '../../conversations/conversation.ts';
import type { ConversationStore } from '../../conversations/store.ts';
import { TagView } from '../../conversations/view.ts';
import { EVENT_STREAM_HEADERS } from '../../platform/http/http.ts';
import { cursor, wholeNumber } from '../../platform/process/validation.ts';
import { COUNTED_MAX, type Inbox } from '../inbox.ts';
import type { Notes } from '../records.ts';
import type { LiveUpdates } from '../../live/live.ts';
import { PRESENT_STATES } from '../../live/presence.ts';
import type { EventSink } from '../../live/subscriber.ts';
import { assistantIdsOf, ROLES as OPERATOR_ROLES } from '../../operators/operator.ts';
import { createRestedWork, freeTeamSlot, signalOf } from '../../platform/http/request-slots.ts';
import { holderOf } from '../../platform/http/shares.ts';
import { restAfter } from '../../platform/process/slots.ts';
import { teamOf } from '../../operators/access.ts';
import { ApiError, notFound, unavailable } from '../../platform/process/errors.ts';
import {
  type Call,
  definedFields,
  type Handled,
  handled,
  nextCursor,
  type Operation,
  operation,
  readPage,
  textField,
  time,
  timeCursor,
  uuid,
} from '../../operators/operation.ts';

const NOTE_MAX = 4_000;

const shared = { audience: 'operators', resource: 'conversation' } as const;
const path = '/conversations/:id/notes';

export const NoteView = z
  .object({ noteId: uuid, operatorId: uuid, content: z.string(), createdAt: time })
  .meta({ id: 'Note', description: 'Seen by operators only: never by visitors, and never sent as an event.' });

export const noteOperations = {
  add: operation({
    ...shared,
    method: 'post',
    path,
    id: 'addNote',
    summary: 'Add a note for other operators',
    body: z.object({ content: textField(NOTE_MAX) }),
    status: 201,
    answer: NoteView,
    audit: 'conversation.note',
  }),
  remove: operation({
    ...shared,
    method: 'delete',
    path: `${path}/:noteId`,
    id: 'deleteNote',
    summary: 'Delete your own note; owners may delete every note',
    audit: 'conversation.note_delete',
    errors: ['forbidden'],
  }),
};

type Dependencies = { inbox: Inbox; notes: Notes };

export const noteRoutes = ({ inbox, notes }: Dependencies): Handled[] => [
  handled(noteOperations.add, async ({ params: { id = '' }, body: { content }, operator, note: log }) => {
    const note = await notes.add(id, { operatorId: operator.operatorId, content });
    // If the conversation was erased meanwhile, the note must go too.
    await inbox.markNoted(id).catch(async (cause: unknown) => {
      await notes.remove(id, note.noteId);
      throw cause;
    });
    log({ target: id, details: { noteId: note.noteId } });
    return note;
  }),

  handled(noteOperations.remove, async ({ params: { id = '', noteId = '' }, operator, note: log }) => {
    const note = await notes.find(id, noteId);
    if (!note) throw notFound();
    if (note.operatorId !== operator.operatorId && operator.role !== 'owner')
      throw new ApiError('forbidden', { message: 'Only its author or an owner can delete a note.' });
    await notes.remove(id, noteId);
    await inbox.markNoted(id);
    log({ target: id, details: { noteId } });
  }),
];

const ROWS = 50;
const SEQ_MAX = 999_999_999;

const inbox = { audience: 'operators' } as const;
const one = { ...inbox, resource: 'conversation', method: 'post' } as const;

/** The parts of a conversation that only operators see. */
export const handling = {
  assigneeId: uuid.nullable().meta({ description: 'The operator who handles it.' }),
  waitingSince: time.nullable().meta({ description: 'The first visitor message that waits for a person.' }),
  snoozedUntil: time.nullable().meta({ description: 'Null: not snoozed. A visitor’s message ends a snooze.' }),
  takeBy: time.nullable(),
  remindedAt: time.nullable(),
};

const InboxRow = z
  .object({
    conversationId: uuid,
    assistantId: uuid,
    sessionId: z.string(),
    channel: z.enum(CHANNELS),
    language: z.string(),
    status: z.enum(STATUSES),
    tags: z.array(TagView),
    leadScore: z.number(),
    createdAt: time,
    updatedAt: time,
    escalatedAt: time.nullable(),
    escalationReason: z.string().nullable(),
    ...handling,
    seq: z.int(),
    readSeq: z.int().nullable().meta({ description: 'The last message that you have read; null: none.' }),
    last: z
      .object({ role: z.enum(MESSAGE_ROLES), content: z.string(), createdAt: time, pending: z.boolean() })
      .nullable()
      .meta({
        description: 'What the visitor or an operator said last, cut after 160 characters; else the newest message.',
      }),
  })
  .meta({ id: 'InboxRow' });

/** The values that an attribute filter may mean: `age:7` matches the number 7 and the text `7`. */
const valuesOf = (text: string): (string | number | boolean)[] => {
  if (text === 'true' || text === 'false') return [text, text === 'true'];
  const number = Number(text);
  return Number.isFinite(number) && String(number) === text ? [text, number] : [text];
};

const AttributeFilter = z
  .string()
  .max(600)
  .regex(/^[a-z0-9_]{1,64}:/, 'must be a name, a colon and a value')
  .transform((text) => {
    const [name = ''] = text.split(':', 1);
    return valuesOf(text.slice(name.length + 1)).map((value) => ({ name, value }));
  })
  .meta({ override: { type: 'string', maxLength: 600, description: 'A name, a colon and the exact value.' } });

/** The filters of the inbox, of one assistant or of several. */
export const filters = {
  status: z.enum(STATUSES).optional(),
  tag: z.string().min(1).max(50).optional(),
  channel: z.enum(['api', 'webhook', 'web']).optional(),
  language: z.string().min(1).max(64).optional(),
  assignee: z
    .union([z.enum(['me', 'none']), uuid])
    .optional()
    .meta({ description: 'An operator’s id, `me`, or `none`: nobody has it.' }),
  snoozed: z
    .enum(['true', 'false'])
    .transform((value) => value === 'true')
    .optional()
    .meta({ override: { type: 'boolean', enum: undefined } }),
  attribute: AttributeFilter.optional(),
  search: z.string().trim().min(1).max(256).optional().meta({
    description: 'Words of the messages (the last one may be incomplete), a conversationId, or a part of a session_id.',
  }),
  limit: wholeNumber(1, 100).optional(),
  cursor: cursor.optional(),
};

type Listing = Pick<Call<Operation>, 'req' | 'res' | 'costly' | 'signal' | 'takeRoom'>;

/** A count reads all conversations that are snoozed, for seconds. Its rest is at most this long. */
const COUNT_REST_MOST_MS = 5_000;
/** A page may have some ten MiB of conversations. */
const rested = {
  list: createRestedWork(),
  count: createRestedWork((ms) => restAfter(ms, COUNT_REST_MOST_MS)),
};

/** The counts that wait for their turn. Everybody of a team has the same, so whoever asks meanwhile gets it too. */
const counts = new Map<string, Promise<number>>();
const countInTurn = (team: string, count: () => Promise<number>): Promise<number> => {
  const asked = counts.get(team);
  if (asked) return asked;
  const forget = (): void => {
    if (counts.get(team) === counting) counts.delete(team);
  };
  const counting = rested.count(team, () => {
    forget();
    return count();
  });
  counts.set(team, counting);
  counting.catch(forget);
  return counting;
};

/** Lists in turn. With a filter, a page may have to read many conversations, so it is a costly read too. */
export const listInTurn = <Page>(
  call: Listing,
  { cursor: _from, ...filter }: { cursor?: string | undefined },
  list: () => Promise<Page>,
): Promise<Page> => {
  const isFiltered = Object.values(filter).some((value) => value !== undefined);
  return rested.list(holderOf(call.req, call.res), () => readPage(call, list, { isFiltered }), call.signal);
};

/** The query in the form that the list takes. `me` is the caller. */
export const toInboxFilter = <Query extends { assignee?: string | undefined; cursor?: string | undefined }>(
  { assignee, cursor: from, ...rest }: Query,
  operatorId: string,
) => ({
  ...definedFields(rest),
  ...(assignee !== undefined && { assignee: assignee === 'me' ? operatorId : assignee }),
  ...(from !== undefined && { after: timeCursor.decode(from) }),
});

export const inboxOperations = {
  list: operation({
    ...inbox,
    resource: 'filtered',
    method: 'get',
    path: '/inbox',
    id: 'readInbox',
    isLarge: 'inTurn',
    summary: 'List the conversations of all your assistants, latest change first',
    query: z.object({ assistantId: uuid.optional(), ...filters }),
    answer: z.object({ conversations: z.array(InboxRow), nextCursor }),
    errors: ['not_found'],
  }),
  waiting: operation({
    ...inbox,
    resource: 'filtered',
    method: 'get',
    path: '/inbox/waiting',
    id: 'countWaiting',
    summary: 'Count the conversations of all your assistants that need a person and are not snoozed',
    answer: z.object({ count: z.int().meta({ description: `Counted up to ${COUNTED_MAX}.` }) }),
  }),
  agents: operation({
    ...inbox,
    resource: 'assistant',
    method: 'get',
    path: '/assistants/:id/agents',
    id: 'listAgents',
    summary: 'List the operators to whom its conversations can be assigned',
    answer: z.object({
      agents: z.array(z.object({ operatorId: uuid, email: z.string(), role: z.enum(OPERATOR_ROLES) })),
    }),
  }),
  assign: operation({
    ...one,
    path: '/conversations/:id/assign',
    id: 'assignConversation',
    summary: 'Assign it to an operator, or to nobody',
    body: z.object({ operatorId: uuid.nullable() }),
    answer: z.object({ conversationId: uuid, assigneeId: uuid.nullable() }),
    audit: 'conversation.assign',
  }),
  snooze: operation({
    ...one,
    path: '/conversations/:id/snooze',
    id: 'snoozeConversation',
    summary: 'Snooze it until a time or until the visitor writes; null ends the snooze',
    body: z.object({ until: z.iso.datetime({ offset: true }).nullable() }),
    answer: z.object({ conversationId: uuid, snoozedUntil: time.nullable() }),
    audit: 'conversation.snooze',
  }),
  read: operation({
    ...one,
    path: '/conversations/:id/read',
    id: 'markConversationRead',
    summary: 'Store up to which message you have read it; the position never goes back',
    body: z.object({ seq: z.int().min(0).max(SEQ_MAX) }),
    answer: z.object({ conversationId: uuid, readSeq: z.int() }),
    // No audit line: reading changes nothing for others.
  }),
};

type InboxDependencies = {
  assistants: Pick<AssistantStore, 'listAssistantIds'>;
  conversations: Pick<ConversationStore, 'findOwner'>;
  inbox: Inbox;
};

export const inboxRoutes = ({ assistants, conversations, inbox }: InboxDependencies): Handled[] => [
  handled(inboxOperations.list, async ({ query: { assistantId, limit = ROWS, ...query }, operator, ...call }) => {
    const own = await assistants.listAssistantIds(assistantIdsOf(operator));
    const assistantIds = assistantId === undefined ? own : own.filter((id) => id === assistantId);
    if (assistantId !== undefined && assistantIds.length === 0) throw notFound();
    const wanted = toInboxFilter(query, operator.operatorId);
    const list = () => inbox.list({ assistantIds, limit, signal: call.signal, ...wanted });
    const page = await listInTurn(call, query, list);
    const rows = await inbox.toRows(page.conversations, operator.operatorId);
    return { conversations: rows, nextCursor: page.next && timeCursor.encode(page.next) };
  }),

  handled(inboxOperations.waiting, async ({ operator, res }) => {
    const count = async () => inbox.countWaiting(await assistants.listAssistantIds(assistantIdsOf(operator)));
    freeTeamSlot(res);
    return { count: await countInTurn(teamOf(operator), count) };
  }),

  handled(inboxOperations.agents, async ({ params: { id = '' } }) => ({
    agents: (await inbox.readAssignees())
      .of(id)
      .map(({ operatorId, email, role }) => ({ operatorId, email, role }))
      .toSorted((a, b) => a.email.localeCompare(b.email, 'en')),
  })),

  handled(inboxOperations.assign, async ({ params: { id = '' }, body: { operatorId }, note }) => {
    const owner = await conversations.findOwner(id);
    if (!owner) throw notFound();
    await inbox.assign({ conversationId: id, assistantId: owner.assistantId }, operatorId);
    note({ target: id, details: { assignee: operatorId } });
    return { conversationId: id, assigneeId: operatorId };
  }),

  handled(inboxOperations.snooze, async ({ params: { id = '' }, body: { until }, note }) => {
    const snoozedUntil = await inbox.snooze(id, until === null ? null : new Date(until));
    note({ target: id, details: { until: snoozedUntil?.toISOString() ?? null } });
    return { conversationId: id, snoozedUntil };
  }),

  handled(inboxOperations.read, async ({ params: { id = '' }, body: { seq }, operator }) => ({
    conversationId: id,
    readSeq: await inbox.markRead(id, operator.operatorId, seq),
  })),
];

const EXAMPLE = [
  'event: conversation\ndata: {"conversationId":"6f1d2c3b-8a49-4e5f-9b7a-1c2d3e4f5a6b","status":"escalated", …}',
  'event: presence\ndata: {"conversationId":"6f1d2c3b-8a49-4e5f-9b7a-1c2d3e4f5a6b","operatorId":"…","email":"a@example.com","state":"writing"}',
  'event: erased\ndata: {"conversationId":"6f1d2c3b-8a49-4e5f-9b7a-1c2d3e4f5a6b"}\nid: 826…',
].join('\n\n');

export const liveOperations = {
  live: operation({
    method: 'get',
    path: '/live',
    lasts: true,
    id: 'followInbox',
    summary: 'Follow the inbox as server-sent events',
    description:
      'Sends the row of every conversation that changes, within a second. With the header `Last-Event-ID`, it first sends what changed since then; after the event `reset`, load everything again.',
    audience: 'operators',
    resource: 'filtered',
    peopleOnly: true,
    headers: z.object({
      'Last-Event-ID': z.string().optional().meta({ description: 'The last `id` that the browser got.' }),
    }),
    contentType: 'text/event-stream',
    answer: z.string().meta({ description: 'Events `conversation`, `erased`, `presence` and `reset`.' }),
    answerExample: EXAMPLE,
    errors: ['rate_limited'],
  }),
  presence: operation({
    method: 'post',
    path: '/conversations/:id/presence',
    id: 'announcePresence',
    summary: 'Tell other operators that you read this conversation or write in it; expires after 15 s',
    audience: 'operators',
    resource: 'conversation',
    peopleOnly: true,
    body: z.object({ state: z.enum([...PRESENT_STATES, 'gone']) }),
    limited: true,
    errors: ['rate_limited'],
    // No audit line: nothing is stored for longer than 15 seconds.
  }),
};

/** A response that may have ended already, because the browser left or MongoDB was silent. */
const sinkOf = (res: Response): EventSink => {
  const left = signalOf(res);
  return {
    write: (text) => {
      if (res.writableEnded || res.destroyed) return;
      if (!res.headersSent) res.set(EVENT_STREAM_HEADERS); // not before, so that a refusal is JSON
      res.write(text);
    },
    end: () => res.end(),
    destroy: () => res.destroy(),
    get writableLength() {
      return res.writableLength;
    },
    drained: async () => {
      if (!res.writableNeedDrain || left.aborted) return;
      await once(res, 'drain', { signal: left }).catch(() => undefined);
    },
    left,
  };
};

type LiveDependencies = {
  live: LiveUpdates;
  conversations: Pick<ConversationStore, 'findOwner'>;
  rateLimiter: Pick<RateLimiter, 'forPresence'>;
};

export const liveRoutes = ({ live, conversations, rateLimiter }: LiveDependencies): Handled[] => [
  handled(liveOperations.live, async ({ operator, req, res }) => {
    if (req.method === 'HEAD') {
      res.set(EVENT_STREAM_HEADERS).end();
      return '';
    }
    const session = { sessionId: req.sessionID, operatorId: operator.operatorId };
    const from = req.get('Last-Event-ID') ?? null;
    const disconnect = await live.connect(sinkOf(res), { operator, session, from });
    res.on('close', disconnect);
    if (res.writableEnded || res.destroyed) disconnect();
    return '';
  }),

  handled(liveOperations.presence, async ({ params: { id = '' }, body: { state }, operator, res }) => {
    // Limited, because each state is kept for 15 s and sent to every browser.
    res.set(rateLimitHeaders(await rateLimiter.forPresence(operator.operatorId)));
    const owner = await conversations.findOwner(id);
    if (!owner) throw notFound();
    const { operatorId, email } = operator;
    const presence = { conversationId: id, assistantId: owner.assistantId, operatorId, email, state };
    await live.announce(presence).catch((cause: unknown) => {
      throw unavailable(cause);
    });
  }),
];
