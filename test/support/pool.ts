import type { Connection } from 'mongoose';

/** The most connections of a pool in use at once, until it is stopped. */
export const watchPool = (connection: Connection) => {
  let [inFlight, most] = [0, 0];
  const start = (): void => {
    inFlight += 1;
    most = Math.max(most, inFlight);
  };
  const end = (): void => {
    inFlight -= 1;
  };
  const client = connection.getClient().on('connectionCheckOutStarted', start).on('connectionCheckedIn', end);
  return (): number => {
    client.off('connectionCheckOutStarted', start).off('connectionCheckedIn', end);
    return most;
  };
};
