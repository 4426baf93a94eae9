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

/** Adds up the figures of some hours. */
export const sumOf = (hours: StoredFigures[]): TimeSlot => {
  const buckets = new Map<number, number>();
  for (const { buckets: own = {} } of hours) {
    for (const [bucket, count] of Object.entries(own)) {
      buckets.set(Number(bucket), (buckets.get(Number(bucket)) ?? 0) + count);
    }
  }
  const add = <Name extends string>(
    names: readonly Name[],
    of: (hour: StoredFigures) => Partial<Record<Name, number>>,
  ) =>
    Object.fromEntries(
      names.map((name) => [name, hours.reduce((sum, hour) => sum + (of(hour)[name] ?? 0), 0)]),
    ) as Record<Name, number>; // every name has a sum
  return {
    ...add(COUNTERS, (hour) => hour),
    escalated: add(ESCALATION_REASONS, (hour) => hour.escalated ?? {}),
    deliveries: add(OUTCOMES, (hour) => hour.deliveries ?? {}),
    replyMs: buckets.size > 0 ? { p50: percentile(buckets, 0.5), p95: percentile(buckets, 0.95) } : null,
  };
};

const dayBefore = (day: string, days: number): string =>
  new Date(Date.parse(`${day}T00:00:00Z`) - days * DAY_MS).toISOString().slice(0, 10);

/** A summary needs the hourly figures from this time on. */
export const summarySince = (days: Days, now: number): Date => new Date(now - (days + 1) * DAY_MS);

/** Sums up hourly figures: today, or the last 7 or 30 days with today, in a time zone. */
export const summarise = (
  hours: StoredFigures[],
  { days, timeZone, now }: { days: Days; timeZone: string; now: number },
): Summary => {
  const localOf = localTimes(timeZone);
  const today = localOf(new Date(now)).day;
  const from = dayBefore(today, days - 1);
  const own = hours.map((figures) => ({ figures, ...localOf(figures.hour) })).filter(({ day }) => day >= from);
  const names =
    days === 1
      ? Array.from({ length: 24 }, (_, hour) => `${String(hour).padStart(2, '0')}:00`)
      : Array.from({ length: days }, (_, nth) => dayBefore(today, days - 1 - nth));
  const nameOf = ({ day, hour }: Local): string => (days === 1 ? `${String(hour).padStart(2, '0')}:00` : day);
  const bySlot = Map.groupBy(own, nameOf);
  const figuresOf = (some: typeof own = []): StoredFigures[] => some.map(({ figures }) => figures);
  const byHour = Map.groupBy(own, ({ hour }) => hour);
  return {
    from,
    totals: sumOf(figuresOf(own)),
    slots: names.map((at) => ({ at, ...sumOf(figuresOf(bySlot.get(at))) })),
    busiestHours: Array.from({ length: 24 }, (_, hour) => sumOf(figuresOf(byHour.get(hour))).turns),
  };
};
