import type { Embedder } from '@parley/understanding';
import { openReader, type Reader, type ReadInput } from '@parley/reading';
import { openGuardedAgent } from '../platform/http/address-guard.ts';
import { keepLease } from '../platform/mongo/batches.ts';
import { serverNow } from '../platform/process/clock.ts';
import { newToken } from '../platform/process/ids.ts';
import type { Logger } from '../platform/process/logger.ts';
import { createLru } from '../platform/process/lru.ts';
import { createPacedSlots } from '../platform/process/paced-slots.ts';
import { oneEach } from '../platform/process/slots.ts';
import { type Sweeper, startSweeper } from '../platform/process/sweeper.ts';
import type { Module } from '../service.ts';
import { createFetcher, createHosts, createRooms } from './fetch.ts';
import { createMakeVectors, createStoreIndexes } from './make-vectors.ts';
import { type CountPage, createReadSource } from './read-source.ts';
import type { SourceRuns } from './runs.ts';
import { SourceJob } from './source.ts';

/** How many documents are read at the same time, each in a process of its own. One assistant uses at most one. */
const READERS = 2;
/** An assistant whose document takes longer is slow, or hangs. All that are slow share half of the readers. */
const READS = { slowMs: 500, hangsMs: 8_000 };
const CONNECTIONS_OF_HOST = 4;
const HEADERS_MAX_BYTES = 32 * 1024;

/** Readers that assistants share: documents that take long leave a reader to the other assistants. */
export const openReaders = (open: () => Reader, paces = READS) => {
  const idle = Array.from({ length: READERS }, open);
  const all = [...idle];
  const slots = createPacedSlots({ total: READERS, shareOf: oneEach, leastTimeFirst: true, ...paces });
  return {
    read: async (assistantId: string, input: ReadInput, signal?: AbortSignal): ReturnType<Reader['read']> => {
      const slot = await slots.acquire(assistantId, signal && { signal });
      if (!slot) throw new Error('the readers are closed');
      // A slot means that one is idle. The one that was idle longest is next, so that both keep their processes.
      const reader = idle.shift() as Reader;
      try {
        // The start takes longer than most documents, and is not the assistant's work.
        await reader.start();
        return await slots.watch(assistantId, reader.read(input, signal));
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
/** For how many assistants a worker remembers when they had a place. */
const SERVED_MAX = 10_000;

/** The sources that this worker reads now. An assistant gets as many places as stay free, and at least a quarter. */
const createRunning = (readSource: ReadSource, { most, runs, draining, renewMs, logger }: RunningOptions) => {
  const running = new Map<string, { assistantId: string; ended: Promise<void> }>();
  const servedAt = createLru<number>({ most: SERVED_MAX });
  let isContested = false;

  const turnOf = (assistantId: string) => ({
    places: [...running.values()].filter((one) => one.assistantId === assistantId).length,
    servedAt: servedAt.get(assistantId) ?? 0,
  });
  const listFull = (): string[] => {
    const share = Math.max(most - running.size, most / 4);
    const byAssistant = Map.groupBy(running.values(), ({ assistantId }) => assistantId);
    return [...byAssistant].flatMap(([assistantId, own]) => (own.length >= share ? [assistantId] : []));
  };

  const run = async (sourceId: string, sliceMs: number): Promise<void> => {
    const token = newToken();
    if (await runs.remove(sourceId, token)) return logger.info({ sourceId }, 'a source was removed');
    const claimed = await runs.claim(sourceId, token);
    if (!claimed) return;
    const startedAt = performance.now();
    const hasHad = (slices: number): boolean => isContested && performance.now() - startedAt > slices * sliceMs;
    const { signal, stop } = keepLease(() => runs.renew(claimed.lease), {
      everyMs: renewMs,
      until: draining,
      findProblem: () => (hasHad(SLICES_MAX) ? new Error('other sources wait for this place') : null),
    });
    const shouldYield = (): boolean => hasHad(1);
    await readSource(claimed, { signal, shouldYield, othersWait: () => isContested }).finally(stop);
  };

  return {
    all: running,
    turnOf,
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
        .finally(() => {
          running.delete(sourceId);
          servedAt.set(assistantId, serverNow());
        });
      running.set(sourceId, { assistantId, ended });
    },
  };
};

/** Tests pass certificate authorities that replace the public ones. */
export type ReadingOptions = { ca?: string };

type SourceReading = {
  /** Takes what is due. */
  process: (data: unknown) => Promise<void>;
  /** Those that must not be stuck. */
  sweeps: Sweeper[];
};

/** Reads the sources that are due, and makes the vectors of their passages. The lifecycle closes what this opens. */
export const openReading = (
  { service, config, logger, lifecycle }: Module,
  { embedder, countPage, ca }: ReadingOptions & { embedder: Embedder; countPage: CountPage },
): SourceReading => {
  const { sources, sourceRuns: runs, passageVectors: vectors, passages, assistants } = service.aside;
  const { timing } = config;
  const { draining } = lifecycle;
  const allowPrivate = config.WEBHOOK_ALLOW_PRIVATE;
  const dispatcher = openGuardedAgent({
    allowPrivate,
    connections: CONNECTIONS_OF_HOST,
    maxHeaderBytes: HEADERS_MAX_BYTES,
    ...(ca && { ca }),
  });
  lifecycle.add('connections to websites', dispatcher, (agent) => agent.destroy());
  const readers = lifecycle.add('readers', openReaders(openReader), ({ close }) => close());
  const hosts = createHosts(service.redis, config.REDIS_PREFIX, timing);
  const readSource = createReadSource({
    runs,
    fetcher: createFetcher({ dispatcher, hosts, allowPrivate, timing }),
    openRoom: createRooms(),
    read: readers.read,
    follow: sources.follow,
    timing,
    countPage,
    logger,
  });

  const most = config.SOURCES_CONCURRENCY;
  const running = createRunning(readSource, { most, runs, draining, renewMs: timing.sourceRenewMs, logger });
  lifecycle.add('sources', running.all, (all) => Promise.all([...all.values()].map(({ ended }) => ended)));
  const sweep = async (): Promise<void> => {
    const due = await runs.findDue({ limit: most + 1, except: running.listFull(), turnOf: running.turnOf });
    for (const one of due) running.start(one, timing.sourceSliceMs);
    const full = running.listFull();
    const othersWait = due.some((one) => !running.all.has(one.sourceId) && !full.includes(one.assistantId));
    running.contest(!running.hasRoom() && othersWait);
  };

  const listOthers = async (model: string): Promise<string[]> => {
    const live = await assistants.embedders.listRunning();
    return live.flatMap((one) => (one.available && one.model !== null && one.model !== model ? [one.model] : []));
  };
  const makeVectors = createMakeVectors({ vectors, runs, embedder, listOthers, timing, draining, logger });

  const languageOf = async (assistantId: string): Promise<string> =>
    (await assistants.findAssistant(assistantId))?.languages[0] ?? 'en';
  const storeIndexes = createStoreIndexes({ vectors, passages, embedder, languageOf, timing, draining });

  const everyMs = timing.sweepEveryMs;
  const sweeps = [startSweeper('sources', sweep, { everyMs, logger })];
  const making = startSweeper('vectors of sources', makeVectors, { everyMs, logger });
  const storing = startSweeper('indexes of sources', storeIndexes, { everyMs, logger });
  lifecycle.add('sweeps of sources', [...sweeps, making, storing], (all) => Promise.all(all.map((one) => one.stop())));

  return {
    process: async (data) => {
      SourceJob.parse(data);
      await sweep();
    },
    sweeps,
  };
};
