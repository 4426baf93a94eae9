import { setTimeout as sleep } from 'node:timers/promises';
import type { Service } from '../../src/service.ts';
import { findUnfinished } from '../service/evidence.ts';
import type { Verdict } from '../support/table.ts';

const LOOK_EVERY_MS = 500;

/** Waits until no turn and no event is pending. Returns the time that it took, or what is left. */
export const untilDone = async (service: Service, withinMs: number): Promise<{ unfinished: string[]; ms: number }> => {
  const startedAt = performance.now();
  for (;;) {
    const unfinished = await findUnfinished(service);
    const ms = performance.now() - startedAt;
    if (unfinished.length === 0 || ms > withinMs) return { unfinished, ms };
    await sleep(LOOK_EVERY_MS);
  }
};

/** Counts the deliveries by outcome. The receiver accepts everything, so every event must be delivered, and only once. */
export const judgeEvents = async ({ mongo }: Service): Promise<Verdict[]> => {
  const deliveries = mongo.collection('deliveries');
  const [outcomes, [received], [conversations]] = await Promise.all([
    deliveries
      .aggregate<{ _id: string; count: number }>([{ $group: { _id: '$outcome', count: { $sum: 1 } } }])
      .toArray(),
    deliveries.aggregate<{ count: number }>([{ $match: { event: 'message.received' } }, { $count: 'count' }]).toArray(),
    mongo
      .collection('conversations')
      .aggregate<{ turns: number; count: number; changed: number }>([
        {
          $group: {
            _id: null,
            turns: { $sum: '$seq' },
            count: { $sum: 1 },
            changed: { $sum: { $cond: [{ $eq: ['$status', 'open'] }, 0, 1] } },
          },
        },
      ])
      .toArray(),
  ]);
  const other = outcomes.filter(({ _id }) => _id !== 'delivered').reduce((sum, { count }) => sum + count, 0);
  const delivered = outcomes.find(({ _id }) => _id === 'delivered')?.count ?? 0;
  const expected = (conversations?.turns ?? 0) + (conversations?.count ?? 0);
  return [
    {
      rule: 'events delivered: one for each turn and each conversation',
      found: delivered,
      kept: delivered === expected,
    },
    {
      rule: 'turns without an announcement',
      found: (conversations?.turns ?? 0) - (received?.count ?? 0),
      kept: conversations?.turns === received?.count,
    },
    { rule: 'events with another outcome', found: other, kept: other === 0 },
    // They would be answered without the engine, and the figures would look too good.
    { rule: 'conversations handed off', found: conversations?.changed ?? 0, kept: conversations?.changed === 0 },
  ];
};
