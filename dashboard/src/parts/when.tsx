import { useSyncExternalStore } from 'react';

const TICK_MS = 5_000;
const UNITS: [Intl.RelativeTimeFormatUnit, number][] = [
  ['year', 31_536_000],
  ['month', 2_592_000],
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
];
const relative = new Intl.RelativeTimeFormat('en', { numeric: 'auto', style: 'short' });
const absolute = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });
const days = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', timeZone: 'UTC' });
const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });

const subscribe = (tick: () => void) => {
  const timer = window.setInterval(tick, TICK_MS);
  return () => window.clearInterval(timer);
};
const now = () => Math.floor(Date.now() / TICK_MS) * TICK_MS;

const wordsFor = (seconds: number): string => {
  if (Math.abs(seconds) < 10) return 'just now';
  for (const [unit, length] of UNITS) {
    if (Math.abs(seconds) >= length) return relative.format(Math.trunc(seconds / length), unit);
  }
  return relative.format(Math.trunc(seconds), 'second');
};

/** The time in milliseconds. It changes every few seconds, so that relative times stay right. */
export const useNow = (): number => useSyncExternalStore(subscribe, now);

/** A relative time that is updated regularly. The tooltip shows the exact time. */
export const When = ({ at, exact = false }: { at: string; exact?: boolean }) => {
  const current = useNow();
  const date = new Date(at);
  const words = exact ? absolute.format(date) : wordsFor((date.getTime() - current) / 1000);
  return (
    <time dateTime={at} title={exact ? wordsFor((date.getTime() - current) / 1000) : absolute.format(date)}>
      {words}
    </time>
  );
};

export const timeOfDay = (at: string): string => clock.format(new Date(at));
export const dateAndTime = (at: string): string => absolute.format(new Date(at));
/** A day that begins and ends by UTC, such as 28 Nov. */
export const dayAndMonth = (at: string): string => days.format(new Date(at));
