import { expect, test, vi } from 'vitest';
import {
  afterOpenMinutes,
  AWAY_LANGUAGES,
  closedText,
  nextOpening,
  notTakenText,
  OpeningHours,
} from '../../src/assistants/opening-hours.ts';
import { TEXT_LANGUAGES } from '../../src/replies/engines/engine.ts';

const DAYS = [1, 2, 3, 4, 5];
const office = (timeZone: string): OpeningHours => ({
  timeZone,
  week: DAYS.flatMap((day) => [
    { day, from: '09:00', to: '12:00' },
    { day, from: '13:00', to: '17:00' },
  ]),
});
const daily = (timeZone: string, from: string, to: string): OpeningHours => ({
  timeZone,
  week: [0, 1, 2, 3, 4, 5, 6].map((day) => ({ day, from, to })),
});
const next = (hours: OpeningHours, at: string) => nextOpening(hours, new Date(at))?.toISOString() ?? null;
const after = (hours: OpeningHours | null, at: string, minutes: number) =>
  afterOpenMinutes(hours, new Date(at), minutes).toISOString();

// 23 November 2026 is a Monday. Berlin is one hour ahead of UTC in winter and two hours ahead in summer.
test.each([
  ['before they open', '2026-11-23T07:59:00Z', '2026-11-23T08:00:00.000Z'],
  ['at the first moment', '2026-11-23T08:00:00Z', null],
  ['in the lunch break', '2026-11-23T11:00:00Z', '2026-11-23T12:00:00.000Z'],
  ['at the last moment', '2026-11-23T16:00:00Z', '2026-11-24T08:00:00.000Z'],
  ['on Friday evening', '2026-11-27T17:00:00Z', '2026-11-30T08:00:00.000Z'],
  ['on Sunday in UTC and Monday in Berlin', '2026-11-22T23:30:00Z', '2026-11-23T08:00:00.000Z'],
])('the next opening %s', (_name, at, expected) => {
  expect(next(office('Europe/Berlin'), at)).toBe(expected);
});

test('opening hours follow daylight saving time, both ways', () => {
  expect(next(daily('Europe/Berlin', '09:00', '17:00'), '2026-03-28T20:00:00Z')).toBe('2026-03-29T07:00:00.000Z');
  expect(next(daily('Europe/Berlin', '09:00', '17:00'), '2026-10-24T20:00:00Z')).toBe('2026-10-25T08:00:00.000Z');
  expect(next(daily('America/New_York', '09:00', '17:00'), '2026-03-08T02:00:00Z')).toBe('2026-03-08T13:00:00.000Z');
  expect(next(daily('Asia/Kolkata', '09:30', '17:00'), '2026-03-08T22:00:00Z')).toBe('2026-03-09T04:00:00.000Z');
});

test('a time that the clock leaves out is moved forward, and a time that comes twice is covered twice', () => {
  // In Berlin, 02:30 does not exist on 29 March, and comes twice on 25 October.
  expect(next(daily('Europe/Berlin', '02:30', '04:00'), '2026-03-29T00:00:00Z')).toBe('2026-03-29T01:30:00.000Z');
  expect(next(daily('America/New_York', '02:30', '04:00'), '2026-03-08T06:00:00Z')).toBe('2026-03-08T07:30:00.000Z');
  const night = daily('Europe/Berlin', '02:00', '03:00');
  expect(next(night, '2026-10-24T22:00:00Z')).toBe('2026-10-25T00:00:00.000Z');
  expect(after(night, '2026-10-24T22:00:00Z', 120)).toBe('2026-10-25T02:00:00.000Z');
  expect(next(daily('America/New_York', '01:00', '02:00'), '2026-11-01T04:00:00Z')).toBe('2026-11-01T05:00:00.000Z');
});

test.each([
  // The clock is set back from 01:00 to 00:00, so midnight comes twice.
  ['America/Havana', '2026-10-31T23:00:00Z', '2026-11-01T04:30:00Z', '2026-11-01T05:00:00.000Z'],
  ['Atlantic/Azores', '2026-10-24T21:00:00Z', '2026-10-25T00:30:00Z', '2026-10-25T01:00:00.000Z'],
])('in %s, an opening until 24:00 lasts until midnight comes again', (timeZone, evening, between, end) => {
  const hours = daily(timeZone, '18:00', '24:00');
  const minutes = (from: string, to: string) => (Date.parse(to) - Date.parse(from)) / 60_000;

  expect(next(hours, between)).toBeNull();
  expect(after(hours, between, 30)).toBe(end);
  expect(after(hours, evening, minutes(evening, end))).toBe(end);
  expect(next(hours, end)).not.toBeNull();
});

test('an hour that belongs to two opening times counts once', () => {
  const night = {
    timeZone: 'Europe/Berlin',
    week: [
      { day: 0, from: '00:00', to: '02:30' },
      { day: 0, from: '02:30', to: '06:00' },
    ],
  };
  // On 25 October, 02:30 comes twice in Berlin.
  expect(after(night, '2026-10-24T22:00:00Z', 240)).toBe('2026-10-25T02:00:00.000Z');
});

test('a night belongs to the day on which it begins', () => {
  const bar = { timeZone: 'Europe/Berlin', week: [5, 6].map((day) => ({ day, from: '21:00', to: '02:00' })) };

  expect(OpeningHours.safeParse(bar).success).toBe(true);
  // Friday 27 November, the night to Sunday, and Sunday evening.
  expect(next(bar, '2026-11-27T19:59:00Z')).toBe('2026-11-27T20:00:00.000Z');
  expect(next(bar, '2026-11-29T00:59:00Z')).toBeNull();
  expect(next(bar, '2026-11-29T01:00:00Z')).toBe('2026-12-04T20:00:00.000Z');
  expect(after(bar, '2026-11-28T00:30:00Z', 60)).toBe('2026-11-28T20:30:00.000Z');
  // In October the clock is set back at three, after closing; a night until four has the hour twice.
  const long = daily('Europe/Berlin', '22:00', '04:00');
  expect(after(long, '2026-10-24T20:00:00Z', 7 * 60)).toBe('2026-10-25T03:00:00.000Z');
});

test('only opening hours count', () => {
  const berlin = office('Europe/Berlin');
  expect(after(null, '2026-11-23T23:00:00Z', 30)).toBe('2026-11-23T23:30:00.000Z');
  expect(after(berlin, '2026-11-23T08:10:00Z', 30)).toBe('2026-11-23T08:40:00.000Z');
  expect(after(berlin, '2026-11-23T10:50:00Z', 30)).toBe('2026-11-23T12:20:00.000Z');
  expect(after(berlin, '2026-11-27T15:50:00Z', 30)).toBe('2026-11-30T08:20:00.000Z');
  expect(after(berlin, '2026-11-28T12:00:00Z', 7 * 60)).toBe('2026-11-30T16:00:00.000Z');
  expect(after(daily('UTC', '00:00', '24:00'), '2026-11-28T12:00:00Z', 3 * 24 * 60)).toBe('2026-12-01T12:00:00.000Z');
});

test.each<[string, unknown]>([
  ['an unknown time zone', { ...office('Europe/Nowhere') }],
  ['an offset instead of a time zone', { ...office('+01:00') }],
  ['no times', { timeZone: 'UTC', week: [] }],
  ['a day that is none', { timeZone: 'UTC', week: [{ day: 7, from: '09:00', to: '10:00' }] }],
  ['a time that is none', { timeZone: 'UTC', week: [{ day: 1, from: '9:00', to: '10:00' }] }],
  ['an end at its beginning', { timeZone: 'UTC', week: [{ day: 1, from: '10:00', to: '10:00' }] }],
  ['a beginning at the end of the day', { timeZone: 'UTC', week: [{ day: 1, from: '24:00', to: '02:00' }] }],
  [
    'a night that reaches into the times of the next day',
    {
      timeZone: 'UTC',
      week: [
        { day: 6, from: '21:00', to: '02:00' },
        { day: 0, from: '01:00', to: '03:00' },
      ],
    },
  ],
  [
    'times that overlap',
    {
      timeZone: 'UTC',
      week: [
        { day: 1, from: '09:00', to: '12:00' },
        { day: 1, from: '11:00', to: '13:00' },
      ],
    },
  ],
])('%s is refused', (_name, hours) => {
  expect(OpeningHours.safeParse(hours).success).toBe(false);
});

test('every language has the texts, and writes the time in its own way', () => {
  const at = new Date('2026-11-23T08:00:00Z');

  expect([...AWAY_LANGUAGES].toSorted()).toEqual([...TEXT_LANGUAGES].toSorted());
  const closed = AWAY_LANGUAGES.map((language) => closedText(language, at, 'Europe/Berlin'));
  expect(new Set(closed).size).toBe(closed.length);
  expect(new Set(AWAY_LANGUAGES.map(notTakenText)).size).toBe(AWAY_LANGUAGES.length);
  for (const text of closed) expect(text).not.toContain('{');
  expect(closedText('de-AT', at, 'Europe/Berlin')).toBe(
    'Unser Team ist gerade nicht da. Es ist wieder für Sie da: Montag, 23. November um 09:00 MEZ.',
  );
  expect(closedText('xx', at, 'America/New_York')).toContain('Monday, November 23');
});

test('very short opening hours cost little of the event loop', () => {
  const minutes = Array.from({ length: 49 }, (_, nth) => ({
    day: nth % 7,
    from: `${String(8 + Math.floor(nth / 7)).padStart(2, '0')}:00`,
    to: `${String(8 + Math.floor(nth / 7)).padStart(2, '0')}:01`,
  }));
  const hours = { timeZone: 'Europe/Berlin', week: minutes };
  const from = new Date('2026-06-01T00:00:00Z');
  afterOpenMinutes(hours, from, 10); // the clock of the time zone is made once

  const formatted = vi.spyOn(Intl.DateTimeFormat.prototype, 'formatToParts');
  afterOpenMinutes(hours, from, 10_080);

  expect(formatted.mock.calls.length).toBeLessThan(1_000);
  formatted.mockRestore();
});
