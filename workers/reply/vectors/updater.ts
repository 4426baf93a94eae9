import { REGISTER_EVERY_MS } from '../../../src/assistants/embedders.ts';
import { KNOWLEDGE_QUEUE, KnowledgeJob } from '../../../src/assistants/knowledge-queue.ts';
import { withDeadline } from '../../../src/process/deadline.ts';
import { newToken } from '../../../src/process/ids.ts';
import type { Config } from '../../../src/process/config.ts';
import type { Lifecycle } from '../../../src/process/lifecycle.ts';
import type { Logger } from '../../../src/process/logger.ts';
import { startSweeper } from '../../../src/process/sweeper.ts';
import type { Service } from '../../../src/service.ts';
import { openQueueWorkers } from '../../../src/worker-process.ts';
import type { Embedder } from '@parley/understanding';
import { createUpdateVectors } from './update.ts';

/**
 * The maximum number of assistants that are updated at the same time. They share the embedder, so that a small edit
 * does not wait for a large import.
 */
const MAX_RUNNING = 16;
const THOROUGH_EVERY_MS = 60_000;
/**
 * How long one sweep keeps starting updates for more assistants. The limit matters after an upgrade, when all
 * assistants are outdated.
 */
const SWEEP_FOR_MS = 3_000;

type Options = { service: Service; config: Config; logger: Logger; lifecycle: Lifecycle };

/**
 * Keeps the vectors of all assistants up to date. Jobs start updates, and a sweep finds assistants whose job was lost.
 * The updater also registers this worker's model for the other workers.
 */
export const openVectorUpdater = async (embedder: Embedder, options: Options): Promise<void> => {
  const { service, config, logger, lifecycle } = options;
  const { vectors, semantic, embedders } = service.aside.assistants;
  const worker = newToken();
  let others: string[] = [];
  let published = { text: '', at: Number.NEGATIVE_INFINITY };
  let thoroughAt = Number.NEGATIVE_INFINITY;

  const updateVectors = createUpdateVectors({
    vectors,
    semantic,
    embedder,
    others: () => others,
    draining: lifecycle.draining,
    logger,
  });
  const running = new Map<string, Promise<void>>();
  const start = (assistantId: string): void => {
    if (running.has(assistantId) || running.size >= MAX_RUNNING || lifecycle.draining.aborted) return;
    const ended = updateVectors(assistantId)
      .catch((cause: unknown) => logger.warn({ err: cause, assistantId }, 'knowledge vectors were not made'))
      .finally(() => running.delete(assistantId));
    running.set(assistantId, ended);
  };

  const publishOffer = async (): Promise<void> => {
    const { available, detail } = embedder.status();
    const offered = { model: embedder.model(), available, detail };
    const text = JSON.stringify(offered);
    if (text !== published.text || performance.now() - published.at > REGISTER_EVERY_MS) {
      await embedders.register(worker, offered);
      published = { text, at: performance.now() };
    }
    const live = await embedders.listRunning();
    others = live.flatMap((one) =>
      one.available && one.model !== null && one.model !== offered.model ? [one.model] : [],
    );
  };

  const sweep = async (): Promise<void> => {
    await publishOffer();
    const until = performance.now() + SWEEP_FOR_MS;
    const thorough = performance.now() - thoroughAt > THOROUGH_EVERY_MS;
    if (thorough) thoroughAt = performance.now();
    for (;;) {
      const model = embedder.model();
      const limit = MAX_RUNNING - running.size;
      if (model === null || limit === 0 || performance.now() > until || lifecycle.draining.aborted) return;
      const found = await semantic.findOutdated({ model, others }, { thorough, limit });
      for (const assistantId of found) start(assistantId);
      if (found.length < limit) return;
      const rest = Math.max(0, until - performance.now());
      await withDeadline(Promise.race(running.values()), rest, { signal: lifecycle.draining }).catch(
        () => undefined, // no time left, or told to stop
      );
    }
  };

  await publishOffer();
  // A registration expires by itself, so an unavailable MongoDB must not fail the stop.
  lifecycle.add('embedder offered', worker, (id) => embedders.unregister(id).catch(() => undefined));
  lifecycle.add('knowledge vectors', running, (all) => Promise.all(all.values()));
  const sweeper = startSweeper('knowledge vectors', sweep, { everyMs: config.timing.sweepEveryMs, logger });
  lifecycle.add('knowledge sweep', sweeper, (one) => one.stop());
  const process = async (data: unknown): Promise<void> => start(KnowledgeJob.parse(data).assistantId);
  await openQueueWorkers({ queue: KNOWLEDGE_QUEUE, concurrency: 1, process }, options);
};
