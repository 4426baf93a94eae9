import type { Embedder } from '@parley/understanding';
import { beginEmbedder, type OpeningEmbedder } from '../../src/embedder.ts';
import type { Opening } from '../../src/platform/process/lifecycle.ts';
import { createMetrics } from '../../src/platform/process/metrics.ts';
import type { Sweeper } from '../../src/platform/process/sweeper.ts';
import { countEmbeddings, countPages } from '../../src/service-metrics.ts';
import { BACKGROUND_POOL_SIZE, type Module, openService } from '../../src/service.ts';
import { SOURCES_QUEUE } from '../../src/sources/source.ts';
import { openReading, type ReadingOptions } from '../../src/sources/reading.ts';
import { openQueueWorkers, openWorkerHealth } from '../../src/worker-process.ts';

/** Assembles and starts the sources worker. Tests may pass their own embedder. */
export const openSourcesWorker = async (given: Opening & ReadingOptions & { embedder?: Embedder }) => {
  const metrics = createMetrics({ token: given.config.METRICS_TOKEN });
  // One process of the model, at the low priority of this process.
  const config = { ...given.config, SEMANTIC_PROCESSES: 1 };
  const embedder = beginEmbedder({ ...given, config, count: countEmbeddings(metrics) });
  const service = await openService({ ...given, redisRole: 'worker', asidePoolSize: BACKGROUND_POOL_SIZE });
  const module = { ...given, service, metrics };
  const sweeps = await readSources(module, { ...given, embedder });
  return { ...service, healthPort: await openWorkerHealth(module, sweeps) };
};

/** The module that reads sources. Returns the sweeps that must not be stuck. */
export const readSources = async (
  module: Module,
  { embedder, ...options }: ReadingOptions & { embedder: OpeningEmbedder },
): Promise<Sweeper[]> => {
  const { metrics } = module;
  const countPage = countPages(metrics);
  const { process, sweeps } = openReading(module, { ...options, embedder: await embedder.opened, countPage });
  await openQueueWorkers({ queue: SOURCES_QUEUE, concurrency: 1, process }, module);
  return sweeps;
};
