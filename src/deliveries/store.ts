import type { mongo } from 'mongoose';
import { composeBody, EVENT_KINDS, type Included } from '../webhooks/event.ts';
import {
  deliveryModel,
  type ErrorKind,
  type FinalOutcome,
  IN_FLIGHT,
  type Outcome,
  stateBefore,
  type StoredDelivery,
} from './delivery.ts';
import type { OutboxEvent } from '../conversations/conversation.ts';
import type { Outbox } from '../conversations/outbox.ts';
import type { ErasedConversation } from '../conversations/erasure.ts';
import type { ConversationStore } from '../conversations/store.ts';
import { serverDate } from '../process/clock.ts';
import { collectionOf, DURABLE, type Indexed } from '../mongo/mongo.ts';
import { inBatches } from '../mongo/batches.ts';
import { type ClaimOptions, type Claims, createClaims } from './claims.ts';
import {
  type CountHourlyOutcomes,
  type CountOutcomes,
  createDeliveryList,
  createHourlyOutcomes,
  createOutcomeCounts,
  createRecordList,
  findPendingRow,
  type ListDeliveries,
  type ListRecords,
} from './list.ts';
import { createTestsAndResends, type TestsAndResends } from './tests-and-resends.ts';
import type { ListedDelivery } from './view.ts';

const DAY_MS = 86_400_000;

/** The latest deliveries that are looked at. Those that failed before TLS say nothing about the certificate. */
const LATEST = 20;

/** When the certificate that an endpoint showed last expires. Null if its latest deliveries used no TLS. */
type FindCertificateExpiry = (endpoint: { assistantId: string; endpointId: string }) => Promise<Date | null>;

const createCertificateExpiry =
  (deliveries: mongo.Collection<StoredDelivery>): FindCertificateExpiry =>
  async ({ assistantId, endpointId }) => {
    const latest = await deliveries
      .find({ assistantId, endpointId, event: { $in: EVENT_KINDS } }, { projection: { tls: 1, createdAt: 1 } })
      .sort({ createdAt: -1, _id: -1 })
      .limit(LATEST)
      .toArray();
    const last = latest.find(({ tls }) => tls?.daysToExpiry != null);
    const days = last?.tls?.daysToExpiry;
    return last && days != null ? new Date(last.createdAt.getTime() + days * DAY_MS) : null;
  };

/**
 * Composes the body of a pending event. The texts of a sent message are read from the history, because the outbox does
 * not hold them. Null if the message is gone, because its conversation was erased.
 */
const createComposeBody =
  ({ history }: Pick<ConversationStore, 'history'>) =>
  async (outbox: Outbox, event: OutboxEvent, include?: Included): Promise<string | null> => {
    if (event.event !== 'message.sent') return composeBody(event, outbox);
    const { seq, message_id: messageId } = event.payload;
    const message = await history.findMessage(outbox, { seq, messageId });
    return message && composeBody(event, outbox, { texts: message, ...(include && { include }) });
  };

const TEXTS = { body: 1, responseBody: 1, responseHeaders: 1 } as const;

/** The records of all deliveries. A claim is the insert of a record, so only one process can win a claim. */
export type DeliveryStore = Claims &
  TestsAndResends & {
    models: Indexed[];
    composeBody: (outbox: Outbox, event: OutboxEvent, include?: Included) => Promise<string | null>;
    readByIds: (ids: string[]) => Promise<Map<string, StoredDelivery>>;

    /** All records of a conversation. Only one answer of MongoDB is in memory, and the cursor ends with the reader. */
    streamOf: (conversationId: string) => AsyncIterable<StoredDelivery>;

    /** The records of those events that happened in a conversation at one of these times, oldest first. */
    findHappenedAt: (conversationId: string, times: Date[]) => Promise<StoredDelivery[]>;

    /** The outcomes of these deliveries by id. Ids without a record are left out. */
    readOutcomes: (ids: string[]) => Promise<Map<string, Outcome>>;

    /** Lists records, newest first, by cursor. Pending events have no record and are left out. */
    listRecords: ListRecords;

    /** Lists records, and pending events as `queued`, newest first, by cursor. */
    list: ListDeliveries;

    /** Finds a pending event and returns it as a list row. */
    findPending: (deliveryId: string) => Promise<ListedDelivery | null>;

    countOutcomes: CountOutcomes;
    countHourlyOutcomes: CountHourlyOutcomes;
    findCertificateExpiry: FindCertificateExpiry;

    /**
     * Removes the texts from a conversation's records. The records stay, because an event without a record could be
     * claimed again. Deliveries in flight are ended first. The hinted indexes contain only deliveries in flight, so
     * this is quick.
     */
    eraseConversation: (erased: ErasedConversation, until?: AbortSignal) => Promise<void>;
  };

export const createDeliveryStore = ({
  listEndpointIds,
  conversations,
  ...recording
}: ClaimOptions & {
  listEndpointIds: (assistantId: string) => Promise<string[]>;
  conversations: Pick<ConversationStore, 'history' | 'outbox'>;
}): DeliveryStore => {
  const model = deliveryModel(recording.connection);
  const deliveries = collectionOf<StoredDelivery>(model);
  const { outbox } = conversations;
  const listRecords = createRecordList(deliveries);

  const readOutcomes = async (ids: string[]): Promise<Map<string, Outcome>> => {
    if (ids.length === 0) return new Map();
    const rows = await deliveries
      .find({ _id: { $in: ids } })
      .project<{ _id: string; outcome: Outcome }>({ outcome: 1 })
      .toArray();
    return new Map(rows.map(({ _id, outcome }) => [_id, outcome]));
  };

  return {
    models: [model],
    ...createClaims(recording),
    ...createTestsAndResends(recording),
    composeBody: createComposeBody(conversations),

    readByIds: async (ids) => {
      const rows = await deliveries.find({ _id: { $in: ids } }).toArray();
      return new Map(rows.map((row) => [row._id, row]));
    },

    streamOf: (conversationId) => deliveries.find({ conversationId }),

    findHappenedAt: (conversationId, times) =>
      deliveries
        .find({ conversationId, happenedAt: { $in: times } })
        .sort({ createdAt: 1, _id: 1 })
        .toArray(),

    readOutcomes,

    listRecords,

    list: createDeliveryList({ listRecords, readOutcomes, outbox, listEndpointIds }),

    findPending: (deliveryId) => findPendingRow(outbox, deliveryId),

    countOutcomes: createOutcomeCounts(deliveries),
    countHourlyOutcomes: createHourlyOutcomes(deliveries),
    findCertificateExpiry: createCertificateExpiry(deliveries),

    eraseConversation: async ({ assistantId, conversationId }, until) => {
      const endedAt = serverDate();
      const end = (step: 'eraseQueued' | 'eraseSending', outcome: FinalOutcome, hint: string) => {
        const errorKind: ErrorKind = 'erased';
        const change = { $set: { outcome, errorKind, endedAt }, $unset: TEXTS };
        const those = { conversationId, ...(assistantId !== undefined && { assistantId }), ...stateBefore(step) };
        return deliveries.updateMany(those, change, { writeConcern: DURABLE, hint });
      };
      await end('eraseQueued', 'not_sent', IN_FLIGHT.queued);
      await end('eraseSending', 'unknown', IN_FLIGHT.sending);
      const all = { collection: deliveries, filter: { conversationId }, ...(until && { until }) };
      await inBatches(all, (some) => deliveries.updateMany(some, { $unset: TEXTS }, { writeConcern: DURABLE }));
    },
  };
};
