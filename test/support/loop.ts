import { setTimeout as pause } from 'node:timers/promises';

/** Processor time of this thread, because other programs do not affect it. */
export const workedMs = (): number => {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
};

/** The longest work between two ticks of the event loop, measured until it is stopped. */
export const watchLoop = () => {
  let watching = true;
  let longest = 0;
  const watched = (async () => {
    for (let last = workedMs(); watching; ) {
      await pause(1);
      const now = workedMs();
      longest = Math.max(longest, now - last);
      last = now;
    }
  })();
  return async (): Promise<number> => {
    watching = false;
    await watched;
    return longest;
  };
};
