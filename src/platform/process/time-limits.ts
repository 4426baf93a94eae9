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
  /** While other sources wait for a place, no source keeps one to wait for its host longer than this. */
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

type Limit = readonly [name: string, ms: number];
type Rule = { less: Limit; than: Limit; orEqual?: boolean; why: string };

const deliveryRules = (t: Timing): Rule[] => [
  {
    less: ['bodyGraceMs', t.bodyGraceMs],
    than: ['deliveryDeadlineMs', t.deliveryDeadlineMs],
    why: 'the rest of a body is only part of a response',
  },
  {
    less: ['readFreshMs + deliveryDeadlineMs', t.readFreshMs + t.deliveryDeadlineMs],
    than: ['writeBeforeMs', t.writeBeforeMs],
    orEqual: true,
    why: 'a delivery that starts with the oldest fresh reading needs its whole deadline',
  },
  {
    less: ['writeBeforeMs', t.writeBeforeMs],
    than: ['claimLostMs', t.claimLostMs],
    why: 'nothing may be written for a claim that a sweep has ended',
  },
  {
    less: ['claimLostMs + sweepEveryMs', t.claimLostMs + t.sweepEveryMs],
    than: ['claimEndedWithinMs', t.claimEndedWithinMs],
    orEqual: true,
    why: 'a lost claim ends in time only if a sweep comes soon enough',
  },
  {
    less: ['claimLostMs', t.claimLostMs],
    than: ['recordForMs', t.recordForMs],
    orEqual: true,
    why: 'an outcome is worth a new try for as long as no sweep has ended its claim',
  },
  {
    less: ['endWrittenWithinMs', t.endWrittenWithinMs],
    than: ['claimLostMs', t.claimLostMs],
    why: 'an end that takes longer to write is written by a sweep',
  },
];

const turnRules = (t: Timing): Rule[] => [
  {
    less: ['3 × turnLeaseRenewMs', 3 * t.turnLeaseRenewMs],
    than: ['turnLeaseMs', t.turnLeaseMs],
    why: 'a lease must outlive two renewals that are lost',
  },
  {
    less: ['turnLeaseMs', t.turnLeaseMs],
    than: ['jobLockMs', t.jobLockMs],
    orEqual: true,
    why: 'a job that comes back sooner finds its turns leased to the dead worker',
  },
  {
    less: ['jobStalledEveryMs', t.jobStalledEveryMs],
    than: ['jobLockMs', t.jobLockMs],
    orEqual: true,
    why: 'a lock that has run out should be seen within as long again',
  },
  {
    less: ['turnStaleMs', t.turnStaleMs],
    than: ['turnJobReplacedAfterMs', t.turnJobReplacedAfterMs],
    why: 'a job may wait in the queue before another one is made',
  },
  {
    less: [
      '3 × (turnLeaseMs + turnJobReplacedAfterMs + sweepEveryMs)',
      3 * (t.turnLeaseMs + t.turnJobReplacedAfterMs + t.sweepEveryMs),
    ],
    than: ['triesKeptMs', t.triesKeptMs],
    why: 'a turn fails after three tries, so their count must outlive three lost ones',
  },
  {
    less: ['max(resumableForMs, dedupeWindowMaxMs)', Math.max(t.resumableForMs, t.dedupeWindowMaxMs)],
    than: ['deliveredKeptMs', t.deliveredKeptMs],
    why: 'a turn that can still be matched must be known to be delivered',
  },
  {
    less: ['providerTimeoutMs', t.providerTimeoutMs],
    than: ['providerTimeoutMaxMs', t.providerTimeoutMaxMs],
    orEqual: true,
    why: 'the default is one of the allowed values',
  },
  {
    less: ['providerTimeoutMaxMs', t.providerTimeoutMaxMs],
    than: ['replyTimeoutMs', t.replyTimeoutMs],
    why: 'there must be time to answer without a provider that is too slow',
  },
  {
    less: ['checkStoreAfterMs + checkStoreEveryMs', t.checkStoreAfterMs + t.checkStoreEveryMs],
    than: ['replyTimeoutMs', t.replyTimeoutMs],
    why: 'a caller whose message was lost must still get the stored reply',
  },
];

const sourceRules = (t: Timing): Rule[] => [
  {
    less: ['3 × sourceRenewMs', 3 * t.sourceRenewMs],
    than: ['sourceLeaseMs', t.sourceLeaseMs],
    why: 'a lease must outlive two renewals that are lost',
  },
  {
    less: ['sourceSilentMs', t.sourceSilentMs],
    than: ['sourceFetchMs', t.sourceFetchMs],
    orEqual: true,
    why: 'silence is only part of a request',
  },
  {
    less: ['sourceRequestEveryMs', t.sourceRequestEveryMs],
    than: ['sourceRequestEveryMaxMs', t.sourceRequestEveryMaxMs],
    orEqual: true,
    why: 'a host may ask for more time between requests, never for less',
  },
  {
    less: ['sourceBackoffMs', t.sourceBackoffMs],
    than: ['sourceBackoffMaxMs', t.sourceBackoffMaxMs],
    orEqual: true,
    why: 'the first backoff is the shortest',
  },
];

const processRules = (t: Timing): Rule[] => [
  {
    less: ['replyStopAfterMs', t.replyStopAfterMs],
    than: ['connectionsCutAfterMs', t.connectionsCutAfterMs],
    why: 'a caller who waits for its reply must get an answer before its connection is cut',
  },
  {
    less: ['2 × sweepEveryMs', 2 * t.sweepEveryMs],
    than: ['sweepStuckMs', t.sweepStuckMs],
    why: 'a sweep that is merely waiting is not stuck',
  },
  {
    less: ['3 × workerBeatMs', 3 * t.workerBeatMs],
    than: ['workerSilentMs', t.workerSilentMs],
    why: 'a worker that is merely slow is not silent',
  },
  {
    less: ['sweepEveryMs', t.sweepEveryMs],
    than: ['eventStaleMs and turnStaleMs', Math.min(t.eventStaleMs, t.turnStaleMs)],
    orEqual: true,
    why: 'work on its way must not be woken by every sweep',
  },
  {
    less: ['settingsCachedForMs', t.settingsCachedForMs],
    than: ['settingsSeenWithinMs', t.settingsSeenWithinMs],
    why: 'no process may act on older settings',
  },
];

const configuredRules = (t: Timing, env: ConfiguredTiming): Rule[] => [
  {
    less: ['REPLY_TIMEOUT_MS', env.REPLY_TIMEOUT_MS],
    than: ['resumableForMs', t.resumableForMs],
    why: 'a caller who has waited in vain must still find the reply when asking again',
  },
  {
    less: ['EVENT_MAX_AGE_S', env.EVENT_MAX_AGE_S * 1_000],
    than: ['DELIVERY_RETENTION_DAYS', env.DELIVERY_RETENTION_DAYS * DAY_MS],
    why: 'an event whose record is gone could be sent twice',
  },
  {
    less: ['deliveryDeadlineMs', t.deliveryDeadlineMs],
    than: ['SHUTDOWN_DEADLINE_MS', env.SHUTDOWN_DEADLINE_MS],
    why: 'a process that stops must let its deliveries end',
  },
  {
    less: ['SHUTDOWN_GRACE_MS', env.SHUTDOWN_GRACE_MS],
    than: ['replyStopAfterMs', t.replyStopAfterMs],
    why: 'a caller who waits for its reply must not be told to ask again before others can answer',
  },
  {
    less: ['connectionsCutAfterMs', t.connectionsCutAfterMs],
    than: ['SHUTDOWN_DEADLINE_MS', env.SHUTDOWN_DEADLINE_MS],
    why: 'a process that stops must let its requests end',
  },
  {
    less: ['providerStopAfterMs', t.providerStopAfterMs],
    than: ['SHUTDOWN_DEADLINE_MS', env.SHUTDOWN_DEADLINE_MS],
    why: 'a process that stops must let its providers end',
  },
];

/** One line for each inequality that does not hold, with the configured limits included. */
export const timingProblems = (env: ConfiguredTiming, timing: Timing = TIMING): string[] =>
  [
    ...deliveryRules(timing),
    ...turnRules(timing),
    ...sourceRules(timing),
    ...processRules(timing),
    ...configuredRules(timing, env),
  ]
    .filter(({ less: [, small], than: [, large], orEqual }) => !(orEqual ? small <= large : small < large))
    .map(({ less: [small, smallMs], than: [large, largeMs], orEqual, why }) => {
      const words = orEqual ? 'must be at most' : 'must be less than';
      return `${small} (${smallMs} ms) ${words} ${large} (${largeMs} ms): ${why}`;
    });
