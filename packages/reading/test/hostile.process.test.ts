import { setImmediate } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { openReader, type ReadFailure, type ReadPage } from '@parley/reading';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sized } from '../../../test/support/size.ts';
import { aFile } from './files.ts';
import { HOSTILE } from './hostile-files.ts';

/** Of processor time. Other tests may leave this one little of it. */
const TIMEOUT_MS = 700;
const BY_THE_CLOCK_MS = 10 * TIMEOUT_MS + 10_000;
const GROWTH_BYTES = 40_000_000;

const reader = openReader({ memoryMb: 400, timeoutMs: TIMEOUT_MS });
afterAll(() => reader.close());

const GOOD = aFile('# Hours\n\nThe library is open from nine to five.', { name: 'hours.md' });
const readGood = () => reader.read(GOOD);

const endOf = (read: ReadPage | ReadFailure): string => ('failed' in read ? read.failed : 'read');

/** What is wrong with a result, whatever was read. */
const faultsOf = (read: ReadPage | ReadFailure): string[] => {
  if ('failed' in read) return /^[A-Z].{15,200}[^.]$/.test(read.message) ? [] : [`message: ${read.message}`];
  const { passages, links, proposals } = read;
  const bad = passages.filter(({ text, path }) => text.length > 900 || !text.isWellFormed() || path.length === 0);
  return [
    ...bad.map(({ text }) => `passage: ${text}`),
    ...(links.length > 5000 ? ['links'] : []),
    ...(proposals.length > 100 ? ['proposals'] : []),
    ...(JSON.stringify(read).includes('root:') ? ['a file of the machine'] : []),
  ];
};

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void; // exists with the flag
const memory = async (): Promise<number> => {
  for (let round = 0; round < 3; round += 1) {
    collect();
    await setImmediate();
  }
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
};

let before = 0;
beforeAll(async () => {
  await readGood();
  before = await memory();
});

test('there are at least 40 hostile files, each of its own kind', () => {
  expect(new Set(HOSTILE.map(({ name }) => name)).size).toBeGreaterThanOrEqual(40);
});

const READ = sized({ everyday: HOSTILE.filter(({ isLarge }) => isLarge !== true), long: HOSTILE });

test.each(READ)('$name ends with a clear state, and the next file is read', async ({ make, ends }) => {
  const input = make();
  const good = await readGood();
  const from = performance.now();

  const read = await reader.read(input);

  expect(performance.now() - from).toBeLessThan(BY_THE_CLOCK_MS);
  expect(ends).toContain(endOf(read));
  expect(faultsOf(read)).toEqual([]);
  expect(await readGood()).toEqual(good);
});

test('the memory of the parent has stayed flat', async () => {
  await readGood();
  expect((await memory()) - before).toBeLessThan(GROWTH_BYTES);
});
