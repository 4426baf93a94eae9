import { randomUUID } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { quantised } from '@parley/understanding';
import { expect, onTestFinished, test } from 'vitest';
import { NO_COUNTS, type StoredPassage } from '../../src/sources/source.ts';
import { createStoreIndexes } from '../../src/sources/make-vectors.ts';
import { anAssistant } from '../support/builders.ts';
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

const addMany = async ({ service }: Stack, assistantId: string, count: number, model: string): Promise<void> => {
  const write = aWriter();
  const sourceId = randomUUID();
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
  const source = { _id: sourceId, assistantId, ...own, counts, vectors: { made: model, model } };
  await service.mongo.collection('sources').insertOne(source as never);
  const aPassage = (nth: number): StoredPassage => {
    const path = [write(2), write(3)];
    const text = `${write(WORDS_OF_A_PASSAGE)}.`;
    return {
      _id: `${sourceId}:${nth}`,
      assistantId,
      sourceId,
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
    await service.mongo.collection<StoredPassage>('passages').insertMany(some);
  }
  await service.assistants.raisePassages(assistantId, async () => ({ live: count, drafted: 0 }));
};

test('a worker soon has many passages, within its memory, and searches them about as fast as 500', async () => {
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
  const ofSize = async (count: number) => {
    const assistant = await anAssistant(stack, { knowledge: [] });
    await addMany(stack, assistant.assistantId, count, model);
    return assistant;
  };
  const [many, few] = [await ofSize(MANY), await ofSize(FEW)];
  const { passageVectors: vectors, passages } = stack.service;
  const draining = new AbortController().signal;
  const languageOf = async () => 'en';
  await createStoreIndexes({ vectors, passages, embedder: { model: () => model }, languageOf, draining })();
  const embeddings = { EMBEDDINGS_URL: service.baseUrl, EMBEDDINGS_MODEL: 'm', SEMANTIC: 'auto' };
  const worker = await startRealProcess('reply', { ...stack.env, ...embeddings }, { nodeArgs: SMALL_HEAP });
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
