import { setTimeout as sleep } from 'node:timers/promises';

const TRY_AGAIN_AFTER_MS = 500;

/** Runs the work of one key in order, and the work of different keys in parallel. Work that fails is tried again. */
export const createLines = (log: (line: string) => void) => {
  const lines = new Map<string, Promise<void>>();

  const untilDone = async (work: () => Promise<void>): Promise<void> => {
    for (;;) {
      try {
        return await work();
      } catch (cause) {
        log(`trying again: ${cause instanceof Error ? cause.message : String(cause)}`);
        await sleep(TRY_AGAIN_AFTER_MS);
      }
    }
  };

  return (key: string, work: () => Promise<void>): Promise<void> => {
    const mine = (lines.get(key) ?? Promise.resolve()).then(() => untilDone(work));
    lines.set(key, mine);
    void mine.finally(() => {
      if (lines.get(key) === mine) lines.delete(key);
    });
    return mine;
  };
};
