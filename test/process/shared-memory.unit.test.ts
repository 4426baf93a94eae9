import { expect, test } from 'vitest';
import { cachedSettings, createSharedMemory } from '../../src/platform/process/lru.ts';

/** Caches of what can be spared and of what is needed, within 1 MB, with a clock of their own. */
const aMemory = () => {
  const clock = { time: 0 };
  const pushedOut: string[] = [];
  const memory = createSharedMemory({ maxBytes: 1_000_000, now: () => clock.time });
  const open = (name: string, worth: number, isNeeded: boolean) => {
    const onPushedOut = (holder: string) => pushedOut.push(`${name} of ${holder}`);
    const cache = memory.openCache<string>({ worth, isNeeded, onPushedOut });
    return { ...cache, hold: (holder: string, kB: number) => cache.set(holder, name, { bytes: 1_000 * kB }) };
  };
  return { clock, memory, pushedOut, extras: open('extras', 1, false), needs: open('needs', 2, true) };
};

test('the longest unused leaves first, whichever cache it is in, and nobody is told', () => {
  const { clock, pushedOut, extras, needs } = aMemory();
  needs.hold('a', 300);
  extras.hold('b', 300);
  needs.hold('c', 300);
  clock.time += 1_000;
  needs.get('a');
  clock.time += 60_000;

  needs.hold('d', 300);

  expect([needs.has('a'), extras.has('b'), needs.has('c'), needs.has('d')]).toEqual([true, false, true, true]);
  expect(pushedOut).toEqual([]);
});

test('in use, the largest assistant gives what it can spare, and small ones give nothing', () => {
  const { pushedOut, memory, extras, needs } = aMemory();
  for (const small of ['a', 'b', 'c', 'd']) {
    needs.hold(small, 20);
    extras.hold(small, 20);
  }
  needs.hold('large', 300);
  extras.hold('large', 300);

  needs.hold('larger', 400);

  expect(pushedOut).toEqual(['extras of large']);
  extras.hold('larger', 400);
  expect(pushedOut).toEqual(['extras of large', 'extras of larger']);
  expect(memory.bytes()).toBeLessThan(1_000_000);
});

test('nothing that is needed leaves while an assistant with more than its share has something to spare', () => {
  const { pushedOut, extras, needs } = aMemory();
  needs.hold('most', 450);
  needs.hold('other', 200);
  extras.hold('other', 240);

  needs.hold('third', 150);
  needs.hold('third', 400);

  expect(pushedOut).toEqual(['extras of other', 'needs of most']);
});

test('a few large ones that need more than there is take nothing from those that hold far less', () => {
  const { pushedOut, extras, needs } = aMemory();
  const medium = ['a', 'b', 'c'];
  for (const one of medium) extras.hold(one, 60);
  for (let nth = 4; nth < 40; nth += 1) needs.hold(`small ${nth}`, 1);

  for (let round = 0; round < 3; round += 1) for (const large of ['x', 'y', 'z']) needs.hold(large, 300);

  expect(medium.map((one) => extras.has(one))).toEqual([true, true, true]);
  expect(new Set(pushedOut)).toEqual(new Set(['needs of x', 'needs of y', 'needs of z']));
});

test('who asks for settings while these change gets what was found, and whoever asks next what is stored then', async () => {
  const first = Promise.withResolvers<string>();
  const answers = [first.promise, Promise.resolve('new')];
  const find = cachedSettings(async () => answers.shift() ?? null);
  const asked = find('a');

  find.forget('a');
  const next = find('a');
  first.resolve('old');

  expect(await Promise.all([asked, next])).toEqual(['old', 'new']);
  expect([await find('a'), answers]).toEqual(['new', []]);
});
