import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { workedMs } from '../../../test/support/loop.ts';
import { atPace } from '../../../test/support/pace.ts';
import { PassageIndex, PassageIndexUpdate, quantised } from '../src/understanding.ts';

const DIMENSIONS = 384;

/** A vector that is near those of the same group. */
const aVector = (group: number, own: number): Float32Array =>
  Float32Array.from({ length: DIMENSIONS }, (_, at) => {
    const shared = Math.sin((group + 1) * 12.9898 + at * 78.233) * 43_758.5453;
    const single = Math.sin((own + 1) * 39.346 + at * 11.135) * 24_634.6345;
    return shared - Math.floor(shared) - 0.5 + 0.4 * (single - Math.floor(single) - 0.5);
  });
const unit = (vector: Float32Array): Float32Array => {
  const length = Math.hypot(...vector);
  return vector.map((value) => value / length);
};

/** A word of letters for a number, so that no stemmer changes it. */
const wordOf = (number: number): string =>
  `z${String(number).replaceAll(/\d/g, (digit) => String.fromCharCode(107 + Number(digit)))}z`;

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

const used = (): number => {
  collectGarbage();
  collectGarbage();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
};

test('50,000 passages take at most 150 MB, are read in short steps, and are searched almost as fast as 500', async () => {
  // Each text has 90 words: some that all have, and some of 60,000 that few have.
  const textOf = (nth: number): string =>
    Array.from({ length: 90 }, (_, at) =>
      at % 3 === 0 ? wordOf((nth * 7 + at * at) % 50) : wordOf((nth * 131 + at * 7_919) % 40_000),
    ).join(' ');
  const build = (count: number) => {
    const update = new PassageIndexUpdate(null, { model: 'a-model' });
    for (let nth = 0; nth < count; nth += 1) {
      const vector = quantised(aVector(nth % 5_000, nth));
      const heading = { title: 'Handbook', path: ['Handbook', 'General'], language: 'en' };
      update.add({ passageId: `passage-${nth}-of-a-source`, ...heading, text: textOf(nth), vector });
    }
    const steps: number[] = [];
    const finish = update.finish();
    for (;;) {
      const since = workedMs();
      const step = finish.next();
      steps.push(workedMs() - since);
      if (step.done) return { index: step.value, steps: steps.toSorted((one, other) => other - one).slice(0, 40) };
    }
  };
  const timesOf = async (index: PassageIndex): Promise<number> => {
    const times: number[] = [];
    for (let nth = 0; nth < 40; nth += 1) {
      const question = `${wordOf(nth)} ${wordOf(nth * 900)} ${wordOf(nth * 17)} ${wordOf(nth * 37)}`;
      const vector = unit(aVector(nth * 7, 99_999));
      const since = workedMs();
      await index.search(question, 'en', vector);
      times.push(workedMs() - since);
    }
    return times.toSorted((one, other) => one - other)[37] as number;
  };

  const before = used();
  const large = build(50_000);
  const bytes = used() - before;
  const small = build(500);
  await timesOf(small.index);
  const [few, many] = [await timesOf(small.index), await timesOf(large.index)];
  const { hits } = await large.index.search('nothing', 'en', unit(aVector(4_321, 4_321)));

  expect(bytes).toBeLessThan(150_000_000);
  expect(large.index.bytes).toBeGreaterThan(0.7 * bytes);
  expect(large.index.bytes).toBeLessThan(1.5 * bytes);
  // Of 400,000 steps some few meet the collection of garbage.
  expect(large.steps[20]).toBeLessThan(atPace(5));
  expect(many - few).toBeLessThan(atPace(15));
  expect(hits.map(({ passageId }) => passageId)).toContain('passage-4321-of-a-source');
});
