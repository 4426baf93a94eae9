import { serveApi } from '../../src/api.ts';
import { beginEmbedder } from '../../src/embedder.ts';
import { createLifecycle, type Lifecycle, type Opening } from '../../src/platform/process/lifecycle.ts';
import { createMetrics } from '../../src/platform/process/metrics.ts';
import {
  BACKGROUND_POOL_SIZE,
  type Module,
  openForWorkers,
  openService,
  OPERATORS_POOL_SIZE,
} from '../../src/service.ts';
import { countEmbeddings } from '../../src/service-metrics.ts';
import { openWorkerDuties, stuckIn } from '../../src/worker-process.ts';
import { deliverEvents } from '../delivery/worker.ts';
import { maintain } from '../maintenance/worker.ts';
import { answerTurns } from '../reply/worker.ts';
import { readSources } from '../sources/worker.ts';

/** How long deliveries still begin while the process stops. Each takes at most 5 s, and the process has 10 s. */
const DELIVERIES_BEGIN_FOR_MS = 4_000;

/**
 * A lifecycle for a module that others need while they stop. It stops when all that was opened later has stopped, and
 * begins to after `forMs` at the latest.
 */
const openPart = (name: string, forMs: number, { config, logger, lifecycle }: Opening): Lifecycle => {
  const part = createLifecycle(logger, { deadlineMs: config.SHUTDOWN_DEADLINE_MS });
  const begin = (): void => void part.close().catch(() => undefined); // the lifecycle reports a failure
  lifecycle.draining.addEventListener('abort', () => setTimeout(begin, forMs).unref(), { once: true });
  return lifecycle.add(name, part, ({ close }) => close());
};

/**
 * Opens all modules on one service (docs/design.md, One process). They stop in the reverse order: the API answers whom
 * it has accepted, then turns in flight end, then deliveries.
 */
export const openAll = async (opening: Opening): Promise<{ port: number }> => {
  const { config, lifecycle } = opening;
  const metrics = createMetrics({ token: config.METRICS_TOKEN });
  const embedder = beginEmbedder({ ...opening, count: countEmbeddings(metrics) });
  const service = await openService({
    ...opening,
    redisRole: 'api',
    asidePoolSize: OPERATORS_POOL_SIZE + BACKGROUND_POOL_SIZE,
    tracesAs: 'parley',
  });
  const forWorkers = await openForWorkers({ ...opening, service });
  const module: Module = { ...opening, metrics, service: forWorkers, takesLocally: true };

  const delivering = await deliverEvents({
    ...module,
    lifecycle: openPart('deliveries', DELIVERIES_BEGIN_FOR_MS, opening),
  });
  const turns = { ...module, lifecycle: openPart('turns', config.timing.connectionsCutAfterMs, opening) };
  await answerTurns(turns, { embedder, stopping: lifecycle.draining });
  await maintain(module, { embedder });
  const sweeps = [...openWorkerDuties(module, delivering), ...(await readSources(module, { embedder }))];
  return serveApi({ ...module, service }, stuckIn(sweeps, config.timing));
};
