import { LRUCache } from 'lru-cache';
import type { Connection } from 'mongoose';
import { serverNow } from '../process/clock.ts';
import type { Logger } from '../process/logger.ts';
import { collectionOf } from '../mongo/mongo.ts';
import { exceededTimeLimit } from '../mongo/failures.ts';
import { type Figures, HOUR_MS, incrementId, type StoredFigures } from './figures.ts';

/** An hour is counted this long after its end, because all of its deliveries have ended then. */
const ENDED_AFTER_MS = 15 * 60_000;
const KEPT_MS = 30 * 24 * HOUR_MS;
/** One step counts at most this time, so that it ends soon even for an assistant with a million deliveries. */
const STEP_MS = 24 * HOUR_MS;
/** How long one call may work. */
const WORK_MS = 250;
/** Bounded without `max`, for which the cache would reserve memory for all entries at the start. */
const REMEMBERED = { maxSize: 10_000, sizeCalculation: () => 1 };

export type OutcomeCounts = Record<'delivered' | 'rejected' | 'not_sent' | 'unknown', number>;
type CountHours = (
  assistantId: string,
  range: { from: Date; to: Date },
) => Promise<{ hour: Date; outcomes: OutcomeCounts }[]>;

/** The last hour whose deliveries have all ended. */
export const lastEndedHour = (): Date => new Date(Math.floor((serverNow() - ENDED_AFTER_MS) / HOUR_MS) * HOUR_MS);

const idOf = (assistantId: string): string => `deliveries:${assistantId}`;

/**
 * Copies the counts of ended deliveries into the hourly figures, from the records. Counting an hour again gives the same
 * result, so no transaction is needed.
 */
export type DeliveryFigures = {
  /** The time up to which an assistant's deliveries are counted. */
  countedTo: (assistantId: string) => Promise<Date | null>;

  /**
   * Counts hours of these assistants, step by step, until its time is up. Assistants take turns, and a count that
   * fails stops no other assistant's. True if all hours are counted.
   */
  countEnded: (
    assistantIds: string[],
    countHours: CountHours,
    options: { draining: AbortSignal; logger: Logger },
  ) => Promise<boolean>;
};

export const createDeliveryFigures = (connection: Connection, figures: Figures): DeliveryFigures => {
  const hours = collectionOf(figures.model);
  const positions = connection.collection<{ _id: string; to: Date }>('projection');
  /** When an assistant's deliveries were last counted here. Losing an entry only changes the order. */
  const triedAt = new LRUCache<string, number>(REMEMBERED);
  /** Assistants whose deliveries of a day took too long to count. Theirs are counted by the hour. */
  const slow = new LRUCache<string, true>(REMEMBERED);

  const store = async (assistantId: string, counted: Awaited<ReturnType<CountHours>>): Promise<void> => {
    if (counted.length === 0) return;
    await hours.bulkWrite(
      counted.map(({ hour, outcomes }) => ({
        updateOne: {
          filter: { _id: incrementId({ assistantId, hour }) },
          update: { $set: { deliveries: outcomes }, $setOnInsert: { assistantId, hour } } as Partial<StoredFigures>,
          upsert: true,
        },
      })),
    );
  };

  return {
    countedTo: async (assistantId) => (await positions.findOne({ _id: idOf(assistantId) }))?.to ?? null,

    countEnded: async (assistantIds, countHours, { draining, logger }) => {
      const end = lastEndedHour();
      const known = await positions.find({ _id: { $in: assistantIds.map(idOf) } }).toArray();
      const countedTo = new Map(known.map(({ _id, to }) => [_id, to]));
      const until = performance.now() + WORK_MS;
      const positionOf = (assistantId: string): Date =>
        countedTo.get(idOf(assistantId)) ?? new Date(end.getTime() - KEPT_MS);
      let hasFailed = false;
      // The one that has waited longest comes first, so that all of them get their turn over several calls.
      let behind = assistantIds
        .filter((id) => positionOf(id) < end)
        .toSorted((a, b) => (triedAt.get(a) ?? 0) - (triedAt.get(b) ?? 0));
      while (behind.length > 0) {
        for (const assistantId of behind) {
          if (draining.aborted || performance.now() > until) return false;
          triedAt.set(assistantId, performance.now());
          const from = positionOf(assistantId);
          const to = new Date(Math.min(end.getTime(), from.getTime() + (slow.has(assistantId) ? HOUR_MS : STEP_MS)));
          try {
            await store(assistantId, await countHours(assistantId, { from, to }));
            await positions.updateOne({ _id: idOf(assistantId) }, { $set: { to } }, { upsert: true });
            countedTo.set(idOf(assistantId), to);
          } catch (cause) {
            hasFailed = true;
            if (exceededTimeLimit(cause)) slow.set(assistantId, true);
            countedTo.set(idOf(assistantId), end); // not again in this call
            logger.warn({ err: cause, assistantId }, 'deliveries were not counted; the next round tries again');
          }
        }
        behind = behind.filter((id) => positionOf(id) < end);
      }
      return !hasFailed;
    },
  };
};
