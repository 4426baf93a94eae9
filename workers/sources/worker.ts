import type { Embedder } from '@parley/understanding';
import { beginEmbedder, type OpeningEmbedder } from '../../src/embedder.ts';
import type { Opening } from '../../src/platform/process/lifecycle.ts';
import { createMetrics } from '../../src/platform/process/metrics.ts';
import type { Sweeper } from '../../src/platform/process/sweeper.ts';
import { countEmbeddings, countPages } from '../../src/service-metrics.ts';
import { BACKGROUND_POOL_SIZE, type Module, openService } from '../../src/service.ts';
import { SOURCES_QUEUE } from '../../src/sources/queue.ts';
import { openReading } from '../../src/sources/reading.ts';
import { openQueueWorkers, openWorkerHealth } from '../../src/worker-process.ts';

/** Assembles and starts the sources worker. Tests may pass their own embedder, and `ca` (`ReadOptions`). */
export const openSourcesWorker = async ({
  ca,
  embedder,
  ...opening
}: Opening & { embedder?: Embedder; ca?: string }) => {
  const metrics = createMetrics({ token: opening.config.METRICS_TOKEN });
  // One process of the model, at the low priority of this process.
  const config = { ...opening.config, SEMANTIC_PROCESSES: 1 };
  const beginning = beginEmbedder({ ...opening, config, embedder, count: countEmbeddings(metrics) });
  const service = await openService({ ...opening, redisRole: 'worker', asidePoolSize: BACKGROUND_POOL_SIZE });
  const module = { service, metrics, ...opening };
  const sweeps = await readSources(module, { embedder: beginning, ...(ca && { ca }) });
  return { ...service, healthPort: await openWorkerHealth(module, sweeps) };
};

type ReadOptions = {
  embedder: OpeningEmbedder;
  /** Certificate authorities that replace the public ones. */
  ca?: string;
};

/** The module that reads sources. Returns the sweeps that must not be stuck. */
export const readSources = async (module: Module, { embedder: beginning, ca }: ReadOptions): Promise<Sweeper[]> => {
  const { service, metrics, config, logger, lifecycle } = module;
  const { sources, sourceRuns: runs, passageVectors: vectors, passages, assistants } = service.aside;
  const { process, sweeps } = openReading({
    runs,
    sources,
    vectors,
    passages,
    assistants,
    redis: service.redis,
    embedder: await beginning.opened,
    countPage: countPages(metrics),
    config,
    logger,
    lifecycle,
    ...(ca && { ca }),
  });
  await openQueueWorkers({ queue: SOURCES_QUEUE, concurrency: 1, process }, module);
  return sweeps;
};
