import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';

const ROOT = join(import.meta.dirname, '../..');
const IMPORT = /^import (type )?[^;]*?from '(\.[^']+)'/gm;

/** Code that reaches outside the test's process: services, servers, other processes, a browser, the model. */
const OUTSIDE =
  /'node:(child_process|http|https|net|tls|http2|worker_threads)'|\binject\(|'undici'|'playwright-core'|\bfetch\(/;
const OPENS =
  /^(scripts\/services|scripts\/setup|src\/(api|service)\.ts|workers\/reply\/embedder|packages\/understanding\/(src\/embedder\/|eval\/vectors))/;

/** Code that changes or measures its own process, or that kills what it starts. Starting a program is not enough. */
const OWN_PROCESS =
  /'node:(worker_threads|perf_hooks|os|inspector\/promises)'|'playwright-core'|\bprocess\.(?!execPath|env)\w|\bprocess\.env\S* = |\bglobalThis\b|\bspawn\b|\bstart(Mongod|Redis|ReplicaSet|SentinelSet)\b/;
const LOADS =
  /^(scripts\/setup|scripts\/services\/|workers\/reply\/embedder|packages\/understanding\/(src\/embedder\/|eval\/vectors))/;

type Reached = { text: string; imports: { target: string; isType: boolean }[] };

/** The file and everything inside `test/` that it imports, directly or indirectly. */
const reach = (file: string, seen = new Map<string, Reached>()): Reached[] => {
  if (seen.has(file) || !existsSync(file)) return [...seen.values()];
  const text = readFileSync(file, 'utf8');
  const imports = [...text.matchAll(IMPORT)].map(([, type, to = '']) => ({
    target: relative(ROOT, join(dirname(file), to)),
    isType: type !== undefined,
  }));
  seen.set(file, { text, imports });
  for (const { target } of imports) if (/^test\/.*\.ts$/.test(target)) reach(join(ROOT, target), seen);
  return [...seen.values()];
};

const isPure = ({ text, imports }: Reached): boolean =>
  !OUTSIDE.test(text) && !imports.some(({ target }) => OPENS.test(target));

const needsNoOwnProcess = ({ text, imports }: Reached): boolean =>
  !OWN_PROCESS.test(text) && !imports.some(({ target, isType }) => !isType && LOADS.test(target));

/**
 * The tests that need nothing outside their own process, and those that can run in one process after others. Their
 * imports and words show this, so no list must be kept.
 */
export const testKinds = (): { unit: string[]; shared: string[] } => {
  const files = globSync(['test/**/*.test.ts', 'packages/*/test/*.test.ts'], { cwd: ROOT })
    .toSorted()
    .map((file) => ({ file, reached: reach(join(ROOT, file)) }));
  const unit = files.filter(({ reached }) => reached.every(isPure));
  const shared = files.filter((one) => !unit.includes(one) && one.reached.every(needsNoOwnProcess));
  const namesOf = (some: typeof files): string[] => some.map(({ file }) => file);
  return { unit: namesOf(unit), shared: namesOf(shared) };
};
