import { withDeadline } from './platform/deadline.ts';
import { openQueues } from './platform/queue.ts';
import { startSweeper } from './platform/sweeper.ts';
import type { Config } from './platform/config.ts';
import type { Lifecycle } from './platform/lifecycle.ts';
import type { Logger } from './platform/logger.ts';
import type { Service } from './service.ts';
import { openQueueWorkers } from './worker-process.ts';

export const MAINTENANCE_QUEUE = 'maintenance';

const EVERY_MS = 60_000;
const SCHEDULED_WITHIN_MS = 10_000;

type Options = { service: Service; config: Config; logger: Logger; lifecycle: Lifecycle };

/**
 * Purges erased conversations again after a minute and after a day. The schedule of this job is stored in Redis, so
 * that one worker at a time runs the job. Every worker writes the schedule again every minute, because a wiped Redis
 * loses the schedule. Deliveries and idempotency keys need no job: they expire through MongoDB's TTL indexes.
 */
export const openMaintenance = async (options: Options): Promise<void> => {
  const { service, logger, lifecycle } = options;
  const { redis, partitions, conversations } = service;
  const opened = openQueues(MAINTENANCE_QUEUE, { redis, partitions }, logger);
  lifecycle.add('queue maintenance', opened, (queue) => queue.close());

  const schedule = async (): Promise<void> => {
    await opened.queues[0]?.upsertJobScheduler('purge-erased', { every: EVERY_MS }, { name: 'purge-erased' });
  };
  const keeper = startSweeper('maintenance schedule', schedule, { everyMs: EVERY_MS, logger });
  lifecycle.add('maintenance schedule', keeper, (timer) => timer.stop());

  const process = async (): Promise<void> => {
    const purged = await conversations.purgeAgain();
    if (purged > 0) logger.info({ purged }, 'erased conversations were purged again');
  };
  await openQueueWorkers({ queue: MAINTENANCE_QUEUE, concurrency: 1, process }, options);
  await withDeadline(schedule(), SCHEDULED_WITHIN_MS);
};
