import type { Logger } from './logger.ts';

const CHECK_EVERY_MS = 100;
const REPORTED_FROM_MS = 400;
const AGAIN_AFTER_MS = 1_000;

/**
 * Logs when the event loop did not run for a noticeable time, at most once a second. Requests, leases and health checks
 * of the process wait for so long. The metrics have the whole distribution (`nodejs_eventloop_lag_…`).
 */
export const watchStalls = (logger: Logger): void => {
  let checkedAt = performance.now();
  let reportedAt = Number.NEGATIVE_INFINITY;
  const check = (): void => {
    const now = performance.now();
    const ms = Math.round(now - checkedAt - CHECK_EVERY_MS);
    checkedAt = now;
    if (ms < REPORTED_FROM_MS || now - reportedAt < AGAIN_AFTER_MS) return;
    reportedAt = now;
    const hint =
      'Check the load of this machine. If it is low, look for long computations, or for a suspended machine.';
    logger.warn({ ms, hint }, 'the event loop did not run');
  };
  setInterval(check, CHECK_EVERY_MS).unref();
};
