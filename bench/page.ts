/**
 * `npm run bench -- page` updates docs/performance.md, docs/scaling.md and bench/RESULTS.md. Between their markers it writes the tables
 * of the last whole run and of the parts that run separately. It also writes the chart of the page.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { isMet } from './limits.ts';
import type { Figure, Options, PartResult } from './support/figures.ts';
import { type Bar, pictureOf } from './support/picture.ts';
import { numberText, rowOf, valueText } from './support/table.ts';

type Cost = { cpu: Record<string, number>; counts: Record<string, number>; after: Record<string, number> };
type Run = {
  at: string;
  seconds: number;
  command: string;
  commit: string;
  machine: { cpus: number; model: string; memoryGb: number; node: string };
  options: Options;
  parts: Record<string, PartResult>;
};

const RESULTS = new URL('results/', import.meta.url);
const PAGE = new URL('../docs/performance.md', import.meta.url);
const SCALING = new URL('../docs/scaling.md', import.meta.url);
const DETAILS = new URL('RESULTS.md', import.meta.url);
const PICTURE = new URL('../docs/turn-time.svg', import.meta.url);
const LEVELS = [1, 50, 200];
/** Goals that no run on this machine has reached. The page lists them apart from the limits. */
const TARGETS = new Set([
  'turns.50.whole-ratio',
  'turns.200.whole-ratio',
  'turns.50.endpoint-ratio',
  'turns.200.endpoint-ratio',
  'turns.1.whole-p50',
  'turns.half.p99',
  'botbuilder.ratio',
  'deliveries.drain-200',
  'deliveries.drain-200-ratio',
  'deliveries.500.p50',
  'deliveries.500.p99',
  'neighbours.ratio',
  'ordinary.sure.50.ratio',
]);
const CONTENDERS = {
  bare: 'bare',
  durable: 'bare durable',
  whole: 'whole',
  endpoint: 'whole, with an endpoint',
};

const readRun = (name: string): Run => JSON.parse(readFileSync(new URL(name, RESULTS), 'utf8')) as Run;
const run = readRun('latest.json');
const runs = readdirSync(RESULTS).map(readRun);
for (const { parts } of runs) run.parts = { ...parts, ...run.parts };
const figures = Object.values(run.parts).flatMap((part) => part.figures);
const costs = (run.parts['turns']?.detail['costs'] ?? {}) as Record<string, Cost>;

const markdown = (head: string[], rows: string[][]): string =>
  [head, head.map((_, column) => (column === 0 ? '---' : '--:')), ...rows]
    .map((row) => `| ${row.join(' | ')} |`)
    .join('\n');

const figure = (id: string): Figure => {
  const found = figures.find((one) => one.id === id);
  if (!found) throw new Error(`the last run has no figure "${id}"`);
  return found;
};

const judged = (kind: 'target' | 'limit'): string =>
  markdown(
    ['figure', 'median (min–max)', kind, ''],
    figures
      .filter((one) => isMet(one) !== null && TARGETS.has(one.id) === (kind === 'target'))
      .map((one) => rowOf(one).map((cell) => (cell === 'MISSED' ? '**missed**' : cell))),
  );

const turns = (): string => {
  const cell = (id: string): string => valueText({ ...figure(id), unit: '' }).trim();
  const short = (id: string): string => numberText(figure(id).value);
  const rows = LEVELS.flatMap((level) =>
    Object.entries(CONTENDERS).map(([name, label]) => {
      const id = `turns.${level}.${name}`;
      const ratio = name === 'bare' || name === 'durable' ? '' : cell(`${id}-ratio`);
      const durable = name === 'whole' ? cell(`${id}-durable-ratio`) : '';
      return [label, String(level), cell(id), ratio, durable, `${short(`${id}-p50`)} / ${short(`${id}-p99`)}`];
    }),
  );
  return markdown(['', 'in flight', 'turns/s', '× bare', '× bare durable', 'p50 / p99 ms'], rows);
};

const PROCESSES = ['API', 'reply worker', 'delivery worker', 'mongod', 'redis'];

const costTable = (): string => {
  const counts = Object.keys(costs['whole 50']?.counts ?? {});
  const rows = LEVELS.flatMap((level) =>
    Object.entries(CONTENDERS).map(([name, label]) => {
      const cost = costs[`${name} ${level}`];
      const cpu = PROCESSES.map((one) => numberOrDash(cost?.cpu[one], 0));
      return [label, String(level), ...cpu, ...counts.map((one) => numberOrDash(cost?.counts[one], 2))];
    }),
  );
  return markdown(['', 'in flight', ...PROCESSES.map((one) => `${one} µs`), ...counts], rows);
};

const numberOrDash = (value: number | undefined, digits: number): string =>
  value === undefined ? '–' : value.toFixed(digits);

const partTable = (name: string): string =>
  markdown(
    ['figure', 'median (min–max)'],
    (run.parts[name]?.figures ?? []).map((one) => [one.what, valueText(one)]),
  );

type ShapeCost = { ours: Record<string, number>; stores: Record<string, number>; mongodb: number; redis: number };
type ShapeDetail = { rest: ShapeCost; memory: Record<string, number>; runs: Record<string, ShapeCost> };

/** Four processes beside the one that does everything. */
const ordinaryTable = (): string => {
  const { four, one } = (run.parts['ordinary']?.detail ?? {}) as { four?: ShapeDetail; one?: ShapeDetail };
  if (!four || !one) return '';
  const total = (parts: Record<string, number>): number => Object.values(parts).reduce((sum, value) => sum + value, 0);
  const both = (read: (shape: ShapeDetail) => number): string =>
    [four, one].map((shape) => numberText(read(shape))).join(' / ');
  const row = (
    label: string,
    costOf: (shape: ShapeDetail) => ShapeCost | undefined,
    id: string,
    isLoad = true,
  ): string[] => [
    label,
    both((shape) => total(costOf(shape)?.ours ?? {})),
    valueText({ ...figure(`${id}.ratio`), unit: '' }).trim(),
    both((shape) => total(costOf(shape)?.stores ?? {})),
    both((shape) => costOf(shape)?.mongodb ?? Number.NaN),
    both((shape) => costOf(shape)?.redis ?? Number.NaN),
    isLoad ? ['four', 'one'].map((shape) => numberText(figure(`${id}.p99.${shape}`).value)).join(' / ') : '',
  ];
  const rows = Object.keys(four.runs).map((name) =>
    row(`${name}/s`, ({ runs }) => runs[name], `ordinary.${name.replace(' ', '.')}`),
  );
  const memory = Object.entries({ ...four.memory, ...one.memory }).map(([name, mb]) => `${name} ${numberText(mb)}`);
  const head = ['', 'CPU ms', 'one ÷ four', 'stores’ CPU ms', 'MongoDB commands', 'Redis commands', 'p99 ms'];
  return [
    markdown(head, [row('at rest, a second', ({ rest }) => rest, 'ordinary.rest', false), ...rows]),
    `Memory in MB, four / one: ${both((shape) => total(shape.memory))} (${memory.join(', ')}).`,
  ].join('\n\n');
};

const bars = (): Bar[] =>
  [50, 200].flatMap((level) =>
    Object.entries(CONTENDERS).map(([name, label]) => ({
      label: `${label}, ${level} in flight`,
      parts: PROCESSES.map((one): [string, number] => [one, costs[`${name} ${level}`]?.cpu[one] ?? 0]),
    })),
  );

/** Example prices. Replace them with your own. */
const CORE_HOUR = 0.04;
const GB_MONTH = 0.1;

/** What a million turns cost. The rates with a second machine are computed: it has the stores, the first one the rest. */
const million = (): string => {
  const turnBytes = figure('growth.turn-bytes').value;
  const deliveryBytes = figure('growth.delivery-bytes').value;
  const rows = (['whole', 'endpoint'] as const).map((name) => {
    const { cpu = {}, counts = {} } = costs[`${name} 200`] ?? {};
    const sum = (of: string[]): number => of.reduce((all, one) => all + (cpu[one] ?? 0), 0);
    const [ours, stores] = [sum(['API', 'reply worker', 'delivery worker']), sum(['mongod', 'redis'])];
    const one = figure(`turns.200.${name}`).value;
    const two = (one * (ours + stores)) / Math.max(ours, stores);
    const rate = (value: number): string => Math.round(value).toLocaleString('en-US');
    // The same number expresses µs per turn and seconds per million turns, so no conversion is needed.
    const hours = (ours + stores) / 3600;
    const gigabytes = (turnBytes + (name === 'endpoint' ? deliveryBytes : 0)) / 1000;
    return [
      CONTENDERS[name],
      `${rate(one)}/s`,
      `about ${rate(two)}/s`,
      `${(ours + stores).toFixed(0)} s = ${hours.toFixed(2)} h`,
      `$ ${(hours * CORE_HOUR).toFixed(3)}`,
      `${gigabytes.toFixed(2)} GB`,
      `$ ${(gigabytes * GB_MONTH).toFixed(3)}`,
      `${((counts['MongoDB kB'] ?? 0) + (counts['Redis kB'] ?? 0)).toFixed(1)} GB`,
    ];
  });
  const head = [
    'turns',
    'one machine of this size',
    'the stores on a second one',
    'CPU of one core, for a million',
    `at $ ${CORE_HOUR} an hour`,
    'on disk',
    `at $ ${GB_MONTH} a GB and month`,
    'between the processes',
  ];
  return markdown(head, rows);
};

/** How busy a process or a store may be on average. The rest is for peaks, and for what another one leaves behind. */
const BUSY = 0.6;
const SHARD_CORES = 8;
const RATES = [1_000, 10_000, 100_000];

/** What some rates of turns need, each with one event to one endpoint. All but the first column is computed. */
const scale = (): string => {
  const { cpu = {}, counts = {} } = costs['endpoint 200'] ?? {};
  const alone = costs['whole 200']?.cpu ?? {};
  const ofModel = ((run.parts['mixed']?.detail['costs'] ?? {}) as Record<string, Record<string, number>>)['1'] ?? {};
  const micros = (name: string): number => cpu[name] ?? Number.NaN;
  const shown = (value: number, digits = 0): string =>
    value.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const row = (what: string, cost: string, of: (rate: number) => string): string[] => [what, cost, ...RATES.map(of)];
  const busyCores = (µs: number, rate: number): number => (µs * rate) / 1e6;
  const processes = (µs: number) => (rate: number) => shown(Math.ceil(busyCores(µs, rate) / BUSY));
  const model = 1000 * (ofModel['model'] ?? Number.NaN);
  const perEvent = (name: string): number => micros(name) - (alone[name] ?? 0);
  const masters = (rate: number): number => Math.ceil(busyCores(micros('redis'), rate) / BUSY);
  const kilobytes = counts['MongoDB kB'] ?? Number.NaN;
  const stored = figure('growth.turn-bytes').value + figure('growth.delivery-bytes').value;
  return markdown(
    ['', 'a turn', ...RATES.map((rate) => `${shown(rate)}/s`)],
    [
      row('API processes', `${shown(micros('API'))} µs`, processes(micros('API'))),
      row('reply workers', `${shown(micros('reply worker'))} µs`, processes(micros('reply worker'))),
      row('the model, if half of the questions need it', `${shown(model)} µs`, processes(model)),
      row('delivery workers', `${shown(micros('delivery worker'))} µs`, processes(micros('delivery worker'))),
      row('busy cores of MongoDB’s primaries', `${shown(micros('mongod'))} µs`, (rate) =>
        shown(busyCores(micros('mongod'), rate), 1),
      ),
      row(`shards, each with a primary of ${SHARD_CORES} cores`, '', (rate) =>
        shown(Math.ceil(busyCores(micros('mongod'), rate) / BUSY / SHARD_CORES)),
      ),
      row('Redis masters', `${shown(micros('redis'))} µs`, (rate) => shown(masters(rate))),
      row('`PARTITIONS`', '', (rate) => shown(masters(rate) === 1 ? 1 : 3 * masters(rate))),
      row(
        'between MongoDB and the processes',
        `${shown(kilobytes, 1)} kB`,
        (rate) => `${shown((kilobytes * rate) / 1000)} MB/s`,
      ),
      row('stored in a day', `${shown(stored)} B`, (rate) => `${shown((stored * rate * 86_400) / 1e9)} GB`),
      row(
        'busy cores for each further event of a turn: delivery workers, MongoDB',
        `${shown(perEvent('delivery worker'))}, ${shown(perEvent('mongod'))} µs`,
        (rate) => ['delivery worker', 'mongod'].map((name) => shown(busyCores(perEvent(name), rate), 1)).join(', '),
      ),
    ],
  );
};

const runTable = (): string =>
  markdown(
    ['command', 'day', 'commit', 'machine'],
    runs.map(({ command, at, commit, machine }) => [
      `\`${command}\``,
      at.slice(0, 10),
      commit,
      `${machine.cpus} cores (${machine.model}), ${machine.memoryGb} GB`,
    ]),
  );

const { machine, options } = run;
const PAGES: [URL, Record<string, string>][] = [
  [
    PAGE,
    {
      run: `\`${run.command}\` on ${run.at.slice(0, 10)}, commit ${run.commit}: ${machine.cpus} cores (${machine.model}), ${machine.memoryGb} GB, Node ${machine.node}; ${options.rounds} rounds of ${options.seconds} s after ${options.warmUpSeconds} s; ${run.seconds} s in all.`,
      targets: judged('target'),
      million: million(),
    },
  ],
  [SCALING, { scale: scale() }],
  [
    DETAILS,
    {
      runs: runTable(),
      limits: judged('limit'),
      turns: turns(),
      cost: costTable(),
      statements: partTable('statements'),
      pause: partTable('pause'),
      botbuilder: partTable('botbuilder'),
      deliveries: partTable('deliveries'),
      growth: partTable('growth'),
      listing: partTable('listing'),
      inbox: partTable('inbox'),
      ordinary: ordinaryTable(),
      others: [partTable('hot'), partTable('start')].join('\n\n'),
    },
  ],
];

for (const [url, sections] of PAGES) {
  const page = Object.entries(sections).reduce(
    (text, [name, content]) => {
      const [begin, end] = [`<!-- ${name} -->`, `<!-- /${name} -->`];
      const [from, to] = [text.indexOf(begin), text.indexOf(end)];
      if (from === -1 || to === -1) throw new Error(`${url.pathname} has no markers for "${name}"`);
      return `${text.slice(0, from + begin.length)}\n${content}\n${text.slice(to)}`;
    },
    readFileSync(url, 'utf8'),
  );
  writeFileSync(url, page);
}
writeFileSync(PICTURE, pictureOf('CPU of one turn, µs', bars()));
