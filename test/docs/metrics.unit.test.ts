import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parser } from '@prometheus-io/lezer-promql';
import { expect, test } from 'vitest';
import { parse as parseYaml } from 'yaml';
import type { Metrics } from '../../src/platform/process/metrics.ts';
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

type Panel = { targets?: { expr: string }[] };

/** The expressions of the files for Prometheus and Grafana. */
const listExpressions = (): { file: string; expr: string }[] => {
  const rules = 'deploy/prometheus/rules.yaml';
  const dashboard = 'deploy/grafana/parley.json';
  const { groups } = parseYaml(read(rules)) as { groups: { rules: { expr: string }[] }[] };
  const { panels } = JSON.parse(read(dashboard)) as { panels: Panel[] };
  return [
    ...groups.flatMap((group) => group.rules.map(({ expr }) => ({ file: rules, expr }))),
    ...panels.flatMap(({ targets = [] }) =>
      targets.map(({ expr }) => ({ file: dashboard, expr: expr.replaceAll('$__rate_interval', '5m') })),
    ),
  ];
};

/** The texts of an expression by their place in its syntax. */
const partsOf = (expr: string): { place: string; text: string }[] => {
  const parts: { place: string; text: string }[] = [];
  parser.parse(expr).iterate({
    enter: ({ name, type, from, to, node }) => {
      const place = node.parent ? `${node.parent.name} ${name}` : name;
      parts.push({ place: type.isError ? 'error' : place, text: expr.slice(from, to) });
    },
  });
  return parts;
};

/** Labels and metrics that Prometheus and prom-client add. */
const OF_SCRAPES = ['job', 'instance'];
const OF_PROCESSES = /^(up|process_\w+|nodejs_\w+)$/;

test('the rules and the dashboard name metrics, labels and values that exist, and show every metric', () => {
  const known = new Map(listMetrics().map((metric) => [metric.name, metric]));
  const expressions = listExpressions();
  const problems: string[] = [];
  const used = new Set<string>();

  for (const { file, expr } of expressions) {
    const parts = partsOf(expr);
    const textsAt = (place: RegExp): string[] => parts.filter((part) => place.test(part.place)).map(({ text }) => text);
    const say = (what: string): unknown => problems.push(`${file}: ${what} in ${expr}`);
    const metrics = textsAt(/^VectorSelector Identifier$/);
    const own = metrics.map((name) => name.replace(/_(bucket|count|sum)$/, '')).filter((name) => known.has(name));
    const labels = Object.assign({}, ...own.map((name) => known.get(name)?.labels)) as Record<string, string>;
    if (textsAt(/^error$/).length > 0) say('a fault of syntax');
    if (metrics.length === 0) say('no metric');
    for (const name of metrics) {
      if (OF_PROCESSES.test(name)) continue;
      const isHistogram = known.get(name.replace(/_(bucket|count|sum)$/, ''))?.kind === 'histogram';
      // Only a histogram has the suffixes, and it has nothing without one.
      if (known.has(name) === isHistogram) say(name);
    }
    for (const label of textsAt(/LabelName$/))
      if (!(label in labels) && !(label === 'le' && /_bucket/.test(expr)) && !OF_SCRAPES.includes(label)) say(label);
    for (const matcher of textsAt(/Matcher$/)) {
      const [, label = '', values = ''] = /^(\w+)\W+"(.*)"$/.exec(matcher) ?? [];
      const named = values.split('|').filter((value) => /^[a-z_]+$/.test(value));
      if (!(label in labels)) continue;
      const meaning = labels[label] === 'the same' ? '' : labels[label];
      if (meaning) for (const value of named) if (!meaning.includes(`\`${value}\``)) say(value);
    }
    for (const name of own) used.add(name);
  }

  expect(problems).toEqual([]);
  expect([...known.keys()].filter((name) => !used.has(name))).toEqual([]);
  expect(expressions.length).toBeGreaterThan(30);
});

test('a label has a closed list of values: no id and no text from outside', () => {
  const labels = new Set(listMetrics().flatMap((metric) => Object.keys(metric.labels)));

  expect([...labels].toSorted()).toEqual(['instead', 'kind', 'limit', 'outcome', 'queue', 'result', 'state', 'status']);
});
