import { LRUCache } from 'lru-cache';
import * as z from 'zod';
import { textsIn } from '@parley/understanding/text';
import { DAY_MS, MINUTE_MS } from '../platform/process/clock.ts';
import texts from './away-texts.json' with { type: 'json' };

type Texts = { closed: string; notTaken: string };

const AWAY_TEXTS: Readonly<Record<string, Texts>> = texts;

export const AWAY_LANGUAGES: readonly string[] = Object.keys(AWAY_TEXTS);

/** The date and time as people of this language write it. */
const describeTime = (language: string, at: Date, timeZone: string): string =>
  new Intl.DateTimeFormat(language, {
    weekday: 'long',
    day: 'numeric',
    month: 'long',
    hour: 'numeric',
    minute: '2-digit',
    timeZone,
    timeZoneName: 'short',
  }).format(at);

/** Tells a visitor when somebody answers. In English if the language has no texts. */
export const closedText = (language: string, at: Date, timeZone: string): string => {
  const own = textsIn(AWAY_TEXTS, language);
  const time = describeTime(own ? language : 'en', at, timeZone);
  return (own ?? texts.en).closed.replace('{time}', () => time);
};

/** Tells a visitor that nobody took the conversation in time and that the assistant answers again. */
export const notTakenText = (language: string): string => (textsIn(AWAY_TEXTS, language) ?? texts.en).notTaken;

/**
 * Opening hours are counted for at most this many days. This cuts a limit short only if the opening hours are very
 * short.
 */
const SEARCHED_DAYS = 120;

const isTimeZone = (name: string): boolean => {
  try {
    const { timeZone } = new Intl.DateTimeFormat('en', { timeZone: name }).resolvedOptions();
    return /^[A-Za-z]/.test(timeZone); // an offset such as +01:00 knows no daylight saving time
  } catch {
    return false;
  }
};

const timeOfDay = z.string().regex(/^(?:(?:[01]\d|2[0-3]):[0-5]\d|24:00)$/, 'must be a time from 00:00 to 24:00');

const minutesOf = (time: string): number => Number(time.slice(0, 2)) * 60 + Number(time.slice(3));

const Interval = z
  .object({ day: z.int().min(0).max(6).meta({ description: '0 is Sunday.' }), from: timeOfDay, to: timeOfDay })
  .refine(({ from }) => from !== '24:00', { path: ['from'], message: 'must be earlier than 24:00' })
  .refine(({ from, to }) => from !== to, { path: ['to'], message: 'must not be `from`: 00:00 to 24:00 is a whole day' })
  .meta({ description: 'If `to` is earlier than `from`, it is on the next day.' });
type Interval = z.infer<typeof Interval>;

const DAY_MINUTES = 24 * 60;
const WEEK_MINUTES = 7 * DAY_MINUTES;

/** Minutes from the beginning of the day. An end on the next day is after the end of the day. */
const spanOf = ({ from, to }: Interval): { start: number; end: number } => {
  const [start, end] = [minutesOf(from), minutesOf(to)];
  return { start, end: end > start ? end : end + DAY_MINUTES };
};

const overlaps = (week: Interval[]): boolean => {
  const spans = week.flatMap((interval) => {
    const { start, end } = spanOf(interval);
    const day = interval.day * DAY_MINUTES;
    const beyond = day + end - WEEK_MINUTES; // the night from Saturday to Sunday
    return [
      { start: day + start, end: Math.min(day + end, WEEK_MINUTES) },
      ...(beyond > 0 ? [{ start: 0, end: beyond }] : []),
    ];
  });
  const inOrder = spans.toSorted((one, other) => one.start - other.start);
  return inOrder.some(({ start }, at) => start < (inOrder[at - 1]?.end ?? 0));
};

/**
 * When people answer. The times are those of the clock on the wall in the time zone. A night from 21:00 to 02:00 belongs
 * to the day on which it begins.
 */
export const OpeningHours = z
  .object({
    timeZone: z
      .string()
      .max(100)
      .refine(isTimeZone, 'must be a time zone such as Europe/Berlin')
      .meta({ description: 'An IANA name.', example: 'Europe/Berlin' }),
    week: z
      .array(Interval)
      .min(1)
      .max(50)
      .refine((week) => !overlaps(week), 'must not overlap'),
  })
  .meta({ id: 'OpeningHours' });
export type OpeningHours = z.infer<typeof OpeningHours>;

/** How many clocks are cached. A clock has some 40 KB, and every spelling of a name (`europe/BERLIN`) has its own. */
const CLOCKS_MAX = 200;
const clocks = new LRUCache<string, Intl.DateTimeFormat>({ max: CLOCKS_MAX });

const clockOf = (timeZone: string): Intl.DateTimeFormat => {
  const known = clocks.get(timeZone);
  if (known) return known;
  const clock = new Intl.DateTimeFormat('en-US', {
    timeZone,
    hourCycle: 'h23',
    year: 'numeric',
    month: 'numeric',
    day: 'numeric',
    hour: 'numeric',
    minute: 'numeric',
    second: 'numeric',
  });
  clocks.set(timeZone, clock);
  return clock;
};

/** What the clock on the wall shows, as if it were UTC. */
const wallTimeOf = (at: number, timeZone: string): number => {
  const parts = new Map(
    clockOf(timeZone)
      .formatToParts(at)
      .map(({ type, value }) => [type, Number(value)]),
  );
  const part = (type: Intl.DateTimeFormatPartTypes): number => parts.get(type) ?? 0;
  return Date.UTC(part('year'), part('month') - 1, part('day'), part('hour'), part('minute'), part('second'));
};

/**
 * The moment at which the clock on the wall shows a time. When the clock is set back, a time comes twice, and `which`
 * says which of the two moments counts. When the clock is set forward, a time that is skipped moves forward too.
 */
const momentOf = (wall: number, timeZone: string, which: 'first' | 'last'): number => {
  const offsetAt = (at: number): number => wallTimeOf(at, timeZone) - at;
  const before = wall - offsetAt(wall - DAY_MS);
  const moments = [before, wall - offsetAt(wall + DAY_MS)].filter((at) => wallTimeOf(at, timeZone) === wall);
  if (moments.length === 0) return before;
  return which === 'first' ? Math.min(...moments) : Math.max(...moments);
};

/** The times at which people answer, from `from` on, in order. The first of them may have begun before `from`. */
function* openTimes({ timeZone, week }: OpeningHours, from: number): Generator<{ start: number; end: number }> {
  const midnight = Math.floor(wallTimeOf(from, timeZone) / DAY_MS) * DAY_MS;
  const inOrder = week.toSorted((a, b) => minutesOf(a.from) - minutesOf(b.from));
  // The times of the day before reach into this day if they end in the night, or when the clock is set back.
  for (let days = -1; days < SEARCHED_DAYS; days += 1) {
    const date = midnight + days * DAY_MS;
    const ofDay = inOrder.filter(({ day }) => day === new Date(date).getUTCDay());
    if (ofDay.length === 0) continue;
    // Computing the time on the wall is slow. A day needs it twice, and more often only if the clock is changed around
    // that day.
    const offsetAt = (at: number): number => wallTimeOf(at, timeZone) - at;
    const offset = offsetAt(date - 2 * DAY_MS);
    const isSteady = offset === offsetAt(date + 3 * DAY_MS);
    const moment = (minutes: number, which: 'first' | 'last'): number => {
      const wall = date + minutes * MINUTE_MS;
      return isSteady ? wall - offset : momentOf(wall, timeZone, which);
    };
    for (const times of ofDay) {
      const span = spanOf(times);
      const start = moment(span.start, 'first');
      const end = moment(span.end, 'last');
      if (end > from && end > start) yield { start, end };
    }
  }
}

/** When people answer next, or null if they answer now. Without opening hours they always answer. */
export const nextOpening = (hours: OpeningHours | null, at: Date): Date | null => {
  if (!hours) return null;
  for (const { start } of openTimes(hours, at.getTime())) return start > at.getTime() ? new Date(start) : null;
  return null;
};

/** The moment at which this many minutes of opening hours have passed. */
export const afterOpenMinutes = (hours: OpeningHours | null, from: Date, minutes: number): Date => {
  let left = minutes * MINUTE_MS;
  let last = from.getTime();
  if (!hours) return new Date(last + left);
  for (const { start, end } of openTimes(hours, last)) {
    const begin = Math.max(start, last); // when the clock is set back, two times can overlap
    last = Math.min(end, begin + left);
    left -= last - begin;
    if (left <= 0) break;
  }
  return new Date(last);
};
