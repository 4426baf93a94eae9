import { DAY_MS } from './clock.ts';
/**
 * Time limits that depend on each other. `timingProblems` contains the inequalities between these limits, and
 * `readConfig` refuses to start when an inequality does not hold. Independent limits stay where they are used.
 */

/** The longest time from the start of the DNS lookup to the end of the receiver's response. */
export const DELIVERY_DEADLINE_MS = 5_000;

export const TIMING = {
  // The steps of a delivery, from reading its outbox to its outcome.
  deliveryDeadlineMs: DELIVERY_DEADLINE_MS,
  /** Time for the rest of the body once the status has arrived. */
  bodyGraceMs: 1_000,
  /** Outboxes and endpoints that were read longer ago may be outdated, so they allow no claim and no connection. */
  readFreshMs: 2_000,
  /** After this time since the outbox was read, no byte of the request may be written. */
  writeBeforeMs: 7_000,
  /** A claim that is older than this has lost its worker. A sweep ends such a claim as `unknown`. */
  claimLostMs: 10_000,
  /** How long the write of an outcome is repeated while MongoDB is unavailable. */
  recordForMs: 10_000,
  /**
   * The longest time that MongoDB takes for a write that ends a delivery. Lists of ends leave out what is newer than
   * this.
   */
  endWrittenWithinMs: 5_000,
  /** The contract's promise: a lost claim has its outcome within this time. */
  claimEndedWithinMs: 12_000,

  // Sweeps, which every worker runs by its own timer.
  /** The longest pause between two sweeps. */
  sweepEveryMs: 1_500,
  /** The longest pause between two purges, settlements of quotas, and erasures of old conversations. */
  maintenanceEveryMs: 20_000,
  /** A sweep that runs longer than this makes its process unready. */
  sweepStuckMs: 30_000,
  /** An event that has waited this long without a delivery in flight needs a new wake-up. */
  eventStaleMs: 2_000,
  /** A head of pending turns that has waited this long without a lease needs a new job. */
  turnStaleMs: 2_000,
  /** After this time, a turn gets a new job even if its old job may still be waiting in the queue. */
  turnJobReplacedAfterMs: 20_000,

  // Alerts.
  alertEveryMs: 10_000,
  /** A condition is over if it was not true for this long. */
  alertEndsAfterMs: 60_000,
  /**
   * A condition that returns within this time reopens its alert. That alert then ends only after this time without it.
   */
  alertReturnsWithinMs: 30 * 60_000,
  /** How long a mail server has for one message, whatever it answers meanwhile. */
  alertMailMs: 30_000,
  alertEndpointFailingMs: 300_000,
  alertEventsLateMs: 60_000,
  alertQueueStuckMs: 30_000,
  /** Sources may wait longer than turns, because reading a website takes long. */
  alertSourcesStuckMs: 300_000,
  alertSweepsStoppedMs: 60_000,
  /** The longest pause between two signs of life of a worker. */
  workerBeatMs: 5_000,
  /** A worker that is not heard for so long is frozen or dead. Longer than MongoDB takes for a failover. */
  workerSilentMs: 45_000,

  // The steps of a turn while a worker answers it.
  turnLeaseMs: 10_000,
  turnLeaseRenewMs: 3_000,
  /** How long the count of a turn's tries is kept. A lost count starts at zero again. */
  triesKeptMs: 120_000,
  /** The duration of BullMQ's lock on a job. BullMQ renews the lock after half this time. */
  jobLockMs: 10_000,
  /** How often BullMQ looks for jobs whose lock has expired. */
  jobStalledEveryMs: 5_000,

  /** How long a recovery is driven before others that are due have their turn. */
  recoveryTurnMs: 30_000,

  // The reading of sources.
  sourceLeaseMs: 15_000,
  sourceRenewMs: 4_000,
  /** The shortest time between two requests to one host, by all processes together. */
  sourceRequestEveryMs: 500,
  /** The longest pause between two requests that a host can demand (`Crawl-delay`). */
  sourceRequestEveryMaxMs: 10_000,
  /** How long a host may take until the headers of its response, and between two parts of a body. */
  sourceSilentMs: 10_000,
  /** How long a request may take, with its redirects. */
  sourceFetchMs: 30_000,
  /** The first and the longest pause for a host after a 429 or 503 that names no time. */
  sourceBackoffMs: 5_000,
  sourceBackoffMaxMs: 120_000,
  /** While other sources wait for a place, no source keeps one to wait for its host longer than this, or one pause of it. */
  sourceRestMs: 5_000,
  /** A run that could not read robots.txt, or was told to come back later, is tried again after this time. */
  sourcePostponedMs: 3_600_000,
  /** After this time, a run lets another source go first. */
  sourceSliceMs: 60_000,
  /** How long the sitemaps of a site are read. */
  sourceSitemapsMs: 300_000,
  /** The shortest time between two announcements of a run. */
  sourceAnnouncedEveryMs: 2_000,

  // Callers that wait for a reply, and callers that retry.
  replyTimeoutMs: 30_000,
  /** A caller who has waited this long may have missed the published reply, so the API reads the store. */
  checkStoreAfterMs: 2_000,
  checkStoreEveryMs: 500,
  providerTimeoutMs: 20_000,
  providerTimeoutMaxMs: 25_000,
  /** How long a caller still waits for its reply while the API process stops. Afterwards it is told to ask again. */
  replyStopAfterMs: 7_000,
  /** When a stopping API process cuts the connections that are still open. */
  connectionsCutAfterMs: 7_900,
  /** How long a provider call may continue while its process stops. */
  providerStopAfterMs: 8_000,
  /** How long the same message resumes a failed or undelivered turn. */
  resumableForMs: 600_000,
  /** The longest window in which an assistant may replay a delivered answer. */
  dedupeWindowMaxMs: 600_000,
  /** How long the record of a delivered turn is kept. Without this record, the turn counts as undelivered. */
  deliveredKeptMs: 660_000,

  // Settings of an assistant or an endpoint, read by every process.
  settingsCachedForMs: 900,
  /** The contract's promise: a revoked key or a changed endpoint takes effect within this time. */
  settingsSeenWithinMs: 1_000,

  // Limits that the environment sets.
  eventMaxAgeS: 600,
  deliveryRetentionDays: 30,
  shutdownGraceMs: 1_000,
  shutdownDeadlineMs: 15_000,
};
export type Timing = typeof TIMING;

/** Limits by their names in the environment. */
type ConfiguredTiming = {
  REPLY_TIMEOUT_MS: number;
  SHUTDOWN_GRACE_MS: number;
  SHUTDOWN_DEADLINE_MS: number;
  EVENT_MAX_AGE_S: number;
  DELIVERY_RETENTION_DAYS: number;
};

/** All in milliseconds. */
type Limits = Timing & ConfiguredTiming;
/** The name of a limit, or a computation with some of them. */
type Side = keyof Limits | readonly [text: string, ms: (t: Limits) => number];
type Rule = [small: Side, sign: '<' | '≤', large: Side, why: string];

const RULES: Rule[] = [
  // A delivery.
  ['bodyGraceMs', '<', 'deliveryDeadlineMs', 'the rest of a body is only part of a response'],
  [
    ['readFreshMs + deliveryDeadlineMs', (t) => t.readFreshMs + t.deliveryDeadlineMs],
    '≤',
    'writeBeforeMs',
    'a delivery that starts with the oldest fresh reading needs its whole deadline',
  ],
  ['writeBeforeMs', '<', 'claimLostMs', 'nothing may be written for a claim that a sweep has ended'],
  [
    ['claimLostMs + sweepEveryMs', (t) => t.claimLostMs + t.sweepEveryMs],
    '≤',
    'claimEndedWithinMs',
    'a lost claim ends in time only if a sweep comes soon enough',
  ],
  ['claimLostMs', '≤', 'recordForMs', 'an outcome is worth a new try for as long as no sweep has ended its claim'],
  ['endWrittenWithinMs', '<', 'claimLostMs', 'an end that takes longer to write is written by a sweep'],
  // A turn.
  [
    ['3 × turnLeaseRenewMs', (t) => 3 * t.turnLeaseRenewMs],
    '<',
    'turnLeaseMs',
    'a lease must outlive two renewals that are lost',
  ],
  ['turnLeaseMs', '≤', 'jobLockMs', 'a job that comes back sooner finds its turns leased to the dead worker'],
  ['jobStalledEveryMs', '≤', 'jobLockMs', 'a lock that has run out should be seen within as long again'],
  ['turnStaleMs', '<', 'turnJobReplacedAfterMs', 'a job may wait in the queue before another one is made'],
  [
    [
      '3 × (turnLeaseMs + turnJobReplacedAfterMs + sweepEveryMs)',
      (t) => 3 * (t.turnLeaseMs + t.turnJobReplacedAfterMs + t.sweepEveryMs),
    ],
    '<',
    'triesKeptMs',
    'a turn fails after three tries, so their count must outlive three lost ones',
  ],
  [
    ['max(resumableForMs, dedupeWindowMaxMs)', (t) => Math.max(t.resumableForMs, t.dedupeWindowMaxMs)],
    '<',
    'deliveredKeptMs',
    'a turn that can still be matched must be known to be delivered',
  ],
  ['providerTimeoutMs', '≤', 'providerTimeoutMaxMs', 'the default is one of the allowed values'],
  ['providerTimeoutMaxMs', '<', 'replyTimeoutMs', 'there must be time to answer without a provider that is too slow'],
  [
    ['checkStoreAfterMs + checkStoreEveryMs', (t) => t.checkStoreAfterMs + t.checkStoreEveryMs],
    '<',
    'replyTimeoutMs',
    'a caller whose message was lost must still get the stored reply',
  ],
  // Sources.
  [
    ['3 × sourceRenewMs', (t) => 3 * t.sourceRenewMs],
    '<',
    'sourceLeaseMs',
    'a lease must outlive two renewals that are lost',
  ],
  ['sourceSilentMs', '≤', 'sourceFetchMs', 'silence is only part of a request'],
  [
    'sourceRequestEveryMs',
    '≤',
    'sourceRequestEveryMaxMs',
    'a host may ask for more time between requests, never for less',
  ],
  ['sourceBackoffMs', '≤', 'sourceBackoffMaxMs', 'the first backoff is the shortest'],
  // A process.
  [
    'replyStopAfterMs',
    '<',
    'connectionsCutAfterMs',
    'a caller who waits for its reply must get an answer before its connection is cut',
  ],
  [['2 × sweepEveryMs', (t) => 2 * t.sweepEveryMs], '<', 'sweepStuckMs', 'a sweep that is merely waiting is not stuck'],
  [
    ['3 × workerBeatMs', (t) => 3 * t.workerBeatMs],
    '<',
    'workerSilentMs',
    'a worker that is merely slow is not silent',
  ],
  [
    'sweepEveryMs',
    '≤',
    ['eventStaleMs and turnStaleMs', (t) => Math.min(t.eventStaleMs, t.turnStaleMs)],
    'work on its way must not be woken by every sweep',
  ],
  ['settingsCachedForMs', '<', 'settingsSeenWithinMs', 'no process may act on older settings'],
  // What is configured.
  [
    'REPLY_TIMEOUT_MS',
    '<',
    'resumableForMs',
    'a caller who has waited in vain must still find the reply when asking again',
  ],
  ['EVENT_MAX_AGE_S', '<', 'DELIVERY_RETENTION_DAYS', 'an event whose record is gone could be sent twice'],
  ['deliveryDeadlineMs', '<', 'SHUTDOWN_DEADLINE_MS', 'a process that stops must let its deliveries end'],
  [
    'SHUTDOWN_GRACE_MS',
    '<',
    'replyStopAfterMs',
    'a caller who waits for its reply must not be told to ask again before others can answer',
  ],
  ['connectionsCutAfterMs', '<', 'SHUTDOWN_DEADLINE_MS', 'a process that stops must let its requests end'],
  ['providerStopAfterMs', '<', 'SHUTDOWN_DEADLINE_MS', 'a process that stops must let its providers end'],
];

/** One line for each inequality that does not hold, with the configured limits included. */
export const timingProblems = (env: ConfiguredTiming, timing: Timing = TIMING): string[] => {
  const ages = {
    EVENT_MAX_AGE_S: env.EVENT_MAX_AGE_S * 1_000,
    DELIVERY_RETENTION_DAYS: env.DELIVERY_RETENTION_DAYS * DAY_MS,
  };
  const limits = { ...timing, ...env, ...ages };
  const nameOf = (side: Side): string => (typeof side === 'string' ? side : side[0]);
  const msOf = (side: Side): number => (typeof side === 'string' ? limits[side] : side[1](limits));
  return RULES.flatMap(([small, sign, large, why]) => {
    const [least, most] = [msOf(small), msOf(large)];
    if (sign === '≤' ? least <= most : least < most) return [];
    const words = sign === '≤' ? 'must be at most' : 'must be less than';
    return [`${nameOf(small)} (${least} ms) ${words} ${nameOf(large)} (${most} ms): ${why}`];
  });
};
