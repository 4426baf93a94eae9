import { expect, test } from 'vitest';
import { type ModelBackend, openEmbedder } from '../src/understanding.ts';

const log = { info: () => undefined, warn: () => undefined };

/** A model that answers a text when the test lets it. */
const aHeldModel = () => {
  const held: { text: string; answer: () => void }[] = [];
  const { promise: ended, resolve: end } = Promise.withResolvers<string>();
  const backend: ModelBackend = {
    limits: { texts: 1, concurrency: 1, pieceBytes: 320, pieces: { query: 3, passage: 7 }, answerMs: 60_000 },
    open: async () => ({
      model: 'held-1',
      dimensions: 2,
      embed: ([text = '']) =>
        new Promise((resolve) => held.push({ text, answer: () => resolve([new Float32Array([0.6, 0.8])]) })),
      ended,
      end,
    }),
  };
  return { backend, held };
};

test('a turn in line gives up after its wait, and one that the model works on does not', async () => {
  const { backend, held } = aHeldModel();
  const embedder = await openEmbedder(backend, { log, waitMs: 40 });
  const first = embedder.embed(['in work'], 'query', { holder: 'one' });
  const second = embedder.embed(['in line'], 'query', { holder: 'two' });

  expect(await second).toBeNull();
  held[0]?.answer();

  expect((await first)?.[0]).toHaveLength(2);
  expect(held.map(({ text }) => text)).toEqual(['in work']);
  await embedder.close();
});

test('background work goes on after each rest, while turns come', async () => {
  const { backend, held } = aHeldModel();
  const embedder = await openEmbedder(backend, { log });
  const answered = async (texts: string[], priority: 'turn' | 'background'): Promise<void> => {
    const before = held.length;
    const embedding = embedder.embed(texts, 'query', { holder: 'one', priority });
    for (let nth = before; nth < before + texts.length; nth += 1) {
      await expect.poll(() => held.length, { interval: 1 }).toBeGreaterThan(nth);
      held[nth]?.answer();
    }
    expect(await embedding).toHaveLength(texts.length);
  };

  await answered(['a turn'], 'turn');
  await answered(['one', 'two', 'three', 'four'], 'background');
  await answered(['another turn'], 'turn');
  await answered(['five'], 'background');
  await embedder.close();
});
