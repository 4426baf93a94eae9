import type { Logger } from './logger.ts';
import { TIMING } from './timing.ts';

/**
 * Every worker sweeps by a timer of its own: a scheduler in Redis would vanish with what it is there to mend.
 * Runs `sweep` again and again, never twice at once, each time after a jittered pause of at most `everyMs`, so that
 * several processes do not sweep in step. A failing sweep is logged and tried again.
 */
export const startSweeper = (
  name: string,
  sweep: () => Promise<void>,
  { everyMs = TIMING.sweepEveryMs, logger }: { everyMs?: number; logger: Logger },
): { stop: () => Promise<void>; lastEndedAt: () => number } => {
  let stopped = false;
  let timer: NodeJS.Timeout | undefined;
  let running: Promise<void> = Promise.resolve();
  let lastEndedAt = performance.now();

  const once = async (): Promise<void> => {
    try {
      await sweep();
    } catch (cause) {
      logger.warn({ err: cause, sweep: name }, 'a sweep failed');
    }
    lastEndedAt = performance.now();
    if (!stopped) schedule();
  };

  const schedule = (): void => {
    timer = setTimeout(
      () => {
        running = once();
      },
      everyMs * (0.5 + Math.random() / 2),
    );
  };
  schedule();

  return {
    stop: async () => {
      stopped = true;
      clearTimeout(timer);
      await running;
    },
    lastEndedAt: () => lastEndedAt,
  };
};
