import type { Connection, mongo } from 'mongoose';

/**
 * How many samples of the offset are kept. Network delay can only make a sample too small, so the largest recent sample
 * is the best.
 */
const SAMPLES_KEPT = 8;

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

  const begunAt = localNow();
  const hello = await connection.db?.admin().command({ hello: 1 });
  const answeredAt = localNow();
  if (hello?.localTime instanceof Date) note(String(hello.me), hello.localTime.getTime(), (begunAt + answeredAt) / 2);

  connection.getClient().on('serverHeartbeatSucceeded', ({ reply }: mongo.ServerHeartbeatSucceededEvent) => {
    const { isWritablePrimary, localTime, me } = reply;
    if (isWritablePrimary === true && localTime instanceof Date) note(String(me), localTime.getTime(), localNow());
  });
};
