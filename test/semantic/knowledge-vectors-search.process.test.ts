import { beforeAll, expect, onTestFinished, test } from 'vitest';
import { newId } from '../../src/platform/process/ids.ts';
import { createSharedMemory } from '../../src/platform/process/lru.ts';
import { createVectorReader } from '../../src/assistants/knowledge/semantic-search.ts';
import { cosineTo, measureSimilarity, rowOf, rowsOf, type VectorEntry } from '@parley/understanding';
import { anEntry } from '../support/builders.ts';
import { anEmbedder, vectorOf } from '../support/embedder.ts';
import { eventually } from '../support/eventually.ts';
import { anAssistantWithVectors, someEntries } from '../support/assistant-with-vectors.ts';
import { longTest } from '../support/size.ts';
import { openStack, type Stack, useStack } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';

type Worker = Awaited<ReturnType<Stack['startReplyWorker']>>;

/** The nearest text of each entry, the best first. */
const nearestOf = (vectors: { entries: readonly VectorEntry[] } | null, query: Float32Array) =>
  (vectors?.entries ?? [])
    .map(({ entryId, kinds, rows }) => {
      const texts = kinds.map((kind, row) => ({ entryId, kind, cosine: cosineTo(query)(rows, row) }));
      return texts.toSorted((a, b) => b.cosine - a.cosine)[0]!;
    })
    .toSorted((a, b) => b.cosine - a.cosine);

/** Searches as a turn does, with the assistant's cached settings. */
const findBy = async (worker: Worker, assistantId: string, question: string) => {
  const assistant = await worker.assistants.findAssistant(assistantId);
  if (!assistant) throw new Error('no such assistant');
  return nearestOf(await worker.vectorsOf(assistant), vectorOf(question));
};

const workers: Worker[] = [];
const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
beforeAll(async () => {
  for (let nth = 0; nth < 2; nth += 1) workers.push(await stack.startReplyWorker(undefined, anEmbedder()));
});

test('every worker finds each entry once by its nearest text, the best entry first', async () => {
  const knower = await anAssistantWithVectors(stack, [
    anEntry({
      question: 'Are pets allowed?',
      variants: ['Can I bring my dog?', 'Can I bring a cat?'],
      answer: 'Yes.',
    }),
    anEntry({ question: 'Is there parking?', answer: 'Behind the house, for twelve euros a night.' }),
    anEntry({ question: 'When is breakfast?', answer: 'From seven to ten.' }),
  ]);
  await knower.waitForVectors();
  const [pets, parking, breakfast] = await knower.entries();

  for (const worker of workers) {
    const dogs = await findBy(worker, knower.assistantId, 'can i bring my dogs');
    expect(dogs[0]).toMatchObject({ entryId: pets?.entryId, kind: 'variant' });
    expect(dogs[0]?.cosine).toBeGreaterThan(0.8);
    expect(dogs).toHaveLength(3);
    expect(dogs.map(({ cosine }) => cosine)).toEqual(dogs.map(({ cosine }) => cosine).toSorted((a, b) => b - a));
    expect(new Set(dogs.map(({ entryId }) => entryId)).size).toBe(3);
    expect((await findBy(worker, knower.assistantId, 'twelve euros a night'))[0]).toMatchObject({
      entryId: parking?.entryId,
      kind: 'answer',
    });
    expect((await findBy(worker, knower.assistantId, 'When is breakfast?'))[0]).toEqual({
      entryId: breakfast?.entryId,
      kind: 'question',
      cosine: expect.closeTo(1, 3),
    });
  }
});

test('an edited, added or removed entry is known to every worker within two seconds', async () => {
  const { assistants } = stack.service;
  const knower = await anAssistantWithVectors(stack, someEntries(50));
  await knower.waitForVectors();
  for (const worker of workers) await findBy(worker, knower.assistantId, 'anything');
  const [edited, removed] = await knower.entries();
  const everywhere = async (question: string, entryId: string | undefined, found: boolean) => {
    const startedAt = performance.now();
    await eventually(async () => {
      for (const worker of workers) {
        const [hit] = await findBy(worker, knower.assistantId, question);
        expect([hit?.entryId === entryId, (hit?.cosine ?? 0) > 0.99]).toEqual([found, found]);
      }
    });
    return performance.now() - startedAt;
  };

  await assistants.updateKnowledge(knower.assistantId, edited?.entryId ?? '', anEntry({ question: 'How tall is it?' }));
  const times = [await everywhere('How tall is it?', edited?.entryId, true)];
  const [added] = await assistants.addKnowledge(knower.assistantId, [anEntry({ question: 'Who built it?' })]);
  times.push(await everywhere('Who built it?', added?.entryId, true));
  await assistants.removeKnowledge(knower.assistantId, [removed?.entryId ?? '']);
  times.push(await everywhere(removed?.question ?? '', removed?.entryId, false));

  for (const ms of times) expect(ms).toBeLessThan(atPace(2_000));
});

test('entries with vectors are found while the other vectors are still being made', async () => {
  const own = await openStack({ replyWorkers: 0, deliveryWorkers: 0 });
  onTestFinished(own.close);
  const slow = anEmbedder();
  const held = Promise.withResolvers<void>();
  slow.gate = (texts) => (texts.includes('Where is the thing number 150?') ? held.promise : undefined);
  slow.msEach = 3;
  const worker = await own.startReplyWorker(undefined, slow);
  const knower = await anAssistantWithVectors(own, someEntries(200));

  for (const nth of [7, 60, 120]) {
    await eventually(async () => {
      const [hit] = await findBy(worker, knower.assistantId, `Where is the thing number ${nth}?`);
      expect(hit?.cosine).toBeGreaterThan(0.99);
    });
  }
  expect((await knower.status()).state).toBe('making');

  held.resolve();
  slow.msEach = 0;
  await knower.waitForVectors();
});

test('an assistant keeps to its memory by dropping vectors of answers first', async () => {
  const knower = await anAssistantWithVectors(stack, someEntries(100));
  await knower.waitForVectors();
  const assistant = await stack.service.assistants.getAssistant(knower.assistantId);
  const logged: unknown[] = [];
  const logger = { warn: (line: unknown) => logged.push(line) } as never;

  // 100 entries of three texts take 176 kB.
  const vectorsOf = createVectorReader(stack.service.assistants.vectors, { logger, maxBytes: 140_000 });
  const vectors = await vectorsOf(assistant);

  const kinds = nearestOf(vectors, vectorOf('The thing 7 is on its shelf.')).map(({ kind }) => kind);
  expect(kinds).toHaveLength(100);
  expect(kinds).not.toContain('answer');
  expect(nearestOf(vectors, vectorOf('I look for thing 7'))[0]).toMatchObject({ kind: 'variant' });
  expect(logged).toMatchObject([{ without: ['answer'] }]);
});

test('assistants in use push each other’s vectors out once at most, and get dropped ones back when others are idle', async () => {
  const knowers = [];
  for (let nth = 0; nth < 3; nth += 1) knowers.push(await anAssistantWithVectors(stack, someEntries(100, `w${nth}x`)));
  for (const knower of knowers) await knower.waitForVectors();
  const { assistants } = stack.service;
  const known = await Promise.all(knowers.map(({ assistantId }) => assistants.getAssistant(assistantId)));
  let read = 0;
  const store: typeof assistants.vectors = {
    ...assistants.vectors,
    read: (entryIds) => {
      read += entryIds.length;
      return assistants.vectors.read(entryIds);
    },
  };
  let now = 0;
  const logger = { warn: () => undefined } as never;
  // Each takes 176 kB, so that two fit and three do not.
  const vectorsOf = createVectorReader(store, {
    logger,
    memory: createSharedMemory({ maxBytes: 450_000, now: () => now }),
    now: () => now,
  });
  const hitsOf = async (nth: number, text: string) => nearestOf(await vectorsOf(known[nth]!), vectorOf(text))[0];

  for (let turn = 0; turn < 5; turn += 1) {
    for (let nth = 0; nth < 3; nth += 1) {
      now += 1;
      expect(await hitsOf(nth, `I look for w${nth}x 7`)).toMatchObject({ kind: 'variant' });
    }
  }
  const readInUse = read;
  now += 11 * 60_000; // the others were not asked since
  await hitsOf(2, 'anything');
  await eventually(async () => expect((await hitsOf(2, 'The w2x 7 is on its shelf.'))?.kind).toBe('answer'));
  await hitsOf(0, 'anything');
  await eventually(async () => expect((await hitsOf(0, 'The w0x 7 is on its shelf.'))?.kind).toBe('answer'));

  // Each is read once, and once again without the vectors of its answers.
  expect(readInUse).toBe(600);
});

longTest('a search of ten thousand entries with three texts each does not block the event loop', async () => {
  const noise = () => Float32Array.from({ length: 384 }, () => Math.random() - 0.5);
  const entries = Array.from({ length: 10_000 }, (): VectorEntry => {
    const vectors = new Float32Array(3 * 384);
    for (let row = 0; row < 3; row += 1) vectors.set(noise(), row * 384);
    return { entryId: newId(), hash: '', kinds: ['question', 'variant', 'answer'], rows: rowsOf(vectors, 3) };
  });
  const wanted = entries[9_999] as VectorEntry;
  const query = Float32Array.from(rowOf(wanted.rows, 1));
  const find = async () => (await measureSimilarity(entries, query, new Set())).entries;
  await find(); // warms up the compiler

  // Processor time excludes the time of other processes.
  const usedMs = (): number => {
    const { user, system } = process.threadCpuUsage();
    return (user + system) / 1_000;
  };
  let [ended, last, longest] = [false, usedMs(), 0];
  const look = (): void => {
    const now = usedMs();
    [longest, last] = [Math.max(longest, now - last), now];
    if (!ended) setImmediate(look);
  };
  look();
  for (let round = 0; round < 10; round += 1) {
    expect((await find())[0]).toMatchObject({ entryId: wanted.entryId });
  }
  await new Promise(setImmediate);
  ended = true;

  expect(longest).toBeLessThan(atPace(10));
});
