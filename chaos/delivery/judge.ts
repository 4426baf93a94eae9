import { setTimeout as sleep } from 'node:timers/promises';
import { isFinal, type StoredDelivery } from '../../src/events/delivery.ts';
import type { Service } from '../../src/service.ts';
import type { FaultReport } from './faults.ts';
import type { CountingReceiver } from '../../test/kit/counting-receiver.ts';

const SETTLED_WITHIN_MS = 60_000;
const UNKNOWN_A_KILL = 100;

type Ends = { rows: Pick<StoredDelivery, '_id' | 'eventId' | 'outcome' | 'errorKind' | 'worker'>[]; waiting: number };

/** Reads every delivery record and every pending event. Call it after all work has stopped. */
export const readEnds = async ({ mongo }: Service, events: Set<string>): Promise<Ends> => {
  const read = async (): Promise<Ends> => ({
    rows: (await mongo
      .collection('deliveries')
      .find({}, { projection: { eventId: 1, outcome: 1, errorKind: 1, worker: 1 } })
      .toArray()) as unknown as Ends['rows'],
    waiting: await mongo.collection('conversations').countDocuments({ 'outbox.0': { $exists: true } }),
  });
  const until = performance.now() + SETTLED_WITHIN_MS;
  for (;;) {
    const ends = await read();
    const final = ends.rows.filter(({ outcome }) => isFinal(outcome)).length;
    if ((final >= events.size && ends.waiting === 0) || performance.now() > until) return ends;
    await sleep(500);
  }
};

export type Verdict = { what: string; found: number | string; limit: string; ok: boolean | null }[];

type Evidence = Pick<FaultReport, 'kills' | 'wipes' | 'seconds'> & {
  ends: Ends;
  events: Set<string>;
  receiver: CountingReceiver;
};

export const judge = ({ ends, events, receiver, kills, wipes, seconds }: Evidence): Verdict => {
  const { rows, waiting } = ends;
  const byEvent = Map.groupBy(rows, ({ eventId }) => eventId);
  const oneEnd = (id: string): boolean => {
    const own = byEvent.get(id) ?? [];
    return own.length === 1 && own.every(({ outcome }) => isFinal(outcome));
  };
  const count = (wanted: string) => rows.filter(({ outcome }) => outcome === wanted).length;
  const twice = [...receiver.times.values()].filter((times) => times > 1).length;
  const withoutEnd = [...events].filter((id) => !oneEnd(id)).length;
  const wrong = rows.filter(({ eventId, outcome }) => {
    const times = receiver.times.get(eventId) ?? 0;
    return (outcome === 'delivered' && times === 0) || (outcome === 'not_sent' && times > 0);
  }).length;
  const unknown = rows.filter(({ outcome }) => outcome === 'unknown');
  const byWorker = [...Map.groupBy(unknown, ({ worker }) => worker).values()];
  const worst = Math.max(0, ...byWorker.map(({ length }) => length));
  const none = (found: number) => ({ found, limit: '0', ok: found === 0 });
  return [
    { what: wipes > 0 ? 'wipes of Redis' : 'kills', found: wipes > 0 ? wipes : kills, limit: '', ok: null },
    { what: 'seconds', found: seconds.toFixed(0), limit: '', ok: null },
    { what: 'events', found: events.size, limit: '> 0', ok: events.size > 0 },
    { what: 'delivered', found: count('delivered'), limit: '', ok: null },
    { what: 'rejected', ...none(count('rejected')) },
    { what: 'not_sent', ...none(count('not_sent')) },
    ...(wipes > 0
      ? [{ what: 'unknown', ...none(unknown.length) }]
      : [
          { what: 'unknown', found: unknown.length, limit: '', ok: null },
          // At least half of the kills must interrupt a send, because other kills prove little.
          {
            what: 'kills in the middle of a send',
            found: byWorker.length,
            limit: `≥ ${Math.ceil(kills / 2)}`,
            ok: byWorker.length >= kills / 2,
          },
          {
            what: 'unknown, most of one kill',
            found: worst,
            limit: `≤ ${UNKNOWN_A_KILL}`,
            ok: worst <= UNKNOWN_A_KILL,
          },
        ]),
    { what: 'events received twice', ...none(twice) },
    { what: 'events without exactly one outcome', ...none(withoutEnd) },
    { what: 'outcomes that the receiver contradicts', ...none(wrong) },
    { what: 'conversations with an event left', ...none(waiting) },
    { what: 'events received out of order', ...none(receiver.inversions) },
  ];
};

/** Prints the table. Returns true if every limit is kept. */
export const print = (verdict: Verdict): boolean => {
  const width = Math.max(...verdict.map(({ what }) => what.length));
  for (const { what, found, limit, ok } of verdict) {
    const mark = ok === null ? '' : ok ? 'ok' : 'FAILED';
    console.log(`${what.padEnd(width)}  ${String(found).padStart(8)}  ${limit.padEnd(6)} ${mark}`.trimEnd());
  }
  const kept = verdict.every(({ ok }) => ok !== false);
  console.log(kept ? 'Every limit is kept.' : 'A limit is missed.');
  return kept;
};
