/**
 * `npm run bench` runs all parts one after the other, prints one table and writes `bench/results/latest.json`. `npm run
 * bench -- hot` runs only the part `hot`. Exits non-zero if a figure exceeds its limit in bench/limits.ts.
 */
import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';
import { isMet } from './limits.ts';
import { type Figure, type Options, type Part, type PartResult, readOptions } from './support/figures.ts';
import { script } from './parts/script.ts';
import { closeAll } from '../test/kit/services.ts';
import { tableOf } from './support/table.ts';

/**
 * The parts of the bench. A part is loaded only when it runs. A part that exceeds its time limit is stopped with an
 * error. A part with `byName` runs only if it is named.
 */
const PARTS: Record<string, { load: () => Promise<Part>; withinS: number; byName?: true }> = {
  start: { load: async () => (await import('./parts/start.ts')).start, withinS: 60 },
  turns: { load: async () => (await import('./parts/turns.ts')).turns, withinS: 400 },
  botbuilder: { load: async () => (await import('./parts/botbuilder.ts')).botbuilder, withinS: 300 },
  hot: { load: async () => (await import('./parts/hot.ts')).hot, withinS: 60 },
  deliveries: { load: async () => (await import('./parts/deliveries.ts')).deliveries, withinS: 200 },
  statements: { load: async () => (await import('./parts/statements.ts')).statements, withinS: 100, byName: true },
  pause: { load: async () => (await import('./parts/pause.ts')).pause, withinS: 60, byName: true },
  growth: { load: async () => (await import('./parts/growth.ts')).growth, withinS: 500, byName: true },
  listing: { load: async () => (await import('./parts/listing.ts')).listing, withinS: 200, byName: true },
  search: { load: async () => (await import('./parts/search.ts')).search, withinS: 300, byName: true },
  inbox: { load: async () => (await import('./parts/inbox.ts')).inbox, withinS: 200, byName: true },
  engine: {
    load: async () => script({ name: 'engine', file: 'engine.ts', nodeArgs: ['--expose-gc'], withinS: 60 }),
    withinS: 70,
  },
  mixed: { load: async () => (await import('./parts/mixed.ts')).mixed, withinS: 300, byName: true },
  imports: { load: async () => (await import('./parts/imports.ts')).imports, withinS: 600, byName: true },
  comparisons: {
    load: async () => (await import('./parts/comparisons.ts')).comparisons,
    withinS: 600,
    byName: true,
  },
  sources: { load: async () => (await import('./parts/sources.ts')).sources, withinS: 1_000, byName: true },
  profile: { load: async () => (await import('./parts/profile.ts')).profile, withinS: 120, byName: true },
  memory: { load: async () => (await import('./parts/memory.ts')).memory, withinS: 800, byName: true },
  ordinary: { load: async () => (await import('./parts/ordinary.ts')).ordinary, withinS: 900, byName: true },
  fair: { load: async () => (await import('./parts/fair.ts')).fair, withinS: 300, byName: true },
  neighbours: { load: async () => (await import('./parts/neighbours.ts')).neighbours, withinS: 1_800, byName: true },
};

/**
 * The folders of results. The repository keeps the results of the last whole run and of parts with `byName`. Other
 * results go to a local folder.
 */
const RESULTS = { whole: new URL('results/', import.meta.url), part: new URL('../.local/bench/', import.meta.url) };

const say = (line: string): void => console.error(`… ${line}`);

const within = async <Value>(seconds: number, part: string, work: Promise<Value>): Promise<Value> => {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${part} took longer than ${seconds} s`)), seconds * 1000);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
};

const commitOf = (): string => {
  try {
    return execFileSync('git', ['rev-parse', '--short', 'HEAD'], { encoding: 'utf8', stdio: 'pipe' }).trim();
  } catch {
    return 'not a git checkout';
  }
};

const machine = () => ({
  cpus: cpus().length,
  model: cpus()[0]?.model ?? 'unknown',
  memoryGb: Math.round(totalmem() / 1024 ** 3),
  node: process.versions.node,
});

let interrupted = false;

const measure = async (names: string[], options: Options): Promise<Record<string, PartResult>> => {
  const results: Record<string, PartResult> = {};
  for (const name of names) {
    const part = PARTS[name];
    if (!part) throw new Error(`there is no part "${name}"; there are: ${Object.keys(PARTS).join(', ')}`);
    const startedAt = performance.now();
    try {
      results[name] = await within(part.withinS, name, (await part.load())(options, say));
    } catch (cause) {
      if (interrupted) throw cause;
      // If one part fails, the figures of the other parts are kept.
      say(`${name} failed: ${cause instanceof Error ? cause.message : String(cause)}`);
      results[name] = { figures: [], detail: { failed: String(cause) } };
      process.exitCode = 1;
    } finally {
      await closeAll(); // what a part has opened
    }
    say(`${name} took ${((performance.now() - startedAt) / 1000).toFixed(0)} s`);
  }
  return results;
};

const main = async (asked: string[]): Promise<void> => {
  const options = readOptions(process.env);
  const whole = asked.length === 0;
  const names = whole ? Object.keys(PARTS).filter((name) => !PARTS[name]?.byName) : asked;
  const startedAt = new Date();
  const parts = await measure(names, options);
  const figures: Figure[] = Object.values(parts).flatMap((part) => part.figures);
  console.log(tableOf(figures));
  const seconds = Math.round((Date.now() - startedAt.getTime()) / 1000);
  console.log(`\n${seconds} s, ${options.rounds} rounds of ${options.seconds} s after ${options.warmUpSeconds} s`);
  const command = whole ? 'npm run bench' : `npm run bench -- ${names.join(' ')}`;
  const record = { at: startedAt, seconds, command, commit: commitOf(), machine: machine(), options, parts };
  const [only = '', ...others] = names;
  const kept = whole || (others.length === 0 && PARTS[only]?.byName === true && only !== 'profile');
  const folder = kept ? RESULTS.whole : RESULTS.part;
  mkdirSync(folder, { recursive: true });
  const file = new URL(whole ? 'latest.json' : `${names.join('-')}.json`, folder);
  writeFileSync(file, `${JSON.stringify(record, null, 2)}\n`);
  if (figures.some((figure) => isMet(figure) === false)) process.exitCode = 1;
};

for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => {
    interrupted = true;
    void closeAll().finally(() => process.exit(130));
  });
}
try {
  await main(process.argv.slice(2));
} catch (cause) {
  if (!interrupted) console.error(cause);
  process.exitCode = 1;
} finally {
  await closeAll();
}
process.exit(interrupted ? 130 : process.exitCode); // a part that failed may have left connections open
