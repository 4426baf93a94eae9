import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { createLogger } from '../../src/platform/process/logger.ts';
import { createPassages } from '../../src/sources/passage-index.ts';
import { NO_MODEL } from '../support/embedder.ts';

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }));
afterEach(() => void vi.useRealTimers());

/** An assistant with an index of a middle size. */
const anOwner = (assistantId: string, version = 1) => ({
  assistantId,
  languages: ['en'],
  passages: { version, count: 5_000 },
});

/** What a reply worker holds of passages. A read of an assistant in `held` goes on when that promise is resolved. */
const openPassages = () => {
  const held = new Map<string, Promise<void>>();
  const begun: string[] = [];
  const passages = createPassages({
    store: { readPassages: async () => ({ passages: [], gone: 0 }), readTokens: async () => new Map() },
    background: {
      areRead: async () => true,
      async *readStored() {},
      async *listVisible({ assistantId }) {
        begun.push(assistantId);
        await held.get(assistantId);
        yield [];
      },
      async *readEmbedded() {},
    },
    embedder: NO_MODEL,
    reportLeftOut: async () => undefined,
    logger: createLogger({ name: 'test', level: 'silent' }),
  });
  return { ...passages, held, begun };
};

test('assistants whose indexes take long to read leave a place to a neighbour', async () => {
  const { of, held, begun } = openPassages();
  const go = Promise.withResolvers<void>();
  const slow = ['one', 'other'];
  for (const name of slow) held.set(name, go.promise);
  const first = slow.map(async (name) => of(anOwner(name))?.open());
  await vi.advanceTimersByTimeAsync(1_000);
  go.resolve();
  await Promise.all(first);
  begun.length = 0;

  for (const name of slow) {
    held.set(name, new Promise(() => undefined));
    of(anOwner(name, 2))?.current();
  }
  const neighbour = of(anOwner('neighbour'))?.open();
  await vi.advanceTimersByTimeAsync(6_000);

  expect(await neighbour).not.toBeNull();
  expect(begun).toEqual(['one', 'neighbour']);
});

test('an index of a draft that is being read is ready for the turn of the evaluation that has begun the read', async () => {
  const { prepare, held, begun } = openPassages();
  const go = Promise.withResolvers<void>();
  held.set('one', go.promise);

  const isReady = prepare(['source'], async () => anOwner('one'));
  await vi.waitFor(() => expect(begun).toEqual(['one']));
  go.resolve();

  expect(await isReady).toBe(true);
});

test('an evaluation that waits for the index of a draft lets others go first after a while', async () => {
  const { prepare, held } = openPassages();
  held.set('one', new Promise(() => undefined));

  const isReady = prepare(['source'], async () => anOwner('one'));
  await vi.advanceTimersByTimeAsync(5_000);

  expect(await isReady).toBe(false);
});
