import { expect, onTestFinished, test } from 'vitest';
import { textKeyOf, textsHash, textsOf } from '../../src/assistants/knowledge/entry.ts';
import { createVectorReader } from '../../src/assistants/knowledge/semantic-search.ts';
import type { Embedders, SemanticState } from '../../src/assistants/knowledge/semantic-state.ts';
import { startVectorUpdates } from '../../src/assistants/knowledge/update-vectors.ts';
import type { EntryTexts, EntryVectors, VectorStore } from '../../src/assistants/knowledge/vectors.ts';
import { createLifecycle } from '../../src/platform/process/lifecycle.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { TIMING } from '../../src/platform/process/time-limits.ts';
import { anEmbedder } from '../support/embedder.ts';
import { longestStep } from '../support/loop.ts';
import { atPace } from '../support/pace.ts';
import { collect } from '../support/heap.ts';

const logger = createLogger({ name: 'test', level: 'silent' });
const MODEL = 'trigrams-1';
const ASSISTANT = 'b3f0c9de-4a51-4d0c-9a51-0f4b1f5a7a10';
const VARIANTS_MAX = 50;
/** With `VARIANTS_MAX` variants each, their texts need several plans. */
const ENTRIES = 1_500;

const entryOf = (nth: number, entryId: string): EntryTexts => {
  const variants = Array.from({ length: VARIANTS_MAX }, (_, of) => `variant ${of} of ${nth}`);
  return { entryId, texts: textsOf({ question: `question ${nth}`, variants, answer: `answer ${nth}` }) };
};

type Row = Omit<EntryVectors, 'vectors'> & { nth: number; live: boolean };

/** A store without MongoDB: so many entries were removed and added again. Each vector has the number of its entry. */
const openReplaced = (count: number) => {
  const entries = Array.from({ length: count }, (_, nth) => entryOf(nth, `new ${nth}`));
  const rows = new Map<string, Row>();
  for (const [nth, { texts }] of entries.entries()) {
    const entryId = `old ${nth}`;
    rows.set(entryId, {
      entryId,
      nth,
      live: false,
      model: MODEL,
      hash: textsHash(MODEL, texts),
      texts: texts.map(textKeyOf),
    });
  }
  const store: Pick<VectorStore, 'list' | 'readTexts' | 'read' | 'readTextKeys' | 'save' | 'remove'> = {
    list: async function* () {
      yield* [...rows.values()].map(({ entryId, live, model, hash }) => ({ entryId, live, model, hash }));
    },
    readTexts: async function* (_, ids) {
      for (const entry of entries) if (!ids || ids.includes(entry.entryId)) yield entry;
    },
    read: async function* (ids) {
      for (const { nth, ...row } of ids.flatMap((id) => rows.get(id) ?? []))
        yield { ...row, vectors: new Float32Array(row.texts.length * 4).fill(nth) };
    },
    readTextKeys: async (ids) =>
      ids.map((id) => ({ entryId: id, texts: rows.get(id)!.texts.map((name) => Buffer.from(name).toString()) })),
    save: async (_, saved) => {
      for (const { vectors, ...row } of saved)
        rows.set(row.entryId, { ...row, live: true, nth: new Set(vectors).size === 1 ? vectors[0]! : Number.NaN });
    },
    remove: async (ids) => {
      for (const id of ids) rows.delete(id);
    },
  };
  return { store, rows };
};

test('texts of removed entries are not embedded again, and a plan holds only some of them', async () => {
  const { store, rows } = openReplaced(ENTRIES);
  const lifecycle = createLifecycle(logger, { deadlineMs: 5_000 });
  onTestFinished(lifecycle.close);
  const { promise: completed, resolve: complete } = Promise.withResolvers<void>();
  const heldBytes: number[] = [];
  let before = 0;
  const vectors = {
    ...store,
    save: async (...given: Parameters<typeof store.save>) => {
      if (heldBytes.length === 0) {
        await new Promise(setImmediate); // a reference that was made in this tick keeps its object
        collect();
        heldBytes.push(process.memoryUsage().heapUsed - before);
      }
      await store.save(...given);
    },
  };
  const semantic: Partial<SemanticState> = {
    acquire: async () => 1,
    reportProgress: async () => 1,
    complete: async () => {
      complete();
      return true;
    },
    release: async () => undefined,
    findOutdated: async () => [],
  };
  const embedders: Partial<Embedders> = {
    register: async () => undefined,
    unregister: async () => undefined,
    listRunning: async () => [],
  };
  const embedder = anEmbedder({ model: MODEL });
  const update = await startVectorUpdates({
    store: { vectors, semantic, embedders } as never,
    embedder,
    timing: TIMING,
    logger,
    lifecycle,
  });
  collect();
  before = process.memoryUsage().heapUsed;

  await update({ assistantId: ASSISTANT });
  await completed;

  expect(embedder.texts).toEqual([]);
  const stored = [...rows.values()].map(({ entryId, live, nth }) => ({ entryId, live, nth }));
  const expected = Array.from({ length: ENTRIES }, (_, nth) => ({ entryId: `new ${nth}`, live: true, nth }));
  expect(stored).toEqual(expected);
  expect(heldBytes[0]).toBeLessThan(5_500_000);
});

test('vectors of entries with many variants are read in short steps', async () => {
  const { texts } = entryOf(0, '');
  const info = { model: MODEL, hash: textsHash(MODEL, texts), live: true };
  const all = new Float32Array(texts.length * 384).map((_, at) => Math.sin(at));
  const names = texts.map(textKeyOf);
  const ids = Array.from({ length: 600 }, (_, nth) => `entry ${nth}`);
  const read = async (): Promise<void> => {
    const vectorsOf = createVectorReader(
      {
        list: async function* () {
          for (const entryId of ids) yield { entryId, ...info };
        },
        read: async function* () {
          for (const entryId of ids) yield { entryId, ...info, texts: names, vectors: all };
        },
      } as Partial<VectorStore> as VectorStore,
      { logger },
    );
    const semantic = { model: MODEL, revision: 1, version: 1, done: ids.length, answers: ids.length };
    const found = await vectorsOf({ assistantId: ASSISTANT, version: 1, semantic });
    expect(found?.entries).toHaveLength(ids.length);
  };
  await read();

  expect(await longestStep(read)).toBeLessThan(atPace(15));
});
