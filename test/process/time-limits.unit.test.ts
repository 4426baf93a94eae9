import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { ConfigError, readConfig } from '../../src/platform/process/config.ts';
import { explainFailure } from '../../src/platform/process/lifecycle.ts';
import { DELIVERY_DEADLINE_MS, TIMING, type Timing, timingProblems } from '../../src/platform/process/time-limits.ts';

const defaults = readConfig({});

const refusalOf = (env: Record<string, string>): string => {
  try {
    readConfig(env);
  } catch (failure) {
    expect(failure).toBeInstanceOf(ConfigError);
    return explainFailure(failure, env);
  }
  return 'started';
};

test('the limits agree with each other, and the configuration uses them as defaults', () => {
  expect(timingProblems(defaults)).toEqual([]);
  expect(defaults).toMatchObject({
    REPLY_TIMEOUT_MS: TIMING.replyTimeoutMs,
    SHUTDOWN_DEADLINE_MS: TIMING.shutdownDeadlineMs,
    EVENT_MAX_AGE_S: TIMING.eventMaxAgeS,
    DELIVERY_RETENTION_DAYS: TIMING.deliveryRetentionDays,
  });
});

test.each<[keyof Timing, number, string]>([
  ['deliveryDeadlineMs', 5_001, 'readFreshMs + deliveryDeadlineMs (7001 ms) must be at most writeBeforeMs (7000 ms)'],
  ['readFreshMs', 2_001, 'readFreshMs + deliveryDeadlineMs (7001 ms) must be at most writeBeforeMs (7000 ms)'],
  ['bodyGraceMs', 5_000, 'bodyGraceMs (5000 ms) must be less than deliveryDeadlineMs (5000 ms)'],
  ['writeBeforeMs', 10_000, 'writeBeforeMs (10000 ms) must be less than claimLostMs (10000 ms)'],
  ['claimLostMs', 7_000, 'writeBeforeMs (7000 ms) must be less than claimLostMs (7000 ms)'],
  ['claimEndedWithinMs', 11_499, 'claimLostMs + sweepEveryMs (11500 ms) must be at most claimEndedWithinMs'],
  ['recordForMs', 9_999, 'claimLostMs (10000 ms) must be at most recordForMs (9999 ms)'],
  ['sweepStuckMs', 3_000, '2 × sweepEveryMs (3000 ms) must be less than sweepStuckMs (3000 ms)'],
  ['eventStaleMs', 1_499, 'sweepEveryMs (1500 ms) must be at most eventStaleMs and turnStaleMs (1499 ms)'],
  ['turnStaleMs', 20_000, 'turnStaleMs (20000 ms) must be less than turnJobReplacedAfterMs (20000 ms)'],
  ['turnLeaseRenewMs', 3_334, '3 × turnLeaseRenewMs (10002 ms) must be less than turnLeaseMs (10000 ms)'],
  ['jobLockMs', 9_999, 'turnLeaseMs (10000 ms) must be at most jobLockMs (9999 ms)'],
  ['jobStalledEveryMs', 10_001, 'jobStalledEveryMs (10001 ms) must be at most jobLockMs (10000 ms)'],
  ['triesKeptMs', 94_500, 'must be less than triesKeptMs (94500 ms)'],
  ['resumableForMs', 660_000, 'must be less than deliveredKeptMs (660000 ms)'],
  ['dedupeWindowMaxMs', 660_000, 'must be less than deliveredKeptMs (660000 ms)'],
  ['providerTimeoutMs', 25_001, 'providerTimeoutMs (25001 ms) must be at most providerTimeoutMaxMs (25000 ms)'],
  ['providerTimeoutMaxMs', 30_000, 'providerTimeoutMaxMs (30000 ms) must be less than replyTimeoutMs (30000 ms)'],
  ['checkStoreAfterMs', 29_500, 'checkStoreAfterMs + checkStoreEveryMs (30000 ms) must be less than replyTimeoutMs'],
  ['settingsCachedForMs', 1_000, 'settingsCachedForMs (1000 ms) must be less than settingsSeenWithinMs (1000 ms)'],
  ['replyStopAfterMs', 7_900, 'replyStopAfterMs (7900 ms) must be less than connectionsCutAfterMs (7900 ms)'],
  ['replyStopAfterMs', 1_000, 'SHUTDOWN_GRACE_MS (1000 ms) must be less than replyStopAfterMs (1000 ms)'],
  [
    'connectionsCutAfterMs',
    15_000,
    'connectionsCutAfterMs (15000 ms) must be less than SHUTDOWN_DEADLINE_MS (15000 ms)',
  ],
  ['providerStopAfterMs', 15_000, 'providerStopAfterMs (15000 ms) must be less than SHUTDOWN_DEADLINE_MS (15000 ms)'],
])('%s of %i ms breaks one inequality, which is reported in one line', (name, ms, problem) => {
  const problems = timingProblems(defaults, { ...TIMING, [name]: ms });

  expect(problems).toEqual([expect.stringContaining(problem)]);
  expect(problems[0]).toMatch(/^[^\n]+: [^\n]+$/);
});

test.each([
  [{ REPLY_TIMEOUT_MS: '600000' }, 'REPLY_TIMEOUT_MS (600000 ms) must be less than resumableForMs (600000 ms): '],
  [
    { EVENT_MAX_AGE_S: '86400', DELIVERY_RETENTION_DAYS: '1' },
    'EVENT_MAX_AGE_S (86400000 ms) must be less than DELIVERY_RETENTION_DAYS (86400000 ms): ',
  ],
  [
    { SHUTDOWN_DEADLINE_MS: '8000' },
    'providerStopAfterMs (8000 ms) must be less than SHUTDOWN_DEADLINE_MS (8000 ms): ',
  ],
])('a process does not start with %o and explains this in one line', (env, problem) => {
  const [heading, ...lines] = refusalOf(env).split('\n');

  expect(heading).toBe('The configuration is not valid:');
  expect(lines).toEqual([expect.stringContaining(problem)]);
});

test.each([
  [{ REPLY_TIMEOUT_MS: '100' }],
  [{ REPLY_TIMEOUT_MS: '599999' }],
  [{ EVENT_MAX_AGE_S: '86399', DELIVERY_RETENTION_DAYS: '1' }],
  [{ SHUTDOWN_DEADLINE_MS: '8001' }],
])('a process starts with %o', (env) => {
  expect(refusalOf(env)).toBe('started');
});

test('the page for receivers names the real deadline', () => {
  const page = readFileSync(new URL('../../docs/receiving-webhooks.md', import.meta.url), 'utf8');
  const seconds = ['zero', 'one', 'two', 'three', 'four', 'five', 'six', 'seven'][DELIVERY_DEADLINE_MS / 1_000];

  expect(page).toContain(`## Answer within ${seconds} seconds`);
  expect(page).toContain(`no answer within ${seconds} seconds`);
});
