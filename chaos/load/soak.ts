import { setTimeout as sleep } from 'node:timers/promises';
import { attempt } from '../service/client.ts';
import { printVerdicts, row, type Verdict } from '../support/table.ts';
import { drive } from './drive.ts';
import { judgeEvents, untilDone } from './events.ts';
import { countOf, none, perSecond, printExamples, printQuantiles, turnVerdicts } from './figures.ts';
import { isFlat, quartersOf } from './memory.ts';
import { startSamples } from './samples.ts';
import { type LoadedService, openLoadedService } from './service.ts';
import type { Told } from './settings.ts';
import { verifyTurns } from './verify.ts';

const SAMPLE_EVERY_MS = 10_000;
const SESSIONS = 2_000;
const STREAM_EVERY_MS = 500;
const DONE_WITHIN_MS = 120_000;
const CAPACITY = { pace: { inFlight: 100 }, seconds: 15 };

/**
 * What may be larger in the last quarter than in the second one. The keys that expire and the memory of Redis grow for
 * some minutes; they are bounded by the rate. MongoDB fills its cache.
 */
const MAY_GROW: [what: RegExp, margin: { share: number; mb: number } | null][] = [
  [/memory|heap/, { share: 0.1, mb: 20 }],
  [/handles|connections|keys that stay/, { share: 0.1, mb: 10 }],
  [/event loop/, { share: 1, mb: 20 }],
];
const NOT_JUDGED = /^MongoDB: memory|^Redis: (memory|keys that expire)/;
/** The record of a delivered reply and the count of a turn's tries (src/platform/process/time-limits.ts). */
const KEPT_FOR_S = 660 + 120;
/** One turn in twenty has an idempotency key, which is kept for a day. */
const KEYED_SHARE = 0.05;
/** The loads before the steady one leave keys too. They have as many as two minutes of it. */
const LOADS_BEFORE_S = 120;
/** The keys of streams and of jobs. */
const OTHER_KEYS = 20_000;
/** Redis removes expired keys with some delay. */
const EXPIRED_FACTOR = 1.1;
const REDIS_MAX_MB = 64;
const KEY_BYTES = 250;

/** A caller who reads streams, two a second, each in a session of its own. Returns how many failed. */
const readStreams = async ({ door }: LoadedService, isOver: () => boolean, told: Told): Promise<string[]> => {
  const failures: string[] = [];
  const at = { ...door, url: `http://127.0.0.1:${door.port}` };
  for (let number = 0; !isOver(); number += 1) {
    const session = `stream-${number}`;
    const message = door.questions[number % door.questions.length] ?? '';
    const result = await attempt({ way: 'stream', session, message, key: '' }, () => at);
    if ('told' in result) {
      const { conversationId, messageId } = result.told;
      told[session] = { conversationId, turns: [[message, { messageId }]] };
    } else failures.push(JSON.stringify(result));
    await sleep(STREAM_EVERY_MS);
  }
  return failures;
};

const judgeGrowth = (series: Map<string, number[]>): Verdict[] =>
  [...series].flatMap(([name, values]): Verdict[] => {
    const margin = MAY_GROW.find(([what]) => what.test(name))?.[1];
    if (!margin || NOT_JUDGED.test(name)) return [];
    const { second, last } = quartersOf(values);
    return [
      { rule: `flat: ${name}`, found: `${second.toFixed(0)} → ${last.toFixed(0)}`, kept: isFlat(values, margin) },
    ];
  });

/** Loads the whole service with a share of its capacity, in all ways, and judges that nothing grows and nothing fails. */
export const soak = async ({ minutes, share }: { minutes: number; share: number }): Promise<boolean> => {
  const loaded = await openLoadedService('soak');
  const { door, service, sink } = loaded;
  const told: Told = {};
  const run = async (sessionPrefix: string, some: Pick<Parameters<typeof drive>[0], 'pace' | 'seconds'>) => {
    const driven = await drive({ ...door, ...some, sessions: SESSIONS, sessionPrefix, retry: false });
    Object.assign(told, driven.told);
    return driven.result;
  };
  const emptying = setInterval(() => void sink.take(), SAMPLE_EVERY_MS);
  try {
    await run('warm-up', { pace: { inFlight: 50 }, seconds: 5 });
    await untilDone(service, DONE_WITHIN_MS);
    const most = await run('capacity', CAPACITY);
    const capacity = perSecond(most, countOf(most, 200, 202));
    await untilDone(service, DONE_WITHIN_MS);
    const rate = share * capacity;
    console.log(row('capacity with 100 in flight, turns/s', capacity.toFixed(0)));
    console.log(row(`steady load for ${minutes} minutes, turns/s`, rate.toFixed(0)));

    const samples = startSamples(loaded, Math.min(SAMPLE_EVERY_MS, (minutes * 60_000) / 40));
    let over = false;
    const streams = readStreams(loaded, () => over, told);
    const steady = await run('steady', { pace: { rate }, seconds: minutes * 60 });
    samples.stop();
    over = true;
    const failures = await streams;
    const done = await untilDone(service, DONE_WITHIN_MS);
    const differences = await verifyTurns(told, loaded);

    console.log(row('turns', steady.sent));
    console.log(row('answers by status', JSON.stringify(steady.statuses)));
    printQuantiles('answered', steady.answered);
    for (const [name, values] of samples.series) {
      const { second, last } = quartersOf(values);
      const text = [second, last, Math.max(...values)].map((value) => value.toFixed(0)).join(' / ');
      console.log(row(`${name}: second quarter / last / most`, text));
    }
    console.log(row('sessions read / accepted turns compared', `${differences.sessions} / ${differences.turns}`));
    console.log('');
    const most_ = (name: string): number => Math.max(0, ...(samples.series.get(name) ?? []));
    const [expiring, redisMb] = [most_('Redis: keys that expire'), most_('Redis: memory, MB')];
    const seconds = minutes * 60;
    const keys = rate * (Math.min(KEPT_FOR_S, seconds + LOADS_BEFORE_S) + KEYED_SHARE * seconds) + OTHER_KEYS;
    const expiringMax = Math.ceil(EXPIRED_FACTOR * keys);
    const redisMax = REDIS_MAX_MB + (KEY_BYTES * expiringMax) / 2 ** 20;
    const kept = printVerdicts([
      none('turns that were refused, failed or lost', steady.sent - countOf(steady, 200, 202)),
      none('turns that were not sent', steady.skipped),
      none('streams that failed', failures.length),
      none('samples that failed', samples.failed()),
      ...judgeGrowth(samples.series),
      { rule: `Redis: keys that expire ≤ ${expiringMax}`, found: expiring, kept: expiring <= expiringMax },
      { rule: `Redis: memory ≤ ${redisMax.toFixed(0)} MB`, found: redisMb.toFixed(0), kept: redisMb <= redisMax },
      { rule: 'pending turns and events', found: done.unfinished.join(', ') || 0, kept: done.unfinished.length === 0 },
      ...turnVerdicts(differences),
      ...(await judgeEvents(service)),
    ]);
    printExamples(differences);
    for (const failure of failures.slice(0, 5)) console.log(failure);
    return kept;
  } finally {
    clearInterval(emptying);
    await loaded.close();
  }
};
