import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';

const ROOT = join(import.meta.dirname, '../..');
const IMPORT = /\bfrom '(\.[^']+)'/g;

/** Code that reaches outside the test's process: services, servers, other processes, a browser, the model. */
const OUTSIDE =
  /'node:(child_process|http|https|net|tls|http2|worker_threads)'|\binject\(|'undici'|'playwright-core'|\bfetch\(/;
const OPENS =
  /^(scripts\/services|scripts\/setup|src\/(api|service)\.ts|workers\/reply\/embedder\/|test\/eval\/vectors)/;

/** The file and everything inside `test/` that it imports, directly or indirectly. Maps each file to its text. */
const reach = (file: string, seen = new Map<string, string>()): Map<string, string> => {
  if (seen.has(file) || !existsSync(file)) return seen;
  const text = readFileSync(file, 'utf8');
  seen.set(file, text);
  for (const [, to = ''] of text.matchAll(IMPORT)) {
    const target = join(dirname(file), to);
    if (OPENS.test(relative(ROOT, target))) seen.set(target, "inject('a service')");
    else if (target.startsWith(join(ROOT, 'test/')) && target.endsWith('.ts')) reach(target, seen);
  }
  return seen;
};

const isPure = (file: string): boolean => [...reach(join(ROOT, file)).values()].every((text) => !OUTSIDE.test(text));

/** The tests that need nothing outside their own process. Their imports show this, so no list must be kept. */
export const unitTests = (): string[] => globSync('test/**/*.test.ts', { cwd: ROOT }).filter(isPure).toSorted();
