import { randomUUID } from 'node:crypto';
import { passageEngine } from '@parley/understanding';
import { expect, test } from 'vitest';
import { createLogger } from '../../src/platform/process/logger.ts';
import { createStoreIndexes } from '../../src/sources/make-vectors.ts';
import { createPassages } from '../../src/sources/passage-index.ts';
import { NO_COUNTS, type StoredPassage, type StoredSource } from '../../src/sources/source.ts';
import { anAssistant } from '../support/builders.ts';
import { anOperator } from '../support/operator-client.ts';
import { addPassages } from '../support/sources.ts';
import { useStack } from '../support/stack.ts';
import { NO_MODEL } from '../support/embedder.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });

/** Passages without a language, which are in the first one of their assistant. */
const PASSAGES: Partial<StoredPassage>[] = ['Refunds take a week.', 'Parcels leave at six.', 'Gifts cost more.'].map(
  (text) => ({ text, language: null }),
);

/** An assistant with a source that is read, and with no stored index of it. */
const aScene = async () => {
  const { assistants, mongo, passages, passageVectors: vectors } = stack.service;
  const operator = await anOperator(stack);
  const { assistantId } = await anAssistant(stack, { knowledge: [], input: { languages: ['en-GB'] } });
  const ids = { assistantId, sourceId: randomUUID() };
  const read: Partial<StoredSource> = {
    assistantId,
    state: 'ready',
    live: 1,
    run: 1,
    removedAt: null,
    createdAt: new Date(),
    counts: { ...NO_COUNTS, passages: PASSAGES.length },
  };
  await mongo.collection('sources').insertOne({ _id: ids.sourceId, ...read } as never);
  await addPassages(stack, ids, PASSAGES);
  await assistants.raisePassages(assistantId, async () => ({ live: PASSAGES.length, drafted: 0 }));
  const owner = () => assistants.getAssistant(assistantId);
  const pieces = mongo.collection<{ kind: string }>('passageIndexes');
  return {
    setLanguage: async (language: string) => {
      const { status } = await operator.call('PATCH', `/assistants/${assistantId}`, { languages: [language] });
      expect(status).toBe(200);
    },
    storeIndexes: createStoreIndexes({
      vectors,
      passages,
      embedder: { model: () => null },
      languageOf: async () => (await owner()).languages[0] ?? 'en',
      timing: { sourceRenewMs: 4_000 },
      draining: new AbortController().signal,
    }),
    storeAsKind: (kind: string) => pieces.updateMany({ assistantId }, { $set: { kind } }),
    kinds: async () => [...new Set((await pieces.find({ assistantId }).toArray()).map(({ kind }) => kind))],
    /** Reads the first index of a worker. How many passages it is made from, beside what is stored. */
    readFirst: async (): Promise<number> => {
      let count = 0;
      const readEmbedded: typeof passages.readEmbedded = async function* (passageIds) {
        count += passageIds.length;
        yield* passages.readEmbedded(passageIds);
      };
      const opened = createPassages({
        store: passages,
        background: { ...passages, readEmbedded },
        embedder: NO_MODEL,
        reportLeftOut: assistants.reportPassagesLeftOut,
        logger: createLogger({ name: 'test', level: 'silent' }),
      });
      const found = await opened.of(await owner())!.open();
      expect([...found!.search.index.passageIds()]).toHaveLength(PASSAGES.length);
      return count;
    },
  };
};

test('a stored index is used whatever region the first language gets, and made again for another language', async () => {
  const { readFirst, setLanguage, storeIndexes } = await aScene();
  await storeIndexes();
  const read: number[] = [await readFirst()];

  for (const language of ['en-AU', 'en', 'de-AT']) {
    await setLanguage(language);
    read.push(await readFirst());
  }
  await storeIndexes();
  read.push(await readFirst());

  expect(read).toEqual([0, 0, 0, PASSAGES.length, 0]);
});

test('an index that was stored for a language with its region is made again', async () => {
  const { kinds, readFirst, storeAsKind, storeIndexes } = await aScene();
  await storeIndexes();
  await storeAsKind(`${passageEngine()}/en-GB`);

  const before = await readFirst();
  await storeIndexes();

  expect([before, await readFirst()]).toEqual([PASSAGES.length, 0]);
  expect(await kinds()).toEqual([`${passageEngine()}/en`]);
});
