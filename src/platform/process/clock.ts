import type { Connection, mongo } from 'mongoose';

export const MINUTE_MS = 60_000;
export const HOUR_MS = 60 * MINUTE_MS;
export const DAY_MS = 24 * HOUR_MS;

/**
 * How many samples of the offset are kept. A sample compares the server's time with the time at which its answer is
 * read. So a delay, of the network or of this process, can only make a sample too small. The largest recent sample is
 * the best.
 */
const SAMPLES_KEPT = 8;
/**
 * If the request of the first sample takes longer than this, another sample is taken immediately. Later ones come after
 * seconds.
 */
const QUICK_MS = 50;
const FIRST_SAMPLES = 3;

/**
 * This machine's monotonic clock, in milliseconds since the epoch. Jumps of the system time do not affect this clock.
 */
const localNow = (): number => performance.timeOrigin + performance.now();

/** The offset of MongoDB's clock from this process's clock, in milliseconds. */
let ahead = 0;

/**
 * Milliseconds since the epoch by the clock of MongoDB's primary. Every stored time and every decision about an age
 * uses this clock, so that processes with different clocks agree on what has expired. Before `followServerClock` is
 * called, the time is this machine's.
 */
export const serverNow = (): number => Math.round(localNow() + ahead);

export const serverDate = (): Date => new Date(serverNow());

/** No caller waits as long as this. Larger numbers mean the same. */
const RETRY_AFTER_MAX_S = 1_000_000_000;

/**
 * The seconds that a `Retry-After` header asks for, which gives a number or a date (RFC 9110). Null for other values and
 * without one.
 */
export const secondsOfRetryAfter = (value: string | null | undefined): number | null => {
  const given = value?.trim() ?? '';
  if (/^\d{1,30}$/.test(given)) return Math.min(Number(given), RETRY_AFTER_MAX_S);
  // A date without a zone, as C writes it, is one of GMT.
  const date = /(?:[A-Z]|[+-]\d{4})$/.test(given) ? given : `${given} GMT`;
  const until = /^[A-Z][a-z]{2,8}[, ]/.test(given) ? Date.parse(date) : Number.NaN;
  return Number.isNaN(until) ? null : Math.max(0, Math.ceil((until - serverNow()) / 1000));
};

/**
 * Follows the primary's clock through the driver's heartbeats, which come every two seconds. Runs until the connection
 * is closed.
 */
export const followServerClock = async (connection: Connection): Promise<void> => {
  let samples: number[] = [];
  let source = '';
  const note = (address: string, serverTime: number, at: number): void => {
    // After a failover, the samples of the old primary say nothing about the clock of the new one.
    if (address !== source) samples = [];
    source = address;
    samples = [...samples, serverTime - at].slice(-SAMPLES_KEPT);
    ahead = Math.max(...samples);
  };

  for (let tries = 0, took = Infinity; tries < FIRST_SAMPLES && took > QUICK_MS; tries += 1) {
    const begunAt = localNow();
    const hello = await connection.db?.admin().command({ hello: 1 });
    const answeredAt = localNow();
    took = answeredAt - begunAt;
    if (hello?.localTime instanceof Date) note(String(hello.me), hello.localTime.getTime(), answeredAt);
  }

  connection.getClient().on('serverHeartbeatSucceeded', ({ reply }: mongo.ServerHeartbeatSucceededEvent) => {
    const { isWritablePrimary, localTime, me } = reply;
    if (isWritablePrimary === true && localTime instanceof Date) note(String(me), localTime.getTime(), localNow());
  });
};
