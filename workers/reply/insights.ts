import { newToken } from '../../src/platform/ids.ts';
import type { Lifecycle } from '../../src/platform/lifecycle.ts';
import type { Logger } from '../../src/platform/logger.ts';
import type { Embedder } from './embedder/embedder.ts';
import { startSweeper } from '../../src/platform/sweeper.ts';
import type { Service } from '../../src/service.ts';

const EVERY_MS = 2_000;
const COUNT_EVERY_MS = 10_000;

type Options = { service: Service; logger: Logger; lifecycle: Lifecycle };

/** Runs the projection: search words, figures and misses. All reply workers try, and one of them is the leader. */
export const openProjection = (embedder: Embedder, { service, logger, lifecycle }: Options): void => {
  const { insights, assistants, deliveries } = service.aside;
  const projection = insights.openProjection({
    token: newToken(),
    listAssistantIds: assistants.listAssistantIds,
    embedding: {
      // Like a visitor's question, but without haste.
      embed: (texts, holder) => embedder.embed(texts, 'query', { holder, priority: 'background' }),
      model: embedder.model,
    },
    draining: lifecycle.draining,
    logger,
  });
  // The lease expires by itself, so an unavailable MongoDB must not fail the stop.
  lifecycle.add('lead of the projection', projection, ({ release }) => release().catch(() => undefined));
  let countedAt = Number.NEGATIVE_INFINITY;
  let isLeader = false;
  const round = async (): Promise<void> => {
    isLeader = await projection.round();
    if (!isLeader || performance.now() - countedAt < COUNT_EVERY_MS) return;
    const ids = await assistants.listAssistantIds();
    const isComplete = await insights.deliveryFigures.countEnded(ids, deliveries.countHourlyOutcomes, {
      draining: lifecycle.draining,
      logger,
    });
    if (isComplete) countedAt = performance.now();
  };
  const group = async (): Promise<void> => (isLeader ? projection.groupMisses() : undefined);
  const sweepers = [
    startSweeper('projection', round, { everyMs: EVERY_MS, logger }),
    startSweeper('misses', group, { everyMs: EVERY_MS, logger }),
  ];
  lifecycle.add('projection', sweepers, (all) => Promise.all(all.map((one) => one.stop())));
};
