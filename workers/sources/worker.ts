import { type Embedder } from '@parley/understanding';
import { openReader, type Reader } from '@parley/reading';
import { beginEmbedder, type OpeningEmbedder } from '../../src/embedder.ts';
import { newToken } from '../../src/platform/process/ids.ts';
import type { Opening } from '../../src/platform/process/lifecycle.ts';
import type { Logger } from '../../src/platform/process/logger.ts';
import { createMetrics } from '../../src/platform/process/metrics.ts';
import { createSlots } from '../../src/platform/process/slots.ts';
import { type Sweeper, startSweeper } from '../../src/platform/process/sweeper.ts';
import { countEmbeddings, countPages } from '../../src/service-metrics.ts';
import { BACKGROUND_POOL_SIZE, type Module, openService } from '../../src/service.ts';
import { SourceJob, SOURCES_QUEUE } from '../../src/sources/queue.ts';
import type { RunLease } from '../../src/sources/lease-sessions.ts';
import type { SourceRuns } from '../../src/sources/runs.ts';
import { openGuardedAgent } from '../../src/platform/http/address-guard.ts';
import { openQueueWorkers, openWorkerHealth } from '../../src/worker-process.ts';
import { createFetcher, createHosts } from '../../src/sources/fetch.ts';
import { createReadSource } from '../../src/sources/read-source.ts';
import { createMakeVectors, createStoreIndexes } from '../../src/sources/make-vectors.ts';

/** How many documents are read at the same time, each in a process of its own. One assistant uses at most one. */
const READERS = 2;
const CONNECTIONS_OF_HOST = 4;
const HEADERS_MAX_BYTES = 32 * 1024;

/** Readers that assistants share: a document that takes long does not delay those of other assistants. */
const openReaders = (open: () => Reader) => {
  const idle = Array.from({ length: READERS }, open);
  const all = [...idle];
  const slots = createSlots(({ own, inUse }) => inUse < READERS && own < Math.max(1, READERS / 2));
  return {
    read: async (assistantId: string, ...given: Parameters<Reader['read']>): ReturnType<Reader['read']> => {
      const slot = await slots.acquire(assistantId);
      if (!slot) throw new Error('the readers are closed');
      const reader = idle.pop() as Reader; // a slot means that one is idle
      try {
        return await reader.read(...given);
      } finally {
        idle.push(reader);
        slot.release();
      }
    },
    close: async (): Promise<void> => {
      slots.close();
      await Promise.all(all.map((one) => one.close()));
    },
  };
};

type RunningOptions = { most: number; runs: SourceRuns; draining: AbortSignal; renewMs: number; logger: Logger };
type ReadSource = ReturnType<typeof createReadSource>;

/** A run that others wait for is interrupted after so many slices, whatever it does. It should yield by itself before. */
const SLICES_MAX = 3;

/** The sources that this worker reads now. An assistant gets as many places as stay free, and at least a quarter. */
const createRunning = (readSource: ReadSource, { most, runs, draining, renewMs, logger }: RunningOptions) => {
  const running = new Map<string, { assistantId: string; ended: Promise<void> }>();
  let isContested = false;

  const listReading = (): string[] => [...new Set([...running.values()].map(({ assistantId }) => assistantId))];
  const listFull = (): string[] => {
    const share = Math.max(most - running.size, most / 4);
    const byAssistant = Map.groupBy(running.values(), ({ assistantId }) => assistantId);
    return [...byAssistant].flatMap(([assistantId, own]) => (own.length >= share ? [assistantId] : []));
  };

  /** Renews the lease again and again. The signal aborts if the lease is lost, or if `isStuck`. */
  const keep = (lease: RunLease, isStuck: () => boolean): { signal: AbortSignal; stop: () => void } => {
    const lost = new AbortController();
    const timer = setInterval(() => {
      if (isStuck()) lost.abort(new Error('other sources wait for this place'));
      runs
        .renew(lease)
        .then((held) => held || lost.abort(new Error('the lease on a source was lost')))
        .catch(() => undefined); // each write checks the lease anyway
    }, renewMs);
    return { signal: AbortSignal.any([lost.signal, draining]), stop: () => clearInterval(timer) };
  };

  const run = async (sourceId: string, sliceMs: number): Promise<void> => {
    const token = newToken();
    if (await runs.remove(sourceId, token)) return logger.info({ sourceId }, 'a source was removed');
    const claimed = await runs.claim(sourceId, token);
    if (!claimed) return;
    const startedAt = performance.now();
    const hasHad = (slices: number): boolean => isContested && performance.now() - startedAt > slices * sliceMs;
    const { signal, stop } = keep(claimed.lease, () => hasHad(SLICES_MAX));
    const shouldYield = (): boolean => hasHad(1);
    await readSource(claimed, { signal, shouldYield, othersWait: () => isContested }).finally(stop);
  };

  return {
    all: running,
    listReading,
    listFull,
    hasRoom: (): boolean => running.size < most,

    /** Notes whether other sources wait for a place. */
    contest: (is: boolean): void => {
      isContested = is;
    },

    start: ({ sourceId, assistantId }: { sourceId: string; assistantId: string }, sliceMs: number): void => {
      if (draining.aborted || running.has(sourceId) || running.size >= most || listFull().includes(assistantId)) return;
      const ended = run(sourceId, sliceMs)
        .catch((cause: unknown) => logger.warn({ err: cause, sourceId }, 'a source was not read'))
        .finally(() => running.delete(sourceId));
      running.set(sourceId, { assistantId, ended });
    },
  };
};

/** Assembles and starts the sources worker. Tests may pass their own embedder, and `ca` (`ReadingOptions`). */
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

type ReadingOptions = {
  embedder: OpeningEmbedder;
  /** Certificate authorities that replace the public ones. */
  ca?: string;
};

/** The module that reads sources. Returns the sweeps that must not be stuck. */
export const readSources = async (module: Module, { embedder: beginning, ca }: ReadingOptions): Promise<Sweeper[]> => {
  const { service, metrics, config, logger, lifecycle } = module;
  const { timing } = config;
  const { draining } = lifecycle;
  const { redis, aside } = service;
  const { sourceRuns: runs, sources, passageVectors: vectors, assistants, passages } = aside;
  const allowPrivate = config.WEBHOOK_ALLOW_PRIVATE;
  const dispatcher = openGuardedAgent({
    allowPrivate,
    connections: CONNECTIONS_OF_HOST,
    maxHeaderBytes: HEADERS_MAX_BYTES,
    ...(ca && { ca }),
  });
  lifecycle.add('connections to websites', dispatcher, (agent) => agent.destroy());
  const readers = lifecycle.add('readers', openReaders(openReader), ({ close }) => close());
  const hosts = createHosts(redis, config.REDIS_PREFIX, timing);
  const readSource = createReadSource({
    runs,
    fetcher: createFetcher({ dispatcher, hosts, allowPrivate, timing }),
    read: readers.read,
    follow: sources.follow,
    timing,
    countPage: countPages(metrics),
    logger,
  });

  const most = config.SOURCES_CONCURRENCY;
  const running = createRunning(readSource, { most, runs, draining, renewMs: timing.sourceRenewMs, logger });
  lifecycle.add('sources', running.all, (all) => Promise.all([...all.values()].map(({ ended }) => ended)));
  const sweep = async (): Promise<void> => {
    // Assistants without a place go first, however many sources of the others are due.
    const found = [];
    for (const list of [running.listReading, running.listFull]) {
      const due = await runs.findDue({ limit: most + 1, except: list() });
      for (const one of due) running.start(one, timing.sourceSliceMs);
      found.push(...due);
    }
    running.contest(!running.hasRoom() && found.some(({ sourceId }) => !running.all.has(sourceId)));
  };

  const embedder = await beginning.opened;
  const listOthers = async (model: string): Promise<string[]> => {
    const live = await assistants.embedders.listRunning();
    return live.flatMap((one) => (one.available && one.model !== null && one.model !== model ? [one.model] : []));
  };
  const makeVectors = createMakeVectors({ vectors, runs, embedder, listOthers, timing, draining, logger });

  const languageOf = async (assistantId: string): Promise<string> =>
    (await assistants.findAssistant(assistantId))?.languages[0] ?? 'en';
  const storeIndexes = createStoreIndexes({ vectors, passages, embedder, languageOf, draining });

  const everyMs = timing.sweepEveryMs;
  const sweeps = [startSweeper('sources', sweep, { everyMs, logger })];
  const making = startSweeper('vectors of sources', makeVectors, { everyMs, logger });
  const storing = startSweeper('indexes of sources', storeIndexes, { everyMs, logger });
  lifecycle.add('sweeps of sources', [...sweeps, making, storing], (all) => Promise.all(all.map((one) => one.stop())));

  const process = async (data: unknown): Promise<void> => {
    SourceJob.parse(data);
    await sweep();
  };
  await openQueueWorkers({ queue: SOURCES_QUEUE, concurrency: 1, process }, module);
  return sweeps;
};
