const LATER_MS = 3 * 3_600_000;
const MORNING = 9;
const MONDAY = 1;

const atMorning = (now: Date, daysAhead: number): Date =>
  new Date(now.getFullYear(), now.getMonth(), now.getDate() + daysAhead, MORNING);

/** The times that the snooze menu offers, in the browser's time zone. On a Sunday, next week is tomorrow. */
export const snoozeTimes = (now = new Date()): { label: string; until: Date }[] => {
  const later = new Date(now.getTime() + LATER_MS);
  const toMonday = (MONDAY + 7 - now.getDay()) % 7 || 7;
  return [
    { label: later.getDate() === now.getDate() ? 'Later today' : 'In 3 hours', until: later },
    { label: 'Tomorrow', until: atMorning(now, 1) },
    ...(toMonday > 1 ? [{ label: 'Next week', until: atMorning(now, toMonday) }] : []),
  ];
};

/** A time as the value of a field of type datetime-local. */
export const asLocalInput = (time: Date): string =>
  new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
