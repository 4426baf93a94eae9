import { serverDate } from '../platform/clock.ts';
import { collectionOf, DURABLE } from '../platform/mongo.ts';
import { inBatches } from '../platform/mongo-batches.ts';
import { createClaims, type ClaimOptions } from './claims.ts';
import {
  deliveryModel,
  type ErrorKind,
  type FinalOutcome,
  stateBefore,
  type Outcome,
  type StoredDelivery,
} from './delivery.ts';
import { createComposeBody } from './event-body.ts';
import { createCertificateExpiry } from './endpoint-certificates.ts';
import { createHourlyOutcomes } from './hourly-outcomes.ts';
import { createDeliveryList, findPendingRow } from './list.ts';
import { createOutboxStore } from './outbox-store.ts';
import { createPending } from './pending.ts';
import { createOutcomeCounts, createRecordList, IN_FLIGHT } from './record-list.ts';
import { createTestsAndResends } from './tests-and-resends.ts';

const TEXTS = { body: 1, responseBody: 1, responseHeaders: 1 } as const;

/** The records of all deliveries. A claim is the insert of a record, so only one process can win a claim. */
export const createDeliveryStore = (recording: ClaimOptions) => {
  const model = deliveryModel(recording.connection);
  const deliveries = collectionOf<StoredDelivery>(model);
  const pending = createPending(recording.connection);
  const listRecords = createRecordList(deliveries);

  /** The outcomes of these deliveries by id. Ids without a record are left out. */
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
    outbox: createOutboxStore(recording.connection),
    pending,
    composeBody: createComposeBody(recording.connection),

    readByIds: async (ids: string[]): Promise<Map<string, StoredDelivery>> => {
      const rows = await deliveries.find({ _id: { $in: ids } }).toArray();
      return new Map(rows.map((row) => [row._id, row]));
    },

    /** The records of those events that happened in a conversation at one of these times, oldest first. */
    findHappenedAt: (conversationId: string, times: Date[]): Promise<StoredDelivery[]> =>
      deliveries
        .find({ conversationId, happenedAt: { $in: times } })
        .sort({ createdAt: 1, _id: 1 })
        .toArray(),

    readOutcomes,

    /** Lists records, newest first, by cursor. Pending events have no record and are left out. */
    listRecords,

    /** Lists records, and pending events as `queued`, newest first, by cursor. */
    list: createDeliveryList({ listRecords, readOutcomes, pending }),

    /** Finds a pending event and returns it as a list row. */
    findPending: (deliveryId: string) => findPendingRow(pending, deliveryId),

    countOutcomes: createOutcomeCounts(deliveries),
    countHourlyOutcomes: createHourlyOutcomes(deliveries),
    findCertificateExpiry: createCertificateExpiry(deliveries),

    /**
     * Removes the texts from a conversation's records. The records stay, because an event without a record could be
     * claimed again. Deliveries in flight are ended first. The hinted indexes contain only deliveries in flight, so
     * this is quick.
     */
    eraseConversation: async (conversationId: string, until?: AbortSignal): Promise<void> => {
      const endedAt = serverDate();
      const end = (step: 'eraseQueued' | 'eraseSending', outcome: FinalOutcome, hint: string) => {
        const errorKind: ErrorKind = 'erased';
        const change = { $set: { outcome, errorKind, endedAt }, $unset: TEXTS };
        return deliveries.updateMany({ conversationId, ...stateBefore(step) }, change, { writeConcern: DURABLE, hint });
      };
      await end('eraseQueued', 'not_sent', IN_FLIGHT.queued);
      await end('eraseSending', 'unknown', IN_FLIGHT.sending);
      const all = { collection: deliveries, filter: { conversationId }, ...(until && { until }) };
      await inBatches(all, (some) => deliveries.updateMany(some, { $unset: TEXTS }, { writeConcern: DURABLE }));
    },
  };
};

export type DeliveryStore = ReturnType<typeof createDeliveryStore>;
