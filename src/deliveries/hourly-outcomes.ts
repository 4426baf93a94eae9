import type { mongo } from 'mongoose';
import { timeLimit } from '../platform/mongo.ts';
import { EVENT_KINDS } from '../webhooks/event.ts';
import type { FinalOutcome, StoredDelivery } from './delivery.ts';
import { IN_FLIGHT } from './record-list.ts';

const COUNT_WITHIN_MS = 5_000;
const FAILURES = ['rejected', 'not_sent', 'unknown'] as const;

type HourlyOutcomes = { hour: Date; outcomes: Record<FinalOutcome, number> };

/**
 * Counts the deliveries of each hour by outcome. Reads only indexes. `delivered` is computed: all deliveries minus those
 * with other outcomes. Deliveries in flight are left out, so an hour is complete only after its deliveries have ended.
 */
export const createHourlyOutcomes =
  (deliveries: mongo.Collection<StoredDelivery>) =>
  async (assistantId: string, { from, to }: { from: Date; to: Date }): Promise<HourlyOutcomes[]> => {
    const endpoints = await deliveries.distinct('endpointId', { assistantId });
    if (endpoints.length === 0) return [];
    const createdAt = { $gte: from, $lt: to };
    const hour = { $dateTrunc: { date: '$createdAt', unit: 'hour' } };
    const countInFlight = (outcome: keyof typeof IN_FLIGHT) =>
      deliveries
        .aggregate<{ _id: Date; count: number }>(
          [
            { $match: { assistantId, outcome, event: { $in: EVENT_KINDS }, createdAt } },
            { $group: { _id: hour, count: { $sum: 1 } } },
          ],
          { hint: IN_FLIGHT[outcome], ...timeLimit(COUNT_WITHIN_MS) },
        )
        .toArray();
    const [all, failed, queued, sending] = await Promise.all([
      deliveries
        .aggregate<{ _id: Date; count: number }>(
          [
            { $match: { assistantId, endpointId: { $in: endpoints }, event: { $in: EVENT_KINDS }, createdAt } },
            { $group: { _id: hour, count: { $sum: 1 } } },
          ],
          timeLimit(COUNT_WITHIN_MS),
        )
        .toArray(),
      deliveries
        .aggregate<{ _id: { hour: Date; outcome: (typeof FAILURES)[number] }; count: number }>(
          [
            { $match: { assistantId, outcome: { $in: FAILURES }, createdAt } },
            { $group: { _id: { hour, outcome: '$outcome' }, count: { $sum: 1 } } },
          ],
          { hint: 'failures', ...timeLimit(COUNT_WITHIN_MS) },
        )
        .toArray(),
      countInFlight('queued'),
      countInFlight('sending'),
    ]);
    const inFlight = [...queued, ...sending];
    return all.map(({ _id, count }) => {
      const own = failed.filter((one) => one._id.hour.getTime() === _id.getTime());
      const countOf = (outcome: (typeof FAILURES)[number]): number =>
        own.find((one) => one._id.outcome === outcome)?.count ?? 0;
      const outcomes = { rejected: countOf('rejected'), not_sent: countOf('not_sent'), unknown: countOf('unknown') };
      const others = inFlight
        .filter((one) => one._id.getTime() === _id.getTime())
        .reduce((sum, one) => sum + one.count, outcomes.rejected + outcomes.not_sent + outcomes.unknown);
      return { hour: _id, outcomes: { ...outcomes, delivered: Math.max(0, count - others) } };
    });
  };
