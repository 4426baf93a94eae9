/**
 * A fifth of the limits after which others take over the work of a killed reply worker, and soon a sweep that finds it.
 * For processes that a test kills (quick-process.ts), and for the stack that goes on.
 */
export const QUICK = {
  sweepEveryMs: 500,
  turnStaleMs: 1_000,
  turnJobReplacedAfterMs: 3_000,
  turnLeaseMs: 2_000,
  turnLeaseRenewMs: 600,
  jobLockMs: 2_000,
  jobStalledEveryMs: 1_000,
};
