import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'bullmq';
import { channelsOf } from './alerts/notify.ts';
import { openAlerts } from './alerts/watch.ts';
import { createPace, type WorkPace } from './alerts/worker-signs.ts';
import { createDeliverySweeps } from './events/sweep.ts';
import { createReadiness, openHealthServer } from './platform/http/health.ts';
import { type RedisClient, whenUnavailable } from './platform/redis/redis.ts';
import { serverNow } from './platform/process/clock.ts';
import { withDeadline } from './platform/process/deadline.ts';
import type { Timing } from './platform/process/time-limits.ts';
import { type Sweeper, startSweeper } from './platform/process/sweeper.ts';
import type { Module } from './service.ts';
import type { CountDelivery } from './events/sending/dispatch.ts';
import { sampleQueues } from './service-metrics.ts';
import { createReleaseSweep } from './inbox/assignees.ts';
import { createNotTakenSweep, createTurnSweep } from './turns/sweep.ts';

type QueueWork = {
  queue: string;
  concurrency: number;
  maxStalledCount?: number;
  /** What the queue's work counts itself. Without it, how long each job has waited is counted. */
  pace?: WorkPace;
  /** Processes one job. The job's data has not been checked, so this function must first refuse invalid data. */
  process: (data: unknown) => Promise<void>;
};

/** How long BullMQ may take to close a worker that runs no job. */
const CLOSED_WITHIN_MS = 2_000;
const LEFT_WITHIN_MS = 500;

/** Resolves once no job has been running for `CLOSED_WITHIN_MS`. */
const whenIdle = async (running: Set<Promise<void>>, signal: AbortSignal): Promise<void> => {
  do {
    await Promise.allSettled(running);
    await sleep(CLOSED_WITHIN_MS, undefined, { signal }).catch(() => undefined);
  } while (running.size > 0);
};

/**
 * BullMQ runs nothing while it fetches as many jobs as it may run, one after the other. So it may always run only a few
 * more than it runs now. Otherwise the first job of a burst waits until 64 have been fetched.
 */
const FETCHED_AHEAD = 4;

type Opened = { worker: Worker; connection: RedisClient; prefix: string; running: Set<Promise<void>> };

/**
 * Closes a worker. Without Redis, BullMQ cannot close it, so only the running jobs are awaited. The wait is bounded: a
 * closing worker of a cluster connects again to stop waiting for jobs, and while a node is unavailable that takes
 * longer than the process has.
 */
const closeWorker = async ({ worker, connection, prefix, running }: Opened): Promise<void> => {
  const closed = new AbortController();
  const { signal } = closed;
  const withoutRedis = whenUnavailable(connection, { key: prefix, signal }).then(() => Promise.allSettled(running));
  await Promise.race([worker.close(), withoutRedis, whenIdle(running, signal)]).finally(() => closed.abort());
};

/** Tells in MongoDB that the worker lives, and what it has ended. */
const openSigns = async (
  queue: string,
  { take }: WorkPace,
  { service, config, logger, lifecycle }: Module,
): Promise<void> => {
  const { worker, aside } = service;
  const beat = (): Promise<void> => aside.workerSigns.beat(worker, queue, take());
  await beat();
  const beating = startSweeper(`signs of ${queue}`, beat, { everyMs: config.timing.workerBeatMs, logger });
  lifecycle.add(`signs of ${queue}`, beating, async ({ stop }) => {
    await stop();
    // Without MongoDB it is silent, and forgotten after a while.
    await withDeadline(aside.workerSigns.leave(worker, queue, take()), LEFT_WITHIN_MS).catch(() => undefined);
  });
};

/**
 * Processes a queue with one BullMQ worker per partition. Each BullMQ worker waits for jobs on its own duplicate of the
 * Redis connection.
 */
export const openQueueWorkers = async (
  { queue, concurrency, maxStalledCount = 1, pace: own, process }: QueueWork,
  module: Module,
): Promise<void> => {
  const { service, config, logger, lifecycle, takesLocally = false } = module;
  const { jobLockMs: lockDuration, jobStalledEveryMs: stalledInterval } = config.timing;
  const connection = service.redis;
  const pace = own ?? createPace();
  const noteWait = (seconds: number): void => {
    if (!own) pace.note(seconds);
  };
  const opened = service.partitions.tags.map((prefix): Opened => {
    const running = new Set<Promise<void>>();
    const mayFetch = (): number => Math.min(concurrency, running.size + FETCHED_AHEAD);
    const run = async ({ data, timestamp }: { data: unknown; timestamp: number }): Promise<void> => {
      noteWait(Math.max(0, serverNow() - timestamp) / 1000);
      const one = process(data).finally(() => {
        running.delete(one);
        worker.concurrency = mayFetch();
      });
      running.add(one);
      worker.concurrency = mayFetch();
      await one;
    };
    const worker = new Worker<unknown>(queue, run, {
      connection,
      // After these times, BullMQ runs a dead worker's job again, or fails the job if it must not run twice
      // (deliveries). Nothing depends on these times, because a job is only a wake-up, and a sweep finds unfinished
      // work much earlier.
      lockDuration,
      stalledInterval,
      prefix,
      concurrency: mayFetch(),
      maxStalledCount,
      metrics: { maxDataPoints: 60 },
    });
    worker.on('error', (cause) => logger.warn({ err: cause, queue }, 'worker connection failed'));
    worker.on('failed', (job, cause) => logger.error({ err: cause, queue, jobId: job?.id }, 'a job failed'));
    return { worker, connection, prefix, running };
  });
  /** The work that came without a job, while there is room for it. */
  const local = new Set<Promise<void>>();
  const take = (data: unknown): boolean => {
    if (lifecycle.draining.aborted || local.size >= concurrency) return false;
    noteWait(0);
    const one = process(data)
      .catch((cause: unknown) => logger.error({ err: cause, queue }, 'work without a job failed'))
      .finally(() => local.delete(one));
    local.add(one);
    return true;
  };
  if (takesLocally) service.localWorkers.serve(queue, take);
  await openSigns(queue, pace, module);

  // All workers close as soon as the process begins to stop, because one after the other could take too long.
  const closing = Promise.withResolvers<unknown>();
  const close = (): void => closing.resolve(Promise.all([...opened.map(closeWorker), ...local]));
  lifecycle.draining.addEventListener('abort', close, { once: true });
  lifecycle.add(`${queue} workers`, closing, ({ promise }) => promise);
};

const isStuck = (sweep: Sweeper, { sweepStuckMs }: Timing): boolean =>
  performance.now() - sweep.lastEndedAt() > sweepStuckMs;

/** Says why a process with these sweeps is not ready, or null. */
export const stuckIn =
  (sweeps: Sweeper[], timing: Timing): (() => string | null) =>
  () =>
    sweeps.some((sweep) => isStuck(sweep, timing)) ? 'a sweep is stuck' : null;

/** Starts the health server of a worker. It is unready while one of its sweeps is stuck. Returns the port. */
export const openWorkerHealth = async (
  { service, metrics, config, logger, lifecycle }: Module,
  sweeps: Sweeper[],
): Promise<number> => {
  sampleQueues(metrics, service);
  const { draining } = lifecycle;
  const readiness = createReadiness({
    mongo: service.mongo,
    redis: service.redis,
    draining,
    stuck: stuckIn(sweeps, config.timing),
  });
  const health = await openHealthServer({
    host: config.HOST,
    port: config.WORKER_HEALTH_PORT,
    readiness,
    metrics,
    draining,
    logger,
  });
  lifecycle.add('health server', health.server, (server) => void server.close());
  return health.port;
};

/** What the sweeps need from the module that delivers: who counts what they end, and what it does not send now. */
export type Delivering = { countDelivery: CountDelivery; suspended?: () => string[] };

/** Starts what the workers of turns and deliveries have besides their queue: the sweeps of both, and the alerts. */
export const openWorkerDuties = (module: Module, { countDelivery, suspended }: Delivering): Sweeper[] => {
  const { service, config, logger, lifecycle } = module;
  const { timing } = config;
  const { aside, endpoints, leases, turnQueue, deliveryQueue } = service;
  const { alerts, conversations, deliveries, operators } = aside;
  const { findAssistant, listIdsWithTakeWithin } = aside.assistants;
  const deliverySweeps = createDeliverySweeps({
    conversations,
    deliveries,
    endpoints,
    deliveryQueue,
    eventMaxAgeMs: config.EVENT_MAX_AGE_S * 1000,
    timing,
    onEnded: (_claim, exchange) => countDelivery(exchange),
    onLost: (count) => countDelivery({ outcome: 'unknown', errorKind: 'worker_lost' }, count),
    ...(suspended && { suspended }),
  });
  const options = { everyMs: timing.sweepEveryMs, logger };
  const onReminded = (assistantId: string): Promise<void> => alerts.beginWaiting(assistantId, channelsOf(config));
  const sweeps = [
    startSweeper('turns', createTurnSweep({ conversations, leases, turnQueue, timing }), options),
    startSweeper('not taken', createNotTakenSweep({ conversations, findAssistant, onReminded, logger }), options),
    startSweeper('released', createReleaseSweep({ conversations, operators, listIdsWithTakeWithin }), options),
    startSweeper('claims', deliverySweeps.claims, options),
    startSweeper('erasures', conversations.announceErasures, options),
    startSweeper('deliveries', deliverySweeps.streams, options),
  ];
  lifecycle.add('sweeps', sweeps, (opened) => Promise.all(opened.map((sweep) => sweep.stop())));
  const noteSweep = async (): Promise<void> => {
    if (!sweeps.some((sweep) => isStuck(sweep, timing))) await alerts.noteSweep();
  };
  const noting = startSweeper('sign of life', noteSweep, { everyMs: timing.alertEveryMs, logger });
  lifecycle.add('sign of life', noting, (opened) => opened.stop());
  openAlerts(module);
  return sweeps;
};
