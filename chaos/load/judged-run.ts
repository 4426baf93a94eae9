import { closeAll } from '../../test/kit/services.ts';

/** Time for the set-up, the measurements before and after, and the comparison. */
const SPARE_MS = 600_000;

const end = async (why: string): Promise<void> => {
  console.error(why);
  await closeAll();
  process.exit(1);
};

/** Runs a load of so many minutes, and ends this process with 0 only if every rule was kept. Stops what was started. */
export const judgedRun = async (minutes: number, run: () => Promise<boolean>): Promise<never> => {
  setTimeout(() => void end('the run did not end in time'), minutes * 60_000 + SPARE_MS).unref();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => void end(signal));
  let kept = false;
  try {
    kept = await run();
  } finally {
    await closeAll();
  }
  process.exit(kept ? 0 : 1);
};
