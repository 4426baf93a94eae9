import { row, type Verdict } from '../support/table.ts';
import { countOf, ms, none, perSecond, quantileText as quantiles } from './figures.ts';
import { isFlat, quartersOf } from './memory.ts';
import type { Series } from './samples.ts';
import { type LoadResult, REFUSED_WITHIN_MS } from './settings.ts';
import { quantilesOf } from './tally.ts';

const REPLY_LIMIT_MS = 30_000;
const RECOVERED_WITHIN_S = 5;
const SLOWER_AFTER = 2;
/** The light load after the overload tells nothing if it had fewer turns. */
const LATE_SAMPLES_MIN = 300;
const MEMORY_MAX_MB = 1_024;
const OURS = ['API', 'reply worker', 'delivery worker'] as const;

export type Measured = {
  /** Turns a second. */
  capacity: number;
  rateFactor: number;
  over: LoadResult;
  /** A light load before the overload, and one that runs at its end and afterwards. */
  light: { before: LoadResult; after: LoadResult; seconds: number };
  series: Series;
};

/** The light load after the overload: when turns are as fast as before and stay so, and their p99 from the limit on. */
const recoveryOf = ({ over, light }: Measured) => {
  const limitMs = SLOWER_AFTER * light.before.answered.p99;
  const slow = ({ ms: took, status }: LoadResult['samples'][number]): boolean => status >= 400 || took > limitMs;
  const after = light.after.samples.filter(({ sentAt }) => sentAt >= over.endedAt);
  const lastRefused = after.filter(({ status }) => status >= 400).at(-1);
  const from = (seconds: number) => after.filter(({ sentAt }) => sentAt >= over.endedAt + seconds * 1000);
  let backAfter = 0;
  while (backAfter < light.seconds) {
    const rest = from(backAfter);
    if (rest.filter(slow).length <= rest.length / 100) break;
    backAfter += 0.5;
  }
  const refusedUntil = lastRefused ? (lastRefused.sentAt - over.endedAt) / 1000 : 0;
  return { backAfter, refusedUntil, late: quantilesOf(from(RECOVERED_WITHIN_S).map(({ ms: took }) => took)) };
};

/** Prints what was measured, and returns the verdicts about it. */
export const judgeOverload = (measured: Measured): Verdict[] => {
  const { capacity, rateFactor, over, light, series } = measured;
  const accepted = countOf(over, 200, 202);
  const recovery = recoveryOf(measured);
  const { generatorLag: lag, refused } = over;
  const figures: [what: string, value: number | string][] = [
    ['offered, turns/s', perSecond(over, over.sent).toFixed(0)],
    ['  accepted, turns/s', perSecond(over, accepted).toFixed(0)],
    ['  refused with 503, turns/s', perSecond(over, countOf(over, 503)).toFixed(0)],
    ['  refused with 429 (session busy), turns', countOf(over, 429)],
    ['  not sent, because no session or connection was free', over.skipped],
    ['refused after, ms: p50 / p99 / max', quantiles(refused)],
    [`  within ${REFUSED_WITHIN_MS} ms, of all`, `${over.refusedInTime} of ${refused.count}`],
    ['accepted answered after, ms: p50 / p99 / max', quantiles(over.answered)],
    ['timers of the load generator late by, ms: p99 / max', `${ms(lag.p99)} / ${ms(lag.max)}`],
    ['light load before, ms: p50 / p99 / max', quantiles(light.before.answered)],
    ['light load from 5 s after the overload on, ms', quantiles(recovery.late)],
    ['back to full speed after the overload, s', recovery.backAfter],
  ];
  for (const [name, values] of series) {
    const { second, last } = quartersOf(values);
    figures.push([`${name}: second quarter / last / most`, [second, last, Math.max(...values)].map(ms).join(' / ')]);
  }
  for (const [what, value] of figures) console.log(row(what, value));

  const offered = perSecond(over, over.sent) / capacity;
  const slower = recovery.late.p99 / light.before.answered.p99;
  return [
    {
      rule: `offered at least 0.8 × ${rateFactor} × capacity`,
      found: offered.toFixed(2),
      kept: offered >= 0.8 * rateFactor,
    },
    none('answers other than 200, 202, 429, 503', over.sent - accepted - countOf(over, 429, 503)),
    none('refusals without Retry-After', over.refusedWithoutRetryAfter),
    {
      rule: `p99 of refusals ≤ ${REFUSED_WITHIN_MS} ms`,
      found: ms(refused.p99),
      kept: refused.p99 <= REFUSED_WITHIN_MS,
    },
    {
      rule: 'accepted turns answered inside the reply limit, slowest ms',
      found: ms(over.answered.max),
      kept: over.answered.max < REPLY_LIMIT_MS,
    },
    {
      rule: `p99 of a light load ≤ ${SLOWER_AFTER} × before, ${RECOVERED_WITHIN_S} s after the overload`,
      found: slower.toFixed(2),
      kept: slower <= SLOWER_AFTER && recovery.late.count >= LATE_SAMPLES_MIN,
    },
    {
      rule: `seconds after the overload until nothing is refused ≤ ${RECOVERED_WITHIN_S}`,
      found: recovery.refusedUntil.toFixed(1),
      kept: recovery.refusedUntil < RECOVERED_WITHIN_S,
    },
    ...OURS.map((name): Verdict => {
      const memory = series.get(`${name}: memory, MB`) ?? [];
      const most = Math.max(...memory);
      return {
        rule: `memory of ${name} is flat and ≤ ${MEMORY_MAX_MB} MB`,
        found: ms(most),
        kept: isFlat(memory) && most <= MEMORY_MAX_MB,
      };
    }),
  ];
};
