import { startSweeper } from './platform/sweeper.ts';
import type { Lifecycle } from './platform/lifecycle.ts';
import type { Logger } from './platform/logger.ts';
import type { Service } from './service.ts';

const EVERY_MS = 20_000;

type Options = { service: Pick<Service, 'aside'>; logger: Logger; lifecycle: Lifecycle };

/**
 * Purges erased conversations again after a minute and after a day. Every worker has its own timer: a schedule in Redis
 * is lost with Redis, and a process with a wrong clock can postpone it. Deliveries and idempotency keys need no purge:
 * they expire through MongoDB's TTL indexes.
 */
export const openMaintenance = ({ service, logger, lifecycle }: Options): void => {
  const purge = async (): Promise<void> => {
    const purged = await service.aside.conversations.purgeAgain();
    if (purged > 0) logger.info({ purged }, 'erased conversations were purged again');
  };
  const sweeper = startSweeper('purge', purge, { everyMs: EVERY_MS, logger });
  lifecycle.add('purge', sweeper, (timer) => timer.stop());
};
