import type { Logger } from './logger.ts';

export type Sweeper = { stop: () => Promise<void>; lastEndedAt: () => number };

/**
 * Runs `sweep` repeatedly, never two runs at the same time. The pause is random, at most `everyMs`, so that several
 * processes do not sweep at the same moments. A failed sweep is logged and repeated. Every worker has its own timer,
 * because a schedule in Redis could be lost together with the jobs that a sweep restores.
 */
export const startSweeper = (
  name: string,
  sweep: () => Promise<void>,
  { everyMs, logger }: { everyMs: number; logger: Logger },
): Sweeper => {
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
