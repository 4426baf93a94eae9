import { serverDate } from '../platform/clock.ts';
import { collectionOf, DURABLE } from '../platform/mongo.ts';
import { createClaims, type Recording } from './claims.ts';
import {
  deliveryModel,
  type ErrorKind,
  type FinalOutcome,
  leaving,
  type Outcome,
  type StoredDelivery,
} from './delivery.ts';
import { createDeliveryList, createOutcomeCounts } from './list.ts';
import { createQueued } from './queued.ts';

/** The record of every delivery, and with it the licence to send: a claim is an insert that only one can win. */
export const createDeliveryStore = (recording: Recording) => {
  const model = deliveryModel(recording.connection);
  const deliveries = collectionOf<StoredDelivery>(model);

  return {
    models: [model],
    ...createClaims(recording),
    ...createQueued(recording),

    readByIds: async (ids: string[]): Promise<Map<string, StoredDelivery>> => {
      const rows = await deliveries.find({ _id: { $in: ids } }).toArray();
      return new Map(rows.map((row) => [row._id, row]));
    },

    /** Only how far each is; ids without a record are left out. */
    readOutcomes: async (ids: string[]): Promise<Map<string, Outcome>> => {
      if (ids.length === 0) return new Map();
      const rows = await deliveries
        .find({ _id: { $in: ids } })
        .project<{ _id: string; outcome: Outcome }>({ outcome: 1 })
        .toArray();
      return new Map(rows.map(({ _id, outcome }) => [_id, outcome]));
    },

    /** Newest first, by cursor. What still waits in an outbox has no record and is not among them. */
    listDeliveries: createDeliveryList(deliveries),

    countOutcomes: createOutcomeCounts(deliveries),

    /** Erasure keeps the records, since a record deleted permits a second claim; their texts go. */
    eraseConversation: async (conversationId: string): Promise<void> => {
      const texts = { body: 1, responseBody: 1, responseHeaders: 1 } as const;
      const endedAt = serverDate();
      const end = (step: 'eraseQueued' | 'eraseSending', outcome: FinalOutcome) => {
        const errorKind: ErrorKind = 'erased';
        const change = { $set: { outcome, errorKind, endedAt }, $unset: texts };
        return deliveries.updateMany({ conversationId, ...leaving(step) }, change, { writeConcern: DURABLE });
      };
      await end('eraseQueued', 'not_sent');
      await end('eraseSending', 'unknown');
      await deliveries.updateMany({ conversationId }, { $unset: texts }, { writeConcern: DURABLE });
    },
  };
};

export type DeliveryStore = ReturnType<typeof createDeliveryStore>;
