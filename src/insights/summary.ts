import { DAY_MS } from '../platform/process/clock.ts';
import {
  bucketLimitMs,
  type CountedReason,
  type Counter,
  COUNTERS,
  ESCALATION_REASONS,
  type OutcomeCounts,
  type StoredFigures,
} from './figures.ts';

const OUTCOMES = ['delivered', 'rejected', 'not_sent', 'unknown'] as const;

export type Days = 1 | 7 | 30;
type TimeSlot = Record<Counter, number> & {
  escalated: Record<CountedReason, number>;
  deliveries: OutcomeCounts;
  replyMs: { p50: number; p95: number } | null;
};
type Summary = {
  from: string;
  totals: TimeSlot;
  /** One slot for each hour of today, or for each day. `at` is `09:00` or `2026-05-04`. */
  slots: (TimeSlot & { at: string })[];
  /** The turns by hour of the day, from 0 to 23. */
  busiestHours: number[];
};

export const isTimeZone = (name: string): boolean => {
  try {
    return Boolean(new Intl.DateTimeFormat('en', { timeZone: name }));
  } catch {
    return false;
  }
};

type Local = { day: string; hour: number };

/** Tells the local day and hour of a time. */
const localTimes = (timeZone: string): ((at: Date) => Local) => {
  const format = new Intl.DateTimeFormat('en-CA', {
    timeZone,
    year: 'numeric',
    month: '2-digit',
    day: '2-digit',
    hour: '2-digit',
    hourCycle: 'h23',
  });
  return (at) => {
    const parts = Object.fromEntries(format.formatToParts(at).map(({ type, value }) => [type, value]));
    return { day: `${parts.year}-${parts.month}-${parts.day}`, hour: Number(parts.hour) };
  };
};

/** The time within which this share of the replies was stored, as the limit of its bucket. */
const percentile = (buckets: Map<number, number>, share: number): number => {
  const total = [...buckets.values()].reduce((sum, count) => sum + count, 0);
  let seen = 0;
  for (const [bucket, count] of [...buckets].toSorted(([a], [b]) => a - b)) {
    seen += count;
    if (seen >= total * share) return bucketLimitMs(bucket);
  }
  return 0;
};

/** A sum for each name, and how to add to all of them. */
const createSums = <Name extends string>(names: readonly Name[]) => {
  const sums = Object.fromEntries(names.map((name) => [name, 0])) as Record<Name, number>; // one for each name
  const add = (counts: Partial<Record<Name, number>> = {}): void => {
    for (const name of names) sums[name] += counts[name] ?? 0;
  };
  return { sums, add };
};

/** Adds up the figures of some hours. Each step adds one hour. */
export function* sumOf(hours: StoredFigures[]): Generator<undefined, TimeSlot> {
  const [counters, escalated, deliveries] = [
    createSums(COUNTERS),
    createSums(ESCALATION_REASONS),
    createSums(OUTCOMES),
  ];
  const buckets = new Map<number, number>();
  for (const hour of hours) {
    counters.add(hour);
    escalated.add(hour.escalated);
    deliveries.add(hour.deliveries);
    for (const [bucket, count] of Object.entries(hour.buckets ?? {})) {
      buckets.set(Number(bucket), (buckets.get(Number(bucket)) ?? 0) + count);
    }
    yield;
  }
  return {
    ...counters.sums,
    escalated: escalated.sums,
    deliveries: deliveries.sums,
    replyMs: buckets.size > 0 ? { p50: percentile(buckets, 0.5), p95: percentile(buckets, 0.95) } : null,
  };
}

const dayBefore = (day: string, days: number): string =>
  new Date(Date.parse(`${day}T00:00:00Z`) - days * DAY_MS).toISOString().slice(0, 10);

/** A summary needs the hourly figures from this time on. */
export const summarySince = (days: Days, now: number): Date => new Date(now - (days + 1) * DAY_MS);

/** Sums up hourly figures in steps: today, or the last 7 or 30 days with today, in a time zone. */
export function* summarise(
  hours: StoredFigures[],
  { days, timeZone, now }: { days: Days; timeZone: string; now: number },
): Generator<undefined, Summary> {
  const localOf = localTimes(timeZone);
  const today = localOf(new Date(now)).day;
  const from = dayBefore(today, days - 1);
  const own: (Local & { figures: StoredFigures })[] = [];
  for (const figures of hours) {
    const local = localOf(figures.hour);
    if (local.day >= from) own.push({ figures, ...local });
    yield;
  }
  const names =
    days === 1
      ? Array.from({ length: 24 }, (_, hour) => `${String(hour).padStart(2, '0')}:00`)
      : Array.from({ length: days }, (_, nth) => dayBefore(today, days - 1 - nth));
  const nameOf = ({ day, hour }: Local): string => (days === 1 ? `${String(hour).padStart(2, '0')}:00` : day);
  const bySlot = Map.groupBy(own, nameOf);
  const figuresOf = (some: typeof own = []): StoredFigures[] => some.map(({ figures }) => figures);
  const slots: Summary['slots'] = [];
  for (const at of names) slots.push({ at, ...(yield* sumOf(figuresOf(bySlot.get(at)))) });
  const busiestHours = Array.from({ length: 24 }, () => 0);
  for (const { figures, hour } of own) busiestHours[hour] = (busiestHours[hour] ?? 0) + (figures.turns ?? 0);
  return { from, totals: yield* sumOf(figuresOf(own)), slots, busiestHours };
}
