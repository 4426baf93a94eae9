import { expect, onTestFinished, test } from 'vitest';
import { startRealProcess } from '../kit/processes.ts';
import { anEntry } from '../support/builders.ts';
import { anEmbedder } from '../support/embedder.ts';
import { eventually } from '../support/eventually.ts';
import { anAssistantWithVectors, someEntries } from '../support/assistant-with-vectors.ts';
import { sized } from '../support/size.ts';
import { openStack, type Stack, useStack } from '../support/stack.ts';

/** Longer than a lease lasts, and longer than a killed worker stays registered. */
const LEASES_MS = 25_000;

/** Workers look for outdated vectors more often than in production. */
const timing = { sweepEveryMs: 300 };

const shared = useStack({ replyWorkers: 0, deliveryWorkers: 0, timing });

/** A stack whose workers are closed after the test. */
const withStack = async (run: (stack: Stack) => Promise<void>, stack: Stack = shared): Promise<void> => {
  const startReplyWorker: Stack['startReplyWorker'] = async (...given) => {
    const worker = await stack.startReplyWorker(...given);
    onTestFinished(worker.close);
    return worker;
  };
  await run(Object.assign(Object.create(stack) as Stack, { startReplyWorker }));
};

/** A lease lasts ten seconds. Every day it is ended instead of waiting for its end. */
const endLease = async ({ service }: Stack, assistantId: string): Promise<void> => {
  if (sized({ everyday: false, long: true })) return;
  const lease = { 'semantic.lease.until': new Date(0) };
  const ended = await service.mongo.collection('assistants').updateOne({ _id: assistantId as never }, { $set: lease });
  expect(ended.modifiedCount).toBe(1);
};

test('two workers embed each text once, and both know all vectors', () =>
  withStack(async (stack) => {
    const embedders = [anEmbedder({ msEach: 4 }), anEmbedder({ msEach: 4 })];
    for (const embedder of embedders) await stack.startReplyWorker(undefined, embedder);

    const entries = sized({ everyday: 20, long: 80 });
    const one = await anAssistantWithVectors(stack, someEntries(entries, 'first'));
    const other = await anAssistantWithVectors(stack, someEntries(entries, 'second'));

    expect(await one.waitForVectors()).toEqual(await one.expected());
    expect(await other.waitForVectors()).toEqual(await other.expected());
    const asked = embedders.flatMap((embedder) => embedder.texts);
    expect(asked).toHaveLength(6 * entries);
    expect(new Set(asked).size).toBe(6 * entries);
  }));

test('after a worker is killed, the next one continues its work', () =>
  withStack(async (stack) => {
    const killed = await startRealProcess('quickSemantic', stack.env);
    const knower = await anAssistantWithVectors(stack, someEntries(100));
    await eventually(async () => expect((await knower.status()).done).toBeGreaterThan(10));
    await killed.kill();
    const stored = (await knower.readRows()).length;
    await endLease(stack, knower.assistantId);

    const embedder = anEmbedder();
    await stack.startReplyWorker(undefined, embedder);

    expect(await knower.waitForVectors(LEASES_MS)).toEqual(await knower.expected());
    expect(stored).toBeGreaterThan(10);
    expect(embedder.texts.filter((text) => /^Where is .*\?$/.test(text))).toHaveLength(100 - stored);
  }));

test('a worker paused for longer than its lease cannot leave the vector of an old text', () =>
  withStack(async (stack) => {
    const slow = anEmbedder();
    const held = Promise.withResolvers<void>();
    const reached = Promise.withResolvers<void>();
    slow.gate = (texts) => {
      if (!texts.includes('the old text')) return;
      reached.resolve();
      return held.promise;
    };
    await stack.startReplyWorker(undefined, slow);
    const knower = await anAssistantWithVectors(stack, [anEntry({ question: 'the old text' })]);
    await reached.promise;
    const [entry] = await knower.entries();

    await stack.startReplyWorker(undefined, anEmbedder());
    await stack.service.assistants.updateKnowledge(
      knower.assistantId,
      entry?.entryId ?? '',
      anEntry({ question: 'the new text' }),
    );
    await endLease(stack, knower.assistantId);
    expect(await knower.waitForVectors(LEASES_MS)).toEqual(await knower.expected());
    held.resolve();

    // The held worker stores its vectors, notices that its lease is lost, and marks the assistant as stale.
    await eventually(() => expect(stack.logs).toContainEqual(expect.objectContaining({ ended: 'lost' })));
    expect(await knower.waitForVectors()).toEqual(await knower.expected());
  }));

test('another model replaces all vectors once no worker uses the old model', async () => {
  // Workers with the newer model would also replace the vectors of other tests.
  const own = await openStack({ replyWorkers: 0, deliveryWorkers: 0, timing });
  onTestFinished(own.close);

  await withStack(async (stack) => {
    const old = await stack.startReplyWorker(undefined, anEmbedder());
    const knower = await anAssistantWithVectors(stack, someEntries(20));
    await knower.waitForVectors();

    const newer = anEmbedder({ model: 'trigrams-2' });
    const worker = await stack.startReplyWorker(undefined, newer);
    await stack.service.assistants.addKnowledge(knower.assistantId, someEntries(1, 'late'));
    expect(await knower.waitForVectors()).toEqual(await knower.expected());
    // The worker registers again after several sweeps, which must change nothing.
    const row = () => stack.service.mongo.collection('embedders').findOne({ model: 'trigrams-2' });
    const seen = (await row())?.seenAt as Date;
    await eventually(async () => expect((await row())?.seenAt).not.toEqual(seen));
    const whileBothRan = [...newer.texts];
    await old.close();

    await eventually(async () => expect((await knower.semantic())?.model).toBe('trigrams-2'));
    expect(await knower.waitForVectors()).toEqual(await knower.expected());
    expect((await knower.readRows()).map(({ model }) => model)).toEqual(Array.from({ length: 21 }, () => 'trigrams-2'));
    expect(whileBothRan).toEqual([]);
    expect(newer.texts).toHaveLength(63);
    const assistant = await stack.service.assistants.getAssistant(knower.assistantId);
    expect(await worker.vectorsOf(assistant)).toMatchObject({ model: 'trigrams-2' });
  }, own);
});

test('a wiped Redis loses its wake-ups and delays vectors by seconds only', () =>
  withStack(async (stack) => {
    const knower = await anAssistantWithVectors(stack, someEntries(10));
    const { redis } = stack.service;
    const jobs = await redis.keys(`*${stack.env.REDIS_PREFIX}*:knowledge:wait`);
    await redis.del(...(await redis.keys(`*${stack.env.REDIS_PREFIX}*`)));

    await stack.startReplyWorker(undefined, anEmbedder());

    expect(jobs.length).toBeGreaterThan(0);
    expect(await knower.waitForVectors(5_000)).toEqual(await knower.expected());
  }));

test('knowledge that a process without vectors changed is still found', () =>
  withStack(async (stack) => {
    const first = await stack.startReplyWorker(undefined, anEmbedder());
    const knower = await anAssistantWithVectors(stack, someEntries(2));
    await knower.waitForVectors();
    await first.close();
    const [entry] = await knower.entries();
    const { mongo, assistants } = stack.service;

    // Changes the entry as a process of an earlier release does, which may run at the same time.
    await mongo.collection('knowledge').updateOne({ _id: entry?.entryId as never }, { $set: { question: 'untold' } });
    await mongo.collection('assistants').updateOne({ _id: knower.assistantId as never }, { $inc: { version: 1 } });
    await stack.startReplyWorker(undefined, anEmbedder());

    const { version } = await assistants.getAssistant(knower.assistantId);
    await eventually(async () => expect((await knower.semantic())?.version).toBe(version));
    expect(await knower.waitForVectors()).toEqual(await knower.expected());
  }));
