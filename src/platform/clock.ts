import type { Connection, mongo } from 'mongoose';

/** A sample that was delayed on its way only ever shows too little; the largest of the last ones is the best. */
const SAMPLES_KEPT = 8;

/** This machine's monotonic clock as milliseconds since the epoch: steps of its wall clock do not move it. */
const localNow = (): number => performance.timeOrigin + performance.now();

/** How far MongoDB's clock is ahead of this process's, in milliseconds. */
let ahead = 0;

/**
 * Milliseconds since the epoch by the clock of MongoDB's primary. Every stored time and every age that decides something
 * comes from here: processes whose own clocks disagree still agree on what has expired. Before `followServerClock` it is
 * this machine's time.
 */
export const serverNow = (): number => Math.round(localNow() + ahead);

export const serverDate = (): Date => new Date(serverNow());

/** Follows the primary's clock by the driver's own heartbeats, which come every two seconds. Never ends by itself. */
export const followServerClock = async (connection: Connection): Promise<void> => {
  let samples: number[] = [];
  let source = '';
  const note = (address: string, serverTime: number, at: number): void => {
    // After a fail-over another machine's clock counts.
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
