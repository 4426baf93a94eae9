import { randomUUID } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { quantised } from '@parley/understanding';
import { expect, onTestFinished, test } from 'vitest';
import { NO_COUNTS, type StoredPassage } from '../../src/sources/source.ts';
import { createStoreIndexes } from '../../src/sources/make-vectors.ts';
import { textKeyOf, textsHash } from '../../src/assistants/knowledge/entry.ts';
import type { EntryVectors } from '../../src/assistants/knowledge/vectors.ts';
import { findSemanticStatus } from '../../src/assistants/knowledge/semantic-state.ts';
import { anAssistant, anEntry } from '../support/builders.ts';
import { vectorOf } from '../support/embedder.ts';
import { eventually } from '../support/eventually.ts';
import { atPace } from '../support/pace.ts';
import { startRealProcess } from '../kit/processes.ts';
import { memoryMbOf } from '../kit/services.ts';
import { openEmbeddingsService } from '../kit/provider.ts';
import { openStack, type Stack } from '../support/stack.ts';

/** `PASSAGES=50000` is the most that an assistant may have. It takes a minute and a half. */
const MANY = Number(process.env['PASSAGES'] ?? 16_000);
const FEW = 500;
/** The most that assistants may have. */
const MOST = { passages: 50_000, entries: 10_000 };
const QUESTIONS = 60;
const WORDS_OF_A_PASSAGE = 80;
/** A heap without room for much garbage, so that the memory tells what the passages need. */
const SMALL_HEAP = ['--max-old-space-size=140', '--max-semi-space-size=4'];
const GROWTH_MB = MANY > 16_000 ? 125 : 100;
const FIRST_WITHIN_MS = 6_000;

/** Words as texts have them: few are common, most are rare. */
const aWriter = () => {
  let state = 1;
  const random = (): number => {
    state = (state * 48_271) % 2_147_483_647;
    return state / 2_147_483_647;
  };
  const word = (): string =>
    Math.floor(30_000 ** random())
      .toString(36)
      .padStart(3, 'k');
  return (count: number): string => Array.from({ length: count }, word).join(' ');
};

/** Gives each of these assistants the same passages. */
const addMany = async ({ service }: Stack, assistantIds: string[], count: number, model: string): Promise<void> => {
  const write = aWriter();
  const own = {
    kind: 'file',
    name: 'Handbook',
    state: 'ready',
    live: 1,
    run: 1,
    removedAt: null,
    createdAt: new Date(),
  };
  const counts = { ...NO_COUNTS, passages: count, embedded: count };
  const sources = assistantIds.map((assistantId) => {
    return { _id: randomUUID(), assistantId, ...own, counts, vectors: { made: model, model } };
  });
  await service.mongo.collection('sources').insertMany(sources as never[]);
  const aPassage = (nth: number): Omit<StoredPassage, '_id' | 'assistantId' | 'sourceId'> => {
    const path = [write(2), write(3)];
    const text = `${write(WORDS_OF_A_PASSAGE)}.`;
    return {
      pageId: `page ${nth >> 3}`,
      hash: String(nth),
      order: nth,
      path,
      text,
      title: `Page ${nth >> 3}`,
      url: `https://example.com/${nth >> 3}`,
      anchor: null,
      language: 'en',
      since: 1,
      until: null,
      model,
      vector: Buffer.from(quantised(vectorOf(text.slice(0, 120))).buffer),
    };
  };
  for (let from = 0; from < count; from += 250) {
    const some = Array.from({ length: Math.min(250, count - from) }, (_, nth) => aPassage(from + nth));
    for (const { _id: sourceId, assistantId } of sources) {
      const rows = some.map((one) => ({ _id: `${sourceId}:${one.order}`, assistantId, sourceId, ...one }));
      await service.mongo.collection<StoredPassage>('passages').insertMany(rows);
    }
  }
  for (const assistantId of assistantIds)
    await service.assistants.raisePassages(assistantId, async () => ({ live: count, drafted: 0 }));
};

/** What a worker would make of the entries. It would take minutes. */
const addVectors = async ({ service }: Stack, assistantId: string, model: string): Promise<void> => {
  const { vectors } = service.assistants;
  const rows: EntryVectors[] = [];
  for await (const { entryId, texts } of vectors.readTexts(assistantId)) {
    const made = new Float32Array(texts.flatMap(({ text }) => [...vectorOf(text)]));
    rows.push({ entryId, model, hash: textsHash(model, texts), texts: texts.map(textKeyOf), vectors: made });
  }
  for (let from = 0; from < rows.length; from += 250) await vectors.save(assistantId, rows.slice(from, from + 250));
};

/** A stack, and the settings of processes that use a model which this test serves. */
const openWithModel = async () => {
  const stack = await openStack({ replyWorkers: 0, deliveryWorkers: 0 });
  onTestFinished(stack.close);
  const service = await openEmbeddingsService();
  onTestFinished(service.close);
  service.behave(({ response }, { body }) => {
    const data = body.input.map((text, index) => ({ index, embedding: [...vectorOf(text)] }));
    response.writeHead(200, { 'Content-Type': 'application/json' });
    response.end(JSON.stringify({ data }));
  });
  const model = `m@${new URL(service.baseUrl).host}/384`;
  const embeddings = { EMBEDDINGS_URL: service.baseUrl, EMBEDDINGS_MODEL: 'm', SEMANTIC: 'auto' };
  const { passageVectors: vectors, passages } = stack.service;
  const draining = new AbortController().signal;
  const languageOf = async () => 'en';
  return {
    stack,
    model,
    env: { ...stack.env, ...embeddings },
    storeIndexes: createStoreIndexes({
      vectors,
      passages,
      embedder: { model: () => model },
      languageOf,
      timing: { sourceRenewMs: 4_000 },
      draining,
    }),
  };
};

test('a worker soon has many passages, within its memory, and searches them about as fast as 500', async () => {
  const { stack, model, env, storeIndexes } = await openWithModel();
  const ofSize = async (count: number) => {
    const assistant = await anAssistant(stack, { knowledge: [] });
    await addMany(stack, [assistant.assistantId], count, model);
    return assistant;
  };
  const [many, few] = [await ofSize(MANY), await ofSize(FEW)];
  await storeIndexes();
  const worker = await startRealProcess('reply', env, { nodeArgs: SMALL_HEAP });
  onTestFinished(() => worker.kill());
  const megabytes = (): number => memoryMbOf(worker.pid);
  /** Processor time of the worker, because other load makes every turn slower. */
  const worked = (): number => {
    const threads = readdirSync(`/proc/${worker.pid}/task`);
    const ns = threads.map((id) => readFileSync(`/proc/${worker.pid}/task/${id}/schedstat`, 'utf8').split(' ')[0]);
    return ns.reduce((sum, one) => sum + Number(one), 0) / 1e6;
  };
  const before = megabytes();
  const write = aWriter();
  const ask = async ({ chat, assistantId }: typeof many) => {
    const since = worked();
    const { body } = await chat({ session_id: randomUUID(), message: `what is ${write(5)}?`, language: 'en' });
    const ms = worked() - since;
    const stored = await stack.service.mongo
      .collection('conversations')
      .findOne({ conversationId: body.conversationId, assistantId });
    const why = (stored?.texts as Record<string, { why?: { passages?: unknown[] } }[]>)?.['1']?.[1]?.why;
    return { ms, found: why?.passages?.length ?? 0 };
  };

  const firstAt = performance.now();
  await eventually(async () => expect((await ask(many)).found).toBeGreaterThan(0));
  const firstMs = performance.now() - firstAt;
  await eventually(async () => expect((await ask(few)).found).toBeGreaterThan(0));
  const times: Record<'many' | 'few', number[]> = { many: [], few: [] };
  for (let nth = 0; nth < QUESTIONS; nth += 1) {
    times.many.push((await ask(many)).ms);
    times.few.push((await ask(few)).ms);
  }

  // The quicker ones tell what the work takes, because other load slows single turns.
  const quartile = (all: number[]): number =>
    all.toSorted((one, other) => one - other)[Math.floor(all.length / 4)] ?? 0;
  expect(megabytes() - before).toBeLessThan(GROWTH_MB);
  expect(quartile(times.many) - quartile(times.few)).toBeLessThan(atPace(15));
  expect(firstMs).toBeLessThan(atPace(FIRST_WITHIN_MS));
});

/** More would be made again and again, which takes minutes. */
const ROUNDS = 12;

test('a worker whose caches are full, and all in use, stays below 600 MB', async () => {
  const { stack, model, env, storeIndexes } = await openWithModel();
  const write = aWriter();
  const knowledge = Array.from({ length: MOST.entries }, (_, nth) =>
    anEntry({ question: `${write(6)} ${nth}?`, variants: [write(6)], answer: `${write(20)}.` }),
  );
  const all = await Promise.all([0, 1, 2].map(() => anAssistant(stack, { knowledge })));
  const assistantIds = all.map(({ assistantId }) => assistantId);
  for (const assistantId of assistantIds) await addVectors(stack, assistantId, model);
  await addMany(stack, assistantIds, MOST.passages, model);
  await storeIndexes();
  const worker = await startRealProcess('reply', env);
  onTestFinished(() => worker.kill());
  const areReady = () => Promise.all(assistantIds.map((id) => findSemanticStatus(stack.service.assistants, id)));
  await eventually(async () => expect((await areReady()).map(({ state }) => state)).toEqual(all.map(() => 'ready')));

  for (let round = 0; round < ROUNDS; round += 1) {
    const message = `what is ${write(5)}?`;
    await Promise.all(all.map(({ chat }) => chat({ session_id: randomUUID(), message, language: 'en' })));
  }

  expect(memoryMbOf(worker.pid, 'VmHWM')).toBeLessThan(600);
});
