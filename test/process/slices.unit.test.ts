import { connect } from 'node:net';
import { setImmediate as nextTick } from 'node:timers/promises';
import { PassageIndex, rankByTokens, shareLoop } from '@parley/understanding';
import { expect, onTestFinished, test } from 'vitest';
import { createWebServer, listen } from '../../src/platform/http/web-server.ts';
import { createBatcher } from '../../src/platform/process/batch.ts';
import { createSlices, inSlices, restIfBusy, workFor } from '../../src/platform/process/slices.ts';
import { workedMs } from '../support/loop.ts';

const SLICE_MS = 4;

const workFully = (ms: number): void => {
  const until = performance.now() + ms;
  while (performance.now() < until);
};

/** A computation of so many slices. Notes its holder whenever it has one. */
const compute = (holder: string, slices: number, had: string[], ms = 0): Promise<void> =>
  workFor(holder, async () => {
    const own = createSlices(0);
    for (let nth = 0; nth < slices; nth += 1) {
      await own.next();
      workFully(ms);
      had.push(holder);
    }
  });

/** How many slices were worked on in each tick until all were. */
const countByTick = async (had: string[], all: number): Promise<number[]> => {
  const seen: number[] = [];
  while (had.length < all) {
    const before = had.length;
    await nextTick();
    seen.push(had.length - before);
  }
  return seen;
};

test('holders take turns, so that one with sixty computations delays another one’s only by half', async () => {
  const had: string[] = [];

  const greedy = Array.from({ length: 60 }, () => compute('greedy', 5, had));
  await compute('other', 5, had);
  const before = had.filter((holder) => holder === 'greedy').length;
  await Promise.all(greedy);

  expect(before).toBeLessThanOrEqual(6);
  expect(had).toHaveLength(305);
});

test('the loop serves other work between any two full slices', async () => {
  const had: string[] = [];
  const computing = Promise.all(Array.from({ length: 5 }, (_, nth) => compute(`holder ${nth}`, 5, had, SLICE_MS)));

  const seen = await countByTick(had, 25);
  await computing;

  expect(Math.max(...seen)).toBe(1);
});

test('a batch is no work of the caller that came first: it has every second slice', async () => {
  const had: string[] = [];
  const read = createBatcher<string, string>(async (ids) => {
    const own = createSlices(0);
    for (let nth = 0; nth < 5; nth += 1) await own.next();
    return ids;
  });
  const others = Array.from({ length: 16 }, (_, nth) => compute(`holder ${nth}`, 5, had, SLICE_MS));
  const greedy = Array.from({ length: 10 }, () => compute('greedy', 2, had, SLICE_MS));

  await Promise.all([workFor('greedy', () => read('of greedy')), workFor('other', () => read('of other'))]);
  const before = had.length;
  await Promise.all([...others, ...greedy]);

  expect(before).toBeLessThan(20);
});

test('of new connections many are accepted between two slices, but slices go on', async () => {
  const had: string[] = [];
  const server = createWebServer({}, (_req, res) => res.end(), new AbortController().signal);
  const port = await listen(server, { host: '127.0.0.1', port: 0 });
  let left = 200;
  const accepted = new Promise<void>((resolve) => {
    server.on('connection', () => (left -= 1) === 0 && resolve());
  });

  const computing = compute('busy', 100, had, SLICE_MS);
  const sockets = Array.from({ length: left }, () => connect(port, '127.0.0.1'));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  await accepted;
  const before = had.length;
  await computing;

  expect(before).toBeGreaterThan(2);
  expect(before).toBeLessThan(50);
});

test('short work shares a slice, so that a hundred turns do not wait for a hundred ticks', async () => {
  const had: string[] = [];
  const first = restIfBusy();
  workFully(SLICE_MS);
  const short = Array.from({ length: 100 }, async () => {
    const rest = restIfBusy();
    if (rest) await rest;
    had.push('short');
  });
  const before = had.length;

  const seen = await countByTick(had, 100);
  await Promise.all(short);

  expect([first, before]).toEqual([null, 0]);
  expect(seen.length).toBeLessThan(20);
});

test('of many that one answer continues, only as many work in its tick as fit into it', async () => {
  const had: string[] = [];
  let answer = (): void => undefined;
  const answered = new Promise<void>((resolve) => (answer = resolve));
  const continued = Array.from({ length: 60 }, async () => {
    await answered;
    const rest = restIfBusy();
    if (rest) await rest;
    workFully(1);
    had.push('continued');
  });

  answer();
  const seen = await countByTick(had, 60);
  await Promise.all(continued);

  expect(Math.max(...seen)).toBeLessThan(10);
});

test('searches and rankings of passages take their slices from the line of the process', async () => {
  let asked = 0;
  const never = new Promise<void>(() => undefined);
  shareLoop(() => ({ isOver: () => true, next: () => ((asked += 1), never) }));
  onTestFinished(() => shareLoop(createSlices));
  const question = { kind: 'k', tokens: new Int8Array(96 * 64).fill(1) };
  const candidates = Array.from({ length: 30 }, () => ({ kind: 'k', tokens: new Int8Array(96 * 256).fill(1) }));

  for (let nth = 0; nth < 20; nth += 1) {
    void rankByTokens(question, candidates);
    void new PassageIndex().search('How long does a refund take?', 'en', null);
  }
  await nextTick();

  // Each waits for its first slice, also if all begin in one tick.
  expect(asked).toBe(40);
});

test('of a hundred computations that are begun in one tick, only those that fit into it run there', async () => {
  let ran = 0;
  function* work(): Generator<void, void> {
    const until = workedMs() + 3;
    while (workedMs() < until);
    ran += 1;
    yield;
  }

  const all = Promise.all(Array.from({ length: 100 }, () => inSlices(work())));
  await Promise.resolve().then(() => undefined);
  const inFirstTick = ran;
  await all;

  expect(inFirstTick).toBeLessThanOrEqual(2);
  expect(ran).toBe(100);
});
