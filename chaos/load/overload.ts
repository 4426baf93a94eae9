import { setTimeout as sleep } from 'node:timers/promises';
import { readMetrics } from '../support/metrics.ts';
import { printVerdicts, row, type Verdict } from '../support/table.ts';
import { drive } from './drive.ts';
import { countOf, ms, none, perSecond, printExamples, quantileText as quantiles, turnVerdicts } from './figures.ts';
import { judgeEvents, untilDone } from './events.ts';
import { isFlat, quartersOf } from './memory.ts';
import { startSamples } from './samples.ts';
import { openLoadedService } from './service.ts';
import type { LoadResult, Told } from './settings.ts';
import { quantilesOf } from './tally.ts';
import { verifyTurns } from './verify.ts';

const WARM_UP = { pace: { inFlight: 50 }, seconds: 5 };
const CAPACITY = { pace: { inFlight: 100 }, seconds: 15 };
const LIGHT_PER_SECOND = 30;
const LIGHT_SECONDS = 20;
/** The light load begins so long before the overload ends, so that it runs at the moment of the end. */
const LIGHT_AHEAD_S = 3;
const SESSIONS = 10_000;
const LIGHT_SESSIONS = 500;
const SAMPLE_EVERY_MS = 2_000;
/** Events are delivered after the turns, so more of them wait at the end of a longer overload. */
const DONE_WITHIN_MS = { least: 120_000, ofTheRun: 1 };

const REFUSED_WITHIN_MS = 100;
const REPLY_LIMIT_MS = 30_000;
const RECOVERED_WITHIN_S = 5;
const SLOWER_AFTER = 2;
const MEMORY_MAX_MB = 1_024;
const OURS = ['API', 'reply worker', 'delivery worker'] as const;

export type OverloadOptions = { minutes: number; rateFactor: number };

/** The light load after the overload: when turns are as fast as before and stay so, and their p99 from the limit on. */
const recoveryOf = ({ samples }: LoadResult, endedAt: number, limitMs: number) => {
  const slow = ({ ms: took, status }: LoadResult['samples'][number]): boolean => status >= 400 || took > limitMs;
  const after = samples.filter(({ sentAt }) => sentAt >= endedAt);
  const lastRefused = after.filter(({ status }) => status >= 400).at(-1);
  const from = (seconds: number) => after.filter(({ sentAt }) => sentAt >= endedAt + seconds * 1000);
  let backAfter = 0;
  while (backAfter < LIGHT_SECONDS) {
    const rest = from(backAfter);
    if (rest.filter(slow).length <= rest.length / 100) break;
    backAfter += 0.5;
  }
  return { backAfter, lastRefused, late: quantilesOf(from(RECOVERED_WITHIN_S).map(({ ms: took }) => took)) };
};

/**
 * Offers a multiple of what one API, one reply worker and one delivery worker can do, and judges what callers see, what
 * is stored, and how much memory it takes.
 */
export const overload = async ({ minutes, rateFactor }: OverloadOptions): Promise<boolean> => {
  const loaded = await openLoadedService('load');
  const { door, api, service, sink } = loaded;
  const told: Told = {};
  const run = async (name: string, some: { pace: Parameters<typeof drive>[0]['pace']; seconds: number }) => {
    const sessions = name.startsWith('light') ? LIGHT_SESSIONS : SESSIONS;
    const driven = await drive({ ...door, ...some, sessions, sessionPrefix: name, retry: false });
    Object.assign(told, driven.told);
    await sink.take();
    return driven.result;
  };
  const light = { pace: { rate: LIGHT_PER_SECOND }, seconds: LIGHT_SECONDS };
  const emptying = setInterval(() => void sink.take(), SAMPLE_EVERY_MS);
  try {
    await run('warm-up', WARM_UP);
    await untilDone(service, DONE_WITHIN_MS.least);
    const before = await run('light-before', light);
    const most = await run('capacity', CAPACITY);
    const capacity = perSecond(most, countOf(most, 200, 202));
    await untilDone(service, DONE_WITHIN_MS.least);

    console.log(row('capacity with 100 in flight, turns/s', capacity.toFixed(0)));
    const seconds = minutes * 60;
    const samples = startSamples(loaded, SAMPLE_EVERY_MS);
    const [over, after] = await Promise.all([
      run('over', { pace: { rate: rateFactor * capacity }, seconds }),
      sleep((seconds - LIGHT_AHEAD_S) * 1000).then(() =>
        run('light-after', { ...light, seconds: LIGHT_SECONDS + LIGHT_AHEAD_S }),
      ),
    ]);
    samples.stop();
    const metric = await readMetrics(api.port);
    const doneWithinMs = Math.max(DONE_WITHIN_MS.least, DONE_WITHIN_MS.ofTheRun * seconds * 1000);
    const done = await untilDone(service, doneWithinMs);
    const differences = await verifyTurns(told, door);

    const accepted = countOf(over, 200, 202);
    const refused = countOf(over, 429, 503);
    const recovery = recoveryOf(after, over.endedAt, SLOWER_AFTER * before.answered.p99);
    const inTime = metric('parley_turn_request_seconds_bucket{le="0.1",status="503"}');
    const allRefused = metric('parley_turn_request_seconds_count{status="503"}');
    console.log(row('offered, turns/s', perSecond(over, over.sent).toFixed(0)));
    console.log(row('  accepted, turns/s', perSecond(over, accepted).toFixed(0)));
    console.log(row('  refused with 503, turns/s', perSecond(over, countOf(over, 503)).toFixed(0)));
    console.log(row('  refused with 429 (session busy), turns', countOf(over, 429)));
    console.log(row('  not sent, because no session or connection was free', over.skipped));
    console.log(row('refused after, ms: p50 / p99 / max', quantiles(over.refused)));
    console.log(row('  by the clock of the API within 100 ms', `${inTime} of ${allRefused}`));
    console.log(row('accepted answered after, ms: p50 / p99 / max', quantiles(over.answered)));
    console.log(
      row(
        'timers of the load generator late by, ms: p99 / max',
        `${ms(over.generatorLag.p99)} / ${ms(over.generatorLag.max)}`,
      ),
    );
    console.log(row('light load before, ms: p50 / p99 / max', quantiles(before.answered)));
    console.log(row('light load from 5 s after the overload on, ms', quantiles(recovery.late)));
    console.log(row('back to full speed after the overload, s', recovery.backAfter));
    for (const [name, series] of samples.series) {
      const { second, last } = quartersOf(series);
      const text = `${ms(second)} / ${ms(last)} / ${ms(Math.max(...series))}`;
      console.log(row(`${name}: second quarter / last / most`, text));
    }
    console.log(row('s until all events had ended', (done.ms / 1000).toFixed(1)));
    console.log(row('sessions read / accepted turns compared', `${differences.sessions} / ${differences.turns}`));
    console.log('');

    const other = over.sent - accepted - refused;
    const verdicts: Verdict[] = [
      {
        rule: `offered at least 0.8 × ${rateFactor} × capacity`,
        found: (perSecond(over, over.sent) / capacity).toFixed(2),
        kept: perSecond(over, over.sent) >= 0.8 * rateFactor * capacity,
      },
      none('answers other than 200, 202, 429, 503', other),
      {
        rule: 'refusals without Retry-After',
        found: over.refusedWithoutRetryAfter,
        kept: over.refusedWithoutRetryAfter === 0,
      },
      {
        rule: `p99 of refusals ≤ ${REFUSED_WITHIN_MS} ms`,
        found: ms(over.refused.p99),
        kept: over.refused.p99 <= REFUSED_WITHIN_MS,
      },
      {
        rule: 'accepted turns answered inside the reply limit, slowest ms',
        found: ms(over.answered.max),
        kept: over.answered.max < REPLY_LIMIT_MS,
      },
      {
        rule: `p99 of a light load ≤ ${SLOWER_AFTER} × before, 5 s after the overload`,
        found: (recovery.late.p99 / before.answered.p99).toFixed(2),
        kept: recovery.late.p99 <= SLOWER_AFTER * before.answered.p99,
      },
      {
        rule: 'light turns refused later than 5 s after the overload',
        found: recovery.lastRefused ? ((recovery.lastRefused.sentAt - over.endedAt) / 1000).toFixed(1) : 'none',
        kept: !recovery.lastRefused || recovery.lastRefused.sentAt < over.endedAt + RECOVERED_WITHIN_S * 1000,
      },
      ...OURS.map((name): Verdict => {
        const series = samples.series.get(`${name}: memory, MB`) ?? [];
        const most_ = Math.max(...series);
        return {
          rule: `memory of ${name} is flat and ≤ ${MEMORY_MAX_MB} MB`,
          found: ms(most_),
          kept: isFlat(series) && most_ <= MEMORY_MAX_MB,
        };
      }),
      {
        rule: `pending turns and events after ${ms(doneWithinMs / 1000)} s`,
        found: done.unfinished.join(', ') || 0,
        kept: done.unfinished.length === 0,
      },
      ...turnVerdicts(differences),
      ...(await judgeEvents(service)),
    ];
    const kept = printVerdicts(verdicts);
    printExamples(differences);
    return kept;
  } finally {
    clearInterval(emptying);
    await loaded.close();
  }
};
