import * as z from 'zod';
import { AttributesView, toAttributesView } from '../conversations/attributes.ts';
import type { StoredConversation } from '../conversations/conversation.ts';
import type { ConversationStore } from '../conversations/store.ts';
import { ConversationView, MessageView, toMessageView, toView } from '../conversations/view.ts';
import { ERROR_KINDS, OUTCOMES, type StoredDelivery } from '../deliveries/delivery.ts';
import { toDeliveryRow, toDeliveryView } from '../deliveries/view.ts';
import type { DeliveryStore } from '../deliveries/store.ts';
import { createListEvents, readAllMessages } from '../inbox/records.ts';
import type { Inbox } from '../inbox/inbox.ts';
import type { Notes } from '../inbox/notes.ts';
import type { ReadPositions } from '../inbox/read-positions.ts';
import type { MissStore } from '../insights/misses.ts';
import { serverDate } from '../process/clock.ts';
import { notFound } from '../process/errors.ts';
import { sendJson, toJson } from '../http/json-body.ts';
import { EventKind } from '../webhooks/event.ts';
import { handling, NoteView } from './inbox.ts';
import { type Handled, handled, operation, WRITTEN } from './operation.ts';
import { time, uuid } from './wire.ts';

const one = { tag: 'Operators', audience: 'operators', resource: 'conversation', errors: ['not_found'] } as const;
const path = '/conversations/:id';

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
    isLarge: true,
    summary: 'List its events with their deliveries, newest first: those of the newest 200 deliveries',
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

/** Hides owners' fields. */
const toAgentsView = (one: StoredDelivery) => {
  const { url: _url, errorDetail: _detail, ...row } = toDeliveryRow(one);
  return row;
};

type Export = z.input<typeof ExportView>;

type Dependencies = {
  conversations: ConversationStore;
  deliveries: DeliveryStore;
  inbox: Pick<Inbox, 'readDetails'>;
  notes: Notes;
  readPositions: ReadPositions;
  insights: { misses: Pick<MissStore, 'findTextsOf'> };
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
  onErased,
}: Dependencies): Handled[] => {
  const listEvents = createListEvents({ conversations, deliveries });
  const getConversation = async (id = ''): Promise<StoredConversation> => {
    const found = await conversations.findById(id);
    if (!found || found.channel === 'playground') throw notFound();
    return found;
  };

  return [
    handled(conversationDataOperations.events, async ({ params: { id } }) => ({
      events: await listEvents(await getConversation(id)),
    })),

    handled(conversationDataOperations.export, async ({ params: { id }, operator, res }) => {
      const conversation = await getConversation(id);
      const { conversationId, assistantId } = conversation;
      const { readSeq: _readSeq, ...details } = await inbox.readDetails(conversation, operator.operatorId);
      const head: Omit<Export, 'notes' | 'messages' | 'deliveries'> = {
        exportedAt: serverDate(),
        conversation: { ...toView(conversation), assistantId, leadBecause: conversation.leadBecause, ...details },
        attributes: toAttributesView(conversation.attributes),
        readPositions: await readPositions.list(conversationId),
        misses: await misses.findTextsOf(conversationId),
      };
      async function* views(): AsyncGenerator<Export['messages']> {
        for await (const page of readAllMessages(conversations, conversation))
          yield page.map((one) => ({ ...toMessageView(one, true), ...(one.why && { why: one.why }) }));
      }
      async function* sent(): AsyncGenerator<Export['deliveries']> {
        const toOne = operator.role === 'owner' ? toDeliveryView : toAgentsView;
        for await (const one of deliveries.streamOf(conversationId)) yield [toOne(one)];
      }
      res.setHeader('Content-Disposition', `attachment; filename="conversation-${conversationId}.json"`);
      // An operator who leaves has seen a part, so the audit trail needs the line all the same.
      await sendJson(res, toJson(head, { notes: notes.read(conversationId), messages: views(), deliveries: sent() }));
      return WRITTEN;
    }),

    handled(conversationDataOperations.erase, async ({ params: { id } }) => {
      const { erased, purged } = await conversations.erase(await getConversation(id));
      if (erased) onErased(erased);
      await purged;
    }),
  ];
};
