import { memoryMbOf } from '../../test/kit/services.ts';
import { readMetrics } from '../support/metrics.ts';
import type { LoadedService } from './service.ts';

/** What is sampled of each process of ours. The handles include the sockets. */
const OF_PROCESSES = {
  'memory, MB': { series: null, factor: 1 },
  'heap, MB': { series: 'nodejs_heap_size_used_bytes', factor: 1 / 2 ** 20 },
  'open handles': { series: 'nodejs_active_handles_total', factor: 1 },
  'event loop late by (p99), ms': { series: 'nodejs_eventloop_lag_p99_seconds', factor: 1_000 },
};

export type Series = Map<string, number[]>;

const numberIn = (text: string, pattern: RegExp): number => Number(pattern.exec(text)?.[1] ?? 0);

/** Reads one sample of everything that could grow. */
const takeSample = async ({ api, replyWorker, deliveryWorker, service, mongodPid }: LoadedService) => {
  const sample: [string, number][] = [];
  for (const { name, pid, port } of [api, replyWorker, deliveryWorker]) {
    const metric = await readMetrics(port);
    for (const [what, { series, factor }] of Object.entries(OF_PROCESSES))
      sample.push([`${name}: ${what}`, series === null ? memoryMbOf(pid) : metric(series) * factor]);
  }
  const [memory, keyspace, status] = await Promise.all([
    service.redis.info('memory'),
    service.redis.info('keyspace'),
    service.mongo.db?.admin().command({ serverStatus: 1, repl: 0, metrics: 0 }),
  ]);
  const [keys, expiring] = [numberIn(keyspace, /keys=(\d+)/), numberIn(keyspace, /expires=(\d+)/)];
  sample.push(
    ['Redis: memory, MB', numberIn(memory, /used_memory:(\d+)/) / 2 ** 20],
    ['Redis: keys that expire', expiring],
    ['Redis: keys that stay', keys - expiring],
    ['MongoDB: connections', (status?.['connections'] as { current: number } | undefined)?.current ?? 0],
    ['MongoDB: memory, MB', memoryMbOf(mongodPid)],
  );
  return sample;
};

/** Samples until stopped. A sample that fails counts as an error. */
export const startSamples = (loaded: LoadedService, everyMs: number) => {
  const series: Series = new Map();
  let failed = 0;
  const sample = async (): Promise<void> => {
    try {
      for (const [name, value] of await takeSample(loaded)) series.set(name, [...(series.get(name) ?? []), value]);
    } catch {
      failed += 1;
    }
  };
  const timer = setInterval(() => void sample(), everyMs);
  return { series, failed: (): number => failed, stop: (): void => clearInterval(timer) };
};
