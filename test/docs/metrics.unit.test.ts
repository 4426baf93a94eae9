import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { Metrics } from '../../src/process/metrics.ts';
import * as serviceMetrics from '../../src/service-metrics.ts';
import { generatedPartOf, tableOf } from '../support/generated-page.ts';

const ROOT = join(import.meta.dirname, '../..');
const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8');

const PROCESSES = {
  'src/api.ts': ['API'],
  'workers/reply/worker.ts': ['reply worker'],
  'workers/delivery/worker.ts': ['delivery worker'],
  'workers/sources/worker.ts': ['sources worker'],
  'src/worker-process.ts': ['reply worker', 'delivery worker', 'sources worker'],
};

/** The processes that call the function with their metrics, by their sources. */
const processesOf = (name: string): string => {
  const found = Object.entries(PROCESSES).filter(([file]) => read(file).includes(`${name}(metrics`));
  const names = new Set(found.flatMap(([, processes]) => processes));
  return names.size === new Set(Object.values(PROCESSES).flat()).size ? 'every process' : [...names].join(', ');
};

type Metric = { name: string; kind: string; help: string; labels: Record<string, string>; processes: string };

/** Calls each function that makes metrics, and records what it makes. */
const listMetrics = (): Metric[] =>
  Object.entries(serviceMetrics).flatMap(([name, create]) => {
    const made: Metric[] = [];
    const record =
      (kind: string): Metrics['counter'] & Metrics['histogram'] & Metrics['sampled'] =>
      ({ name: metric, help, labels }: Pick<Metric, 'name' | 'help' | 'labels'>) => {
        made.push({ name: metric, kind, help, labels, processes: processesOf(name) });
        return () => undefined;
      };
    const metrics: Metrics = {
      contentType: 'text/plain; version=0.0.4; charset=utf-8',
      counter: record('counter'),
      histogram: record('histogram'),
      sampled: record('gauge'),
      answer: async () => null,
    };
    // Only `sampleQueues` takes queues, and it reads them at a scrape, which does not happen here.
    (create as (metrics: Metrics, queues: object) => unknown)(metrics, {});
    return made;
  });

test('docs/metrics.md shows every metric as the code describes it', () => {
  const rows = listMetrics().map(({ name, kind, help, labels, processes }) => [
    `\`${name}\``,
    kind,
    help,
    Object.entries(labels)
      .map(([label, values]) => `**${label}**: ${values}`)
      .join('. ') || '–',
    processes,
  ]);

  const generated = tableOf(['metric', 'type', 'meaning', 'labels', 'from'], rows);
  expect(generatedPartOf('docs/metrics.md', generated), 'run this test with UPDATE=1').toBe(generated);
});

test('every metric has a process that reports it, and pages name only metrics that exist', () => {
  const metrics = listMetrics();
  const known = new Set(metrics.map(({ name }) => name));
  const pages = [
    'docs/metrics.md',
    'docs/deliveries.md',
    'docs/operating.md',
    'packages/understanding/semantic-search.md',
  ];
  const named = pages.flatMap((page) => read(page).match(/\bparley_[a-z_]+[a-z]/g) ?? []);

  expect(metrics.filter(({ processes }) => processes === '')).toEqual([]);
  expect(named.map((name) => name.replace(/_(bucket|count|sum)$/, '')).filter((name) => !known.has(name))).toEqual([]);
});
