import type { Assistant } from '../../../types.ts';

export type Times = { from: string; to: string };

export type HoursFields = {
  open: string;
  timeZone: string;
  /** The times of each day; Sunday is day 0. */
  week: Times[][];
  takeWithinMinutes: string;
  ifNotTaken: string;
  contactsEscalate: boolean;
};

const DAYS_OF_WORK = new Set([1, 2, 3, 4, 5]);
const OFFICE: Times = { from: '09:00', to: '17:00' };
const eachDay = (timesOf: (day: number) => Times[]): Times[][] => [0, 1, 2, 3, 4, 5, 6].map(timesOf);

/** A field for times cannot show 24:00, so the end of a day is 00:00 in the form. */
const MIDNIGHT = '00:00';
const END_OF_DAY = '24:00';

export const hoursFieldsOf = ({
  openingHours,
  takeWithinMinutes,
  ifNotTaken,
  contactsEscalate,
}: Assistant): HoursFields => ({
  open: openingHours ? 'hours' : 'always',
  timeZone: openingHours?.timeZone ?? Intl.DateTimeFormat().resolvedOptions().timeZone,
  week: openingHours
    ? eachDay((day) =>
        openingHours.week
          .filter((one) => one.day === day)
          .map(({ from, to }) => ({ from, to: to === END_OF_DAY ? MIDNIGHT : to })),
      )
    : eachDay((day) => (DAYS_OF_WORK.has(day) ? [OFFICE] : [])),
  takeWithinMinutes: takeWithinMinutes === null ? '' : String(takeWithinMinutes),
  ifNotTaken,
  contactsEscalate,
});

/** A number, or nothing. Other text is sent as it is, so that the server refuses it. */
export const numberOrNull = (text: string): number | string | null => {
  if (text.trim() === '') return null;
  return Number.isNaN(Number(text)) ? text : Number(text);
};

export const hoursBodyOf = ({ open, timeZone, week, takeWithinMinutes, ...others }: HoursFields) => ({
  openingHours:
    open === 'always'
      ? null
      : {
          timeZone,
          week: week.flatMap((times, day) =>
            times.map(({ from, to }) => ({ day, from, to: to === MIDNIGHT ? END_OF_DAY : to })),
          ),
        },
  takeWithinMinutes: numberOrNull(takeWithinMinutes),
  ...others,
});

/** The next times of a day: from an hour after the last ones, for four hours at most. */
export const moreTimes = (times: Times[]): Times => {
  const last = times.at(-1);
  if (!last) return OFFICE;
  const hour = (value: number): string => `${String(Math.min(value, 23)).padStart(2, '0')}:00`;
  const begin = Number(last.to.slice(0, 2)) + 1;
  return { from: hour(begin), to: begin + 4 > 23 ? MIDNIGHT : hour(begin + 4) };
};

const timeZones = (): string[] => ['UTC', ...Intl.supportedValuesOf('timeZone').filter((name) => name !== 'UTC')];

/** All time zones that this browser knows, and the stored one. */
export const timeZonesWith = (stored: string): string[] => {
  const known = timeZones();
  return known.includes(stored) ? known : [stored, ...known];
};
