import * as z from 'zod';
import { EscalateRequest } from '../../conversations/http.ts';
import {
  AttributesView,
  type ConversationState,
  type StoredConversation,
  toAttributesView,
} from '../../conversations/conversation.ts';
import { HISTORY_MAX, historyCursor } from '../../conversations/history.ts';
import type { ConversationStore } from '../../conversations/store.ts';
import {
  ConversationView,
  HistoryView,
  MessageView,
  toHistoryView,
  toMessageView,
  toView,
} from '../../conversations/view.ts';
import { ERROR_KINDS, OUTCOMES, type StoredDelivery } from '../../events/delivery.ts';
import type { DeliveryStore } from '../../events/store.ts';
import { toDeliveryRow, toDeliveryView } from '../../events/view.ts';
import type { Evaluations } from '../../evaluation/evaluations.ts';
import type { QuestionSets } from '../../evaluation/question-sets.ts';
import { Expected } from '../../evaluation/question.ts';
import { sendJson, toJson } from '../../platform/http/json-body.ts';
import { createRestedWork } from '../../platform/http/request-slots.ts';
import { holderOf } from '../../platform/http/shares.ts';
import { cursor, validate, wholeNumber } from '../../platform/process/validation.ts';
import type { Inbox } from '../inbox.ts';
import { createListEvents, type ManagedTags, type Notes, readAllMessages, type ReadPositions } from '../records.ts';
import type { MissStore } from '../../insights/misses.ts';
import type { OperatorStore } from '../../operators/store.ts';
import type { OperatorCaller } from '../../operators/token.ts';
import { serverDate } from '../../platform/process/clock.ts';
import { invalid, notFound } from '../../platform/process/errors.ts';
import { MessageText } from '../../turns/turn.ts';
import { EventKind } from '../../conversations/event.ts';
import { filters, handling, listInTurn, NoteView, toInboxFilter } from './inbox.ts';
import {
  type Handled,
  handled,
  nextCursor,
  operation,
  readPage,
  TagName,
  time,
  timeCursor,
  uuid,
  WRITTEN,
} from '../../operators/operation.ts';

const CONVERSATIONS = 50;
const MESSAGES = 200;
const one = { audience: 'operators', resource: 'conversation' } as const;
const path = '/conversations/:id';

/** The conversation as callers see it, with the reasons for replies and for the lead score. */
export const ReadView = z
  .object({
    ...HistoryView.shape,
    assistantId: uuid,
    leadBecause: z.array(z.string()),
    seq: z.int().min(0).meta({ description: 'The number of the last final message; 0 if there is none.' }),
    ...handling,
    readSeq: z.int().nullable(),
    notes: z.array(NoteView),
    messages: z.array(z.object({ ...MessageView.shape, why: z.record(z.string(), z.unknown()).nullable() })),
  })
  .meta({ id: 'OperatorConversation' });

const state = (name: string, summary: string) =>
  ({
    ...one,
    method: 'post',
    path: `${path}/${name}`,
    summary,
    answer: ConversationView,
  }) as const;

export const conversationOperations = {
  list: operation({
    audience: 'operators',
    resource: 'assistant',
    method: 'get',
    path: '/assistants/:id/conversations',
    id: 'listInbox',
    isLarge: 'inTurn',
    summary: 'List conversations, latest change first',
    query: z.object({
      ...filters,
      sessionId: z.string().min(1).max(512).optional().meta({ description: 'Exactly this session_id.' }),
    }),
    answer: z.object({ conversations: z.array(ConversationView), nextCursor }),
  }),
  read: operation({
    ...one,
    resource: 'conversation or own playground', // the playground page reads the reasons for its replies here
    method: 'get',
    path,
    id: 'readConversation',
    isLarge: true,
    summary: 'Read a conversation with its messages, oldest first; with `afterSeq`, only newer ones',
    query: z.object({
      limit: wholeNumber(1, HISTORY_MAX).optional(),
      cursor: cursor.optional(),
      afterSeq: wholeNumber(0, 999_999_999).optional(),
    }),
    answer: ReadView,
  }),
  reply: operation({
    ...one,
    method: 'post',
    path: `${path}/replies`,
    id: 'replyToVisitor',
    summary: 'Write to the visitor',
    body: z.object({ content: MessageText }),
    status: 201,
    answer: z.object({ messageId: uuid, seq: z.int() }),
    audit: 'conversation.reply',
  }),
  escalate: operation({
    ...state('escalate', 'Escalate it to a person'),
    id: 'handToPerson',
    body: z.object({
      reason: EscalateRequest.shape.reason,
      leadScore: EscalateRequest.shape.lead_score.meta({ description: 'Replaces the stored one.' }),
    }),
    audit: 'conversation.escalate',
  }),
  handBack: operation({
    ...state('hand-back', 'Hand it back to the assistant'),
    id: 'handBackConversation',
    audit: 'conversation.hand_back',
    errors: ['validation_failed'],
  }),
  resolve: operation({
    ...state('resolve', 'Resolve it as the caller; with a token, as the named operator or the first owner'),
    id: 'resolveConversation',
    body: z.object({
      operatorId: uuid.optional().meta({ description: 'Who resolved it; only a token may name somebody else.' }),
    }),
    bodyOptional: true,
    audit: 'conversation.resolve',
  }),
  reopen: operation({
    ...state('reopen', 'Reopen it'),
    id: 'reopenConversation',
    audit: 'conversation.reopen',
  }),
  addTag: operation({
    ...state('tags', 'Add a tag, or change its colour'),
    id: 'tagConversation',
    body: TagName,
    audit: 'conversation.tag',
  }),
  removeTag: operation({
    ...one,
    method: 'delete',
    path: `${path}/tags/:tag`,
    id: 'untagConversation',
    summary: 'Remove a tag',
    answer: ConversationView,
    audit: 'conversation.untag',
    errors: ['validation_failed'],
  }),
};

type Dependencies = {
  conversations: Pick<ConversationStore, 'findById' | 'findOwner' | 'history' | 'transitions'>;
  notes: Pick<Notes, 'read'>;
  inbox: Inbox;
  managedTags: ManagedTags;
  operators: Pick<OperatorStore, 'findFirstOwner' | 'findOperator'>;
};
type Changed = { conversation: ConversationState };

export const conversationRoutes = ({
  conversations,
  notes,
  inbox,
  managedTags,
  operators,
}: Dependencies): Handled[] => {
  const { transitions } = conversations;
  const where = (conversationId = '') => ({ conversationId });
  const toState = async (transition: Promise<Changed>) => toView((await transition).conversation);

  /** The colour of a managed tag. A tag that is not managed has none. */
  const findColor = async (conversationId: string, tag: string): Promise<string | null> => {
    const owner = await conversations.findOwner(conversationId);
    return owner && managedTags.findColor(owner.assistantId, tag);
  };

  /**
   * Finds the operator for `resolved_by`. A signed-in operator can give only their own id. A token may name an existing
   * operator; if it names none, the first owner is used (docs/admin.md).
   */
  const resolverOf = async ({ operatorId, token }: OperatorCaller, named: string | undefined): Promise<string> => {
    if (!token) {
      if (named === undefined || named === operatorId) return operatorId;
      throw invalid('operatorId', 'not_you', 'must be omitted, or be your own id');
    }
    const resolver = await (named === undefined ? operators.findFirstOwner() : operators.findOperator(named));
    if (resolver) return resolver.operatorId;
    if (named === undefined) throw invalid('operatorId', 'required', 'must be given: there is no owner yet');
    throw invalid('operatorId', 'invalid', 'is not an operator');
  };

  return [
    handled(conversationOperations.list, async ({ params: { id = '' }, query, operator, ...call }) => {
      const { limit = CONVERSATIONS, ...rest } = query;
      const wanted = toInboxFilter(rest, operator.operatorId);
      const list = () => inbox.list({ assistantIds: [id], limit, signal: call.signal, ...wanted });
      const page = await listInTurn(call, rest, list);
      return { conversations: page.conversations.map(toView), nextCursor: page.next && timeCursor.encode(page.next) };
    }),

    handled(
      conversationOperations.read,
      async ({ params: { id = '' }, query: { cursor: at, afterSeq, limit }, operator, res }) => {
        const position = at === undefined ? undefined : historyCursor.decode(at);
        const conversation = await conversations.findById(id);
        if (!conversation) throw notFound();
        const newer =
          afterSeq === undefined ? undefined : { seq: afterSeq, index: Number.MAX_SAFE_INTEGER, waitingAfter: null };
        const from = position ?? newer;
        const page = await conversations.history.readPage(conversation, {
          ...(from && { from }),
          limit: limit ?? MESSAGES,
        });
        const nextCursor = page.next && historyCursor.encode(page.next);
        const view = toHistoryView(conversation, page, { nextCursor, withSources: true });
        const { assistantId, leadBecause, seq } = conversation;
        const messages = view.messages.map((message, index) => ({
          ...message,
          why: page.messages[index]?.why ?? null,
        }));
        const details = await inbox.readDetails(conversation, operator.operatorId);
        async function* inPage(): AsyncGenerator<typeof messages> {
          yield messages;
        }
        const head = { ...view, messages: undefined, assistantId, leadBecause, seq, ...details };
        await sendJson(res, toJson(head, { notes: notes.read(conversation.conversationId), messages: inPage() }));
        return WRITTEN;
      },
    ),

    handled(conversationOperations.reply, async ({ params: { id = '' }, body: { content }, note }) => {
      const { messageId, seq } = await transitions.replyAsOperator(where(id), content);
      note({ target: id, details: { messageId } });
      return { messageId, seq };
    }),

    handled(conversationOperations.escalate, ({ params: { id }, body: { reason, leadScore } }) =>
      toState(
        transitions.escalate(where(id), {
          ...(reason != null && { reason }),
          ...(leadScore != null && { leadScore }),
        }),
      ),
    ),
    handled(conversationOperations.handBack, ({ params: { id } }) => toState(transitions.handBack(where(id)))),
    handled(conversationOperations.resolve, async ({ params: { id }, operator, body: { operatorId } }) =>
      toState(transitions.resolve(where(id), await resolverOf(operator, operatorId))),
    ),
    handled(conversationOperations.reopen, ({ params: { id } }) => toState(transitions.reopen(where(id)))),

    handled(conversationOperations.addTag, async ({ params: { id = '' }, body, note }) => {
      const color = body.color ?? (await findColor(id, body.tag));
      note({ target: id, details: { ...body, color } });
      return toState(transitions.addTag(where(id), { ...body, color }));
    }),
    handled(conversationOperations.removeTag, ({ params: { id = '', tag: named }, note }) => {
      const { tag } = validate(TagName.pick({ tag: true }), { tag: named });
      note({ target: id, details: { tag } });
      return toState(transitions.removeTag(where(id), tag));
    }),
  ];
};

const DeliveryStub = z.object({
  deliveryId: z.string(),
  endpointId: uuid,
  outcome: z.enum(OUTCOMES),
  errorKind: z.enum(ERROR_KINDS).nullable(),
  status: z.int().nullable(),
});

const ExportView = z
  .object({
    exportedAt: time,
    conversation: z.object({
      ...ConversationView.shape,
      assistantId: uuid,
      leadBecause: z.array(z.string()),
      ...handling,
    }),
    attributes: AttributesView,
    notes: z.array(NoteView),
    readPositions: z.array(z.object({ operatorId: z.string(), seq: z.int() })),
    misses: z.array(
      z.object({
        missId: z.string(),
        question: z.string().nullable(),
        examples: z.array(z.object({ question: z.string(), at: time })),
        answer: z.string().nullable(),
      }),
    ),
    questions: z
      .array(z.object({ setId: uuid, caseId: uuid, question: z.string(), expected: Expected }))
      .meta({ description: 'Questions of question sets that come from it.' }),
    evaluations: z.array(z.object({ evaluationId: uuid, question: z.string(), reply: z.string().nullable() })),
    messages: z.array(z.object({ ...MessageView.shape, why: z.record(z.string(), z.unknown()).optional() })),
    deliveries: z
      .array(z.looseObject({ ...DeliveryStub.shape, eventId: uuid, event: EventKind, createdAt: time }))
      .meta({ description: 'Owners get the requests and responses too.' }),
  })
  .meta({ id: 'ConversationExport' });

export const conversationDataOperations = {
  events: operation({
    ...one,
    method: 'get',
    path: `${path}/events`,
    id: 'listConversationEvents',
    isLarge: 'inTurn',
    summary: 'List its newest events with their deliveries, newest first: 200 deliveries together',
    answer: z.object({
      events: z.array(
        z.object({
          eventId: uuid,
          event: EventKind,
          at: time,
          seq: z.int().nullable().meta({ description: 'The number of its message, if it has one.' }),
          deliveries: z.array(DeliveryStub),
        }),
      ),
    }),
  }),
  export: operation({
    ...one,
    method: 'get',
    path: `${path}/export`,
    id: 'exportConversation',
    isLarge: true,
    summary: 'Download everything that is stored about it',
    answer: ExportView,
    answerHeaders: { 'Content-Disposition': z.string() },
    audit: 'conversation.export',
  }),
  erase: operation({
    ...one,
    audience: 'owners',
    method: 'delete',
    path,
    id: 'eraseForVisitor',
    summary: 'Erase it with all its messages, for good',
    audit: 'conversation.erase',
  }),
};

/** Removes the fields that only owners may see. */
const toAgentsView = (ownData: StoredDelivery) => {
  const { url: _url, errorDetail: _detail, ...row } = toDeliveryRow(ownData);
  return row;
};

type Export = z.input<typeof ExportView>;

type DataDependencies = {
  conversations: ConversationStore;
  deliveries: DeliveryStore;
  inbox: Pick<Inbox, 'readDetails'>;
  notes: Notes;
  readPositions: ReadPositions;
  insights: { misses: Pick<MissStore, 'readTextsOf'> };
  questionSets: Pick<QuestionSets, 'readTextsOf'>;
  evaluations: Pick<Evaluations, 'readTextsOf'>;
  /** Tells the callers who wait for a reply in this conversation that no reply will come. */
  onErased: (conversation: StoredConversation) => void;
};

export const conversationDataRoutes = ({
  conversations,
  deliveries,
  inbox,
  notes,
  readPositions,
  insights: { misses },
  questionSets,
  evaluations,
  onErased,
}: DataDependencies): Handled[] => {
  const listEvents = createListEvents({ conversations, deliveries });
  // Its last two hundred messages may have some MiB.
  const rested = createRestedWork();
  const getConversation = async (id = ''): Promise<StoredConversation> => {
    const found = await conversations.findById(id);
    if (!found || found.channel === 'playground') throw notFound();
    return found;
  };

  return [
    handled(conversationDataOperations.events, ({ params: { id }, ...call }) => {
      const list = async () => ({ events: await listEvents(await getConversation(id)) });
      return rested(holderOf(call.req, call.res), () => readPage(call, list), call.signal);
    }),

    handled(conversationDataOperations.export, async ({ params: { id }, operator, res }) => {
      const conversation = await getConversation(id);
      const { conversationId, assistantId } = conversation;
      const { readSeq: _readSeq, ...details } = await inbox.readDetails(conversation, operator.operatorId);
      const head: Pick<Export, 'exportedAt' | 'conversation' | 'attributes'> = {
        exportedAt: serverDate(),
        conversation: { ...toView(conversation), assistantId, leadBecause: conversation.leadBecause, ...details },
        attributes: toAttributesView(conversation.attributes),
      };
      async function* views(): AsyncGenerator<Export['messages']> {
        for await (const page of readAllMessages(conversations, conversation))
          yield page.map((ownData) => ({ ...toMessageView(ownData, true), ...(ownData.why && { why: ownData.why }) }));
      }
      async function* sent(): AsyncGenerator<Export['deliveries']> {
        const toOne = operator.role === 'owner' ? toDeliveryView : toAgentsView;
        for await (const ownData of deliveries.streamOf(conversationId)) yield [toOne(ownData)];
      }
      res.setHeader('Content-Disposition', `attachment; filename="conversation-${conversationId}.json"`);
      // An operator who leaves early has seen a part, so the audit line is written all the same.
      const lists = {
        notes: notes.read(conversationId),
        readPositions: [await readPositions.list(conversationId)],
        misses: misses.readTextsOf(conversationId),
        questions: questionSets.readTextsOf(conversationId),
        evaluations: evaluations.readTextsOf(conversationId),
        messages: views(),
        deliveries: sent(),
      };
      await sendJson(res, toJson(head, lists));
      return WRITTEN;
    }),

    handled(conversationDataOperations.erase, async ({ params: { id } }) => {
      const { erased, purged } = await conversations.erase(await getConversation(id));
      if (erased) onErased(erased);
      await purged;
    }),
  ];
};
