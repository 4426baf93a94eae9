import { expect, onTestFinished, test } from 'vitest';
import { startVectorUpdates } from '../../src/assistants/knowledge/update-vectors.ts';
import type { VectorStore } from '../../src/assistants/knowledge/vectors.ts';
import { readConfig } from '../../src/platform/process/config.ts';
import { createLifecycle } from '../../src/platform/process/lifecycle.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { anAssistantWithVectors } from '../support/assistant-with-vectors.ts';
import { anEntry } from '../support/builders.ts';
import { anEmbedder } from '../support/embedder.ts';
import { createSlices } from '../../src/platform/process/slices.ts';
import { eventually } from '../support/eventually.ts';
import { collectionIn, type Profiled, profileStatements } from '../support/profile.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });

/** What one statement may read or change of documents that have 80 KB each. */
const AT_ONCE = 50;
const ENTRIES = 120;
/** One entry's texts are the texts of all, so all vectors are known once the first entry has them. */
const same = anEntry({
  question: 'A letter?',
  variants: Array.from({ length: 50 }, (_, nth) => String.fromCodePoint(0x4e00 + nth)),
  answer: 'Yes.',
});
/** Computations of an assistant that wait for the loop: many more than the ticks in which a neighbour's vectors are made. */
const COMPUTATIONS = 1_000;
const SLICE_MS = 4;
const many = (count: number) => Array.from({ length: count }, () => same);

/** A worker's updates of vectors. */
const startUpdates = async (change: (vectors: VectorStore) => VectorStore = (vectors) => vectors, passMs?: number) => {
  const logger = createLogger({ name: 'test', level: 'silent' });
  const lifecycle = createLifecycle(logger, { deadlineMs: 5_000 });
  onTestFinished(lifecycle.close);
  const { vectors, semantic, embedders } = stack.service.assistants;
  const embedder = anEmbedder();
  const store = { vectors: change(vectors), semantic, embedders };
  const { timing } = readConfig(stack.env);
  const given = { store, embedder, timing, logger, lifecycle, ...(passMs !== undefined && { passMs }) };
  const update = await startVectorUpdates(given);
  return { update, embedder, close: lifecycle.close };
};

const areMade = async (assistantId: string, answers: number): Promise<void> =>
  eventually(async () => {
    const { semantic, version } = await stack.service.assistants.getAssistant(assistantId);
    expect(semantic).toMatchObject({ version, answers, done: answers });
    expect(semantic).not.toHaveProperty('stale');
  }, 60_000);

const ofVectors = (statements: Profiled[]): Profiled[] =>
  statements.filter((one) => collectionIn(one) === 'knowledgeVectors');
const sum = (numbers: number[]): number => numbers.reduce((all, one) => all + one, 0);

test('an import of texts that are known saves each entry once, and reads, retires and deletes few at a time', async () => {
  const { assistants, mongo } = stack.service;
  const { assistantId } = await anAssistantWithVectors(stack, many(ENTRIES));
  const { update, embedder } = await startUpdates();
  await update({ assistantId });
  await areMade(assistantId, ENTRIES);
  const asked = embedder.texts.length;

  const statements = await profileStatements(stack, async () => {
    await assistants.addKnowledge(assistantId, many(ENTRIES), { replace: true });
    await update({ assistantId });
    await areMade(assistantId, ENTRIES);
  });

  const all = ofVectors(statements);
  expect(embedder.texts.slice(asked)).toEqual([]);
  expect(await mongo.collection('knowledgeVectors').countDocuments({ assistantId })).toBe(ENTRIES);
  const deleted = all.filter(({ op }) => op === 'remove').map(({ ndeleted = 0 }) => ndeleted);
  expect(sum(deleted)).toBe(ENTRIES);
  expect(Math.max(...deleted)).toBeLessThanOrEqual(AT_ONCE);
  // Each entry is retired once, and the entry in its place is saved once.
  const updated = all.filter(({ op }) => op === 'update');
  const retired = updated.map(({ nMatched = 0 }) => nMatched);
  expect(sum(retired)).toBe(ENTRIES);
  expect(Math.max(...retired)).toBeLessThanOrEqual(AT_ONCE);
  expect(updated.filter(({ nMatched = 0 }) => nMatched === 0)).toHaveLength(ENTRIES);
  // The first removed entries have all the texts. Each new entry then reads the vectors of one of them.
  const read = all.filter(({ op }) => op === 'query').map(({ docsExamined = 0 }) => docsExamined);
  expect(Math.max(...read)).toBeLessThanOrEqual(AT_ONCE);
  expect(sum(read)).toBeLessThanOrEqual(ENTRIES + AT_ONCE);
});

test('removed entries that have none of the texts are read and deleted a few at a time', async () => {
  const { assistants } = stack.service;
  const { assistantId } = await anAssistantWithVectors(stack, many(ENTRIES));
  const { update } = await startUpdates();
  await update({ assistantId });
  await areMade(assistantId, ENTRIES);

  const statements = await profileStatements(stack, async () => {
    await assistants.addKnowledge(assistantId, [anEntry({ question: 'A new text?' })], { replace: true });
    await update({ assistantId });
    await areMade(assistantId, 1);
  });

  const read = ofVectors(statements).filter(({ op }) => op === 'query' || op === 'getmore');
  expect(Math.max(...read.map(({ docsExamined = 0 }) => docsExamined))).toBeLessThanOrEqual(AT_ONCE);
});

/** Notes how many saves run at once, and when each begins and ends. */
const watchSaves = () => {
  const saves: { from: number; to: number }[] = [];
  const now = { running: 0, most: 0 };
  const watch = (vectors: VectorStore): VectorStore => ({
    ...vectors,
    save: async (of, rows) => {
      const from = performance.now();
      now.running += 1;
      now.most = Math.max(now.most, now.running);
      // As slow as many large documents are.
      for (let times = 0; times < 10; times += 1) await vectors.save(of, rows);
      now.running -= 1;
      saves.push({ from, to: performance.now() });
    },
  });
  return { saves, now, watch };
};

test('the vectors of few assistants are stored at once, and those of all in turn', async () => {
  const knowers: string[] = [];
  for (let nth = 0; nth < 8; nth += 1) knowers.push((await anAssistantWithVectors(stack, many(6))).assistantId);
  const { now, watch } = watchSaves();
  const { update } = await startUpdates(watch);

  for (const assistantId of knowers) await update({ assistantId });
  for (const assistantId of knowers) await areMade(assistantId, 6);

  expect(now.most).toBeLessThanOrEqual(2);
});

test('an assistant rests after each part of its vectors that it stores, as long as that took', async () => {
  const { assistantId } = await anAssistantWithVectors(stack, many(12));
  const { saves, watch } = watchSaves();
  const { update } = await startUpdates(watch);

  await update({ assistantId });
  await areMade(assistantId, 12);

  expect(saves.length).toBeGreaterThan(10);
  // A timer may be a millisecond early, and a rest ends after half a second.
  const rested = saves.slice(1).map(({ from: next }, nth) => {
    const { from, to } = saves[nth]!;
    return next - to - Math.min(500, to - from);
  });
  expect(Math.min(...rested)).toBeGreaterThan(-2);
});

test('an assistant whose plan waits for the loop has no place meanwhile', async () => {
  const { assistants } = stack.service;
  const busy: string[] = [];
  for (let nth = 0; nth < 2; nth += 1)
    busy.push((await anAssistantWithVectors(stack, [anEntry(), anEntry()])).assistantId);
  const first = await startUpdates();
  for (const assistantId of busy) await first.update({ assistantId });
  for (const assistantId of busy) await areMade(assistantId, 2);
  await first.close();
  const { assistantId: neighbour } = await anAssistantWithVectors(stack, [anEntry()]);

  let slices = 0;
  let isOver = false;
  const compute = async (): Promise<void> => {
    const own = createSlices(0);
    while (!isOver) {
      await own.next();
      for (const until = performance.now() + SLICE_MS; !isOver && performance.now() < until; );
      slices += 1;
    }
  };
  onTestFinished(() => {
    isOver = true;
  });
  const reading = { count: 0 };
  const { update } = await startUpdates((vectors) => ({
    ...vectors,
    readTextKeys: (ids) => {
      // From now on it waits for the loop behind computations of its own assistant.
      for (let nth = 0; nth < COMPUTATIONS; nth += 1) void compute();
      reading.count += 1;
      return vectors.readTextKeys(ids);
    },
  }));
  for (const assistantId of busy) {
    await assistants.addKnowledge(assistantId, [anEntry({ question: 'A new text?' })], { replace: true });
    await update({ assistantId });
  }
  await eventually(() => expect(reading.count).toBe(2));

  await update({ assistantId: neighbour });
  await areMade(neighbour, 1);

  isOver = true;

  expect(slices).toBeLessThan(COMPUTATIONS);
});

const PASS_MS = 1_000;

test('a plan that ends early for others begins the next time where it ended', async () => {
  const { assistants } = stack.service;
  const { assistantId } = await anAssistantWithVectors(stack, many(2 * AT_ONCE));
  const first = await startUpdates();
  await first.update({ assistantId });
  await areMade(assistantId, 2 * AT_ONCE);
  await first.close();
  const removed = new Set((await assistants.listKnowledge(assistantId)).map(({ entryId }) => entryId));
  await assistants.addKnowledge(assistantId, [anEntry({ question: 'A new text?' })], { replace: true });
  const { promise: held, resolve: letGo } = Promise.withResolvers<void>();
  onTestFinished(() => letGo());

  // A sweep may find assistants of other tests too.
  const read: string[][] = [];
  const others: string[] = [];
  const saving: string[] = [];
  const change = (vectors: VectorStore): VectorStore => ({
    ...vectors,
    save: async (of, rows) => {
      if (others.includes(of)) {
        saving.push(of);
        await held;
      }
      await vectors.save(of, rows);
    },
    readTextKeys: async (ids) => {
      if (removed.has(ids[0] ?? '') && read.push(ids) === 1) await takePlaces();
      return vectors.readTextKeys(ids);
    },
  });
  const { update, embedder } = await startUpdates(change, PASS_MS);
  const updateOther = async (question: string): Promise<void> => {
    const other = await anAssistantWithVectors(stack, [anEntry({ question })]);
    others.push(other.assistantId);
    await update(other);
  };
  /** The time of the plan is over then, both places are taken, and an assistant waits for one. */
  const takePlaces = async (): Promise<void> => {
    const ends = performance.now() + PASS_MS;
    await updateOther('One?');
    await eventually(() => expect(saving).toEqual(others));
    await updateOther('Two?');
    await eventually(() => expect(embedder.texts).toContain('Two?'));
    await assistants.addKnowledge(assistantId, [anEntry({ question: 'Another new text?' })], {});
    await eventually(() => expect(performance.now()).toBeGreaterThan(ends));
  };
  await update({ assistantId });
  await eventually(() => expect([others.length, saving]).toEqual([2, others]));
  letGo();
  await areMade(assistantId, 2);

  expect(read[0]).toHaveLength(AT_ONCE);
  expect(read[1]).toHaveLength(AT_ONCE);
  expect(read[1]?.filter((id) => read[0]?.includes(id))).toEqual([]);
});
