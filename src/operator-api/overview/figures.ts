import { LRUCache } from 'lru-cache';
import * as z from 'zod';
import type { DeliveryStore } from '../../deliveries/store.ts';
import {
  COUNTERS,
  ESCALATION_REASONS,
  HOUR_MS,
  hourOf,
  incrementId,
  type StoredFigures,
} from '../../insights/figures.ts';
import type { Insights } from '../../insights/store.ts';
import { type Days, summarise, type Summary, summarySince } from '../../insights/summary.ts';
import { serverNow } from '../../platform/clock.ts';

const count = z.int().min(0);
const countsOf = <Name extends string>(names: readonly Name[]) =>
  z.object(Object.fromEntries(names.map((name) => [name, count])) as Record<Name, typeof count>); // one for each name

const Slot = z.object({
  ...countsOf(COUNTERS).shape,
  escalated: countsOf(ESCALATION_REASONS),
  deliveries: countsOf(['delivered', 'rejected', 'not_sent', 'unknown']),
  replyMs: z.object({ p50: count, p95: count }).nullable().meta({ description: 'At most a quarter too high.' }),
});

export const FiguresView = z
  .object({
    from: z.string().meta({ description: 'The first day, in the time zone of the request.', example: '2026-05-04' }),
    totals: Slot,
    slots: z
      .array(z.object({ at: z.string(), ...Slot.shape }))
      .meta({ description: 'One for each day, or for each hour of today.' }),
    busiestHours: z.array(count).length(24).meta({ description: 'Turns by hour of the day.' }),
  })
  .meta({ id: 'Figures' });

/** The longest time whose deliveries are counted from their records, if no worker has counted them yet. */
const UNCOUNTED_MAX_MS = 24 * HOUR_MS;

/**
 * Caches the counts of an assistant for twenty times as long as the counting took, because pages ask every few seconds.
 */
export const cachedByCost = <Counts extends object>(count: (assistantId: string) => Promise<Counts>) => {
  const known = new LRUCache<string, Counts>({ max: 1000, ttl: 1 });
  return async (assistantId: string): Promise<Counts> => {
    const last = known.get(assistantId);
    if (last) return last;
    const startedAt = performance.now();
    const counts = await count(assistantId);
    known.set(assistantId, counts, { ttl: Math.ceil((performance.now() - startedAt) * 20) });
    return counts;
  };
};

/** Reads an assistant's figures: the projected hours, and the deliveries of the last hours from their records. */
export const createReadFigures = ({ insights, deliveries }: { insights: Insights; deliveries: DeliveryStore }) => {
  const latestDeliveries = cachedByCost(async (assistantId) => {
    const counted = (await insights.deliveryFigures.countedTo(assistantId))?.getTime() ?? 0;
    const to = new Date(serverNow() + HOUR_MS);
    // A whole hour, because the counts from the records replace the stored counts of their hours.
    const from = hourOf(new Date(Math.max(counted, to.getTime() - UNCOUNTED_MAX_MS)));
    const hours = await deliveries.countHourlyOutcomes(assistantId, { from, to });
    return hours.map(({ hour, outcomes }): StoredFigures => {
      const own = { assistantId, hour };
      return { _id: incrementId(own), ...own, deliveries: outcomes };
    });
  });

  return async (
    assistantId: string,
    { days, timeZone }: { days: Days; timeZone: string },
  ): Promise<{ figures: Summary; hours: StoredFigures[] }> => {
    const now = serverNow();
    const [hours, latest] = await Promise.all([
      insights.figures.listHours(assistantId, summarySince(days, now)),
      latestDeliveries(assistantId),
    ]);
    // The records know the latest hours better than the projection, which counts an hour after its end.
    const uncounted = new Set(latest.map(({ _id }) => _id));
    const known = hours.map((hour) => (uncounted.has(hour._id) ? { ...hour, deliveries: undefined } : hour));
    return { figures: summarise([...known, ...latest] as StoredFigures[], { days, timeZone, now }), hours };
  };
};
