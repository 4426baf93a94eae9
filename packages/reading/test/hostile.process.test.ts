import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { openReader, type ReadFailure, type ReadPage } from '@parley/reading';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { aFile } from './files.ts';
import { HOSTILE } from './hostile-files.ts';

const TIMEOUT_MS = 2000;
/** A process that was ended is started again for the next file. */
const START_MS = 10_000;
const GROWTH_BYTES = 40_000_000;

const reader = openReader({ memoryMb: 320, timeoutMs: TIMEOUT_MS });
afterAll(() => reader.close());

const GOOD = aFile('# Hours\n\nThe library is open from nine to five.', { name: 'hours.md' });
const readGood = () => reader.read(GOOD);

const endOf = (read: ReadPage | ReadFailure): string => ('failed' in read ? read.failed : 'read');

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void; // exists with the flag
const memory = (): number => {
  collect();
  const { heapUsed, external, arrayBuffers } = process.memoryUsage();
  return heapUsed + external + arrayBuffers;
};

let before = 0;
beforeAll(async () => {
  await readGood();
  before = memory();
});

test('there are at least 40 hostile files, each of its own kind', () => {
  expect(new Set(HOSTILE.map(({ name }) => name)).size).toBeGreaterThanOrEqual(40);
});

test.each(HOSTILE)('$name ends with a clear state, and the next file is read', async ({ make, ends }) => {
  const input = make();
  const good = await readGood();
  const from = performance.now();

  const read = await reader.read(input);

  expect(performance.now() - from).toBeLessThan(TIMEOUT_MS + START_MS);
  expect(ends).toContain(endOf(read));
  if ('failed' in read) expect(read.message).toMatch(/^[A-Z].{20,200}\.$/);
  else {
    expect(read.passages.every(({ text, path }) => text.length <= 900 && text.isWellFormed() && path.length > 0)).toBe(
      true,
    );
    expect(read.links.length).toBeLessThanOrEqual(5000);
    expect(read.proposals.length).toBeLessThanOrEqual(100);
    expect(JSON.stringify(read)).not.toContain('root:');
  }
  expect(await readGood()).toEqual(good);
});

test('the memory of the parent has stayed flat', async () => {
  await readGood();
  expect(memory() - before).toBeLessThan(GROWTH_BYTES);
});
