import { newToken } from '../../src/platform/ids.ts';
import type { Lifecycle } from '../../src/platform/lifecycle.ts';
import type { Logger } from '../../src/platform/logger.ts';
import { startSweeper } from '../../src/platform/sweeper.ts';
import type { Service } from '../../src/service.ts';

const EVERY_MS = 2_000;

type Options = { service: Service; logger: Logger; lifecycle: Lifecycle };

/** Runs the projection: search words, figures and misses. All reply workers try, and one of them is the leader. */
export const openProjection = ({ service, logger, lifecycle }: Options): void => {
  const { insights, assistants } = service;
  const projection = insights.openProjection({
    token: newToken(),
    listAssistantIds: assistants.listAssistantIds,
    draining: lifecycle.draining,
    logger,
  });
  // The lease expires by itself, so an unavailable MongoDB must not fail the stop.
  lifecycle.add('lead of the projection', projection, ({ release }) => release().catch(() => undefined));
  const sweeper = startSweeper('projection', projection.round, { everyMs: EVERY_MS, logger });
  lifecycle.add('projection', sweeper, (one) => one.stop());
};
