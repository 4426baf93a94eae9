import { afterAll, expect, test } from 'vitest';
import { anAssistant, anEntry, aTurn, type TestAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { openEmbeddingsService } from '../kit/provider.ts';
import { useStack } from '../support/stack.ts';

const service = await openEmbeddingsService();
afterAll(service.close);
const stack = useStack({
  replyWorkers: 0,
  deliveryWorkers: 0,
  env: { EMBEDDINGS_URL: service.baseUrl, EMBEDDINGS_MODEL: 'embed-small', SEMANTIC_WAIT_MS: '2000' },
});

const QUESTION = 'somewhere for my lorry';
const timesAsked = (): number => service.asked.filter(({ body }) => body.input.includes(QUESTION)).length;

const inANewWorker = async (work: () => Promise<void>): Promise<void> => {
  const worker = await stack.startReplyWorker();
  await work();
  await worker.close();
};
const ask = async ({ chat }: TestAssistant): Promise<void> => {
  expect((await chat(aTurn({ message: QUESTION, language: 'en' }))).status).toBe(200);
};
const sharedKeys = (): Promise<string[]> => stack.service.redis.keys(`${stack.env['REDIS_PREFIX']}:vector:*`);

test('a worker takes the vector of a question that another worker has made, and makes it if Redis has another one', async () => {
  const assistant = await anAssistant(stack, { knowledge: [anEntry({ question: 'Is there parking?' })] });
  await inANewWorker(async () => {
    await eventually(async () => {
      const { semantic, version } = await stack.service.assistants.getAssistant(assistant.assistantId);
      expect(semantic).toMatchObject({ version, answers: 1 });
    });
    await ask(assistant);
    await eventually(async () => expect(await sharedKeys()).not.toEqual([]));
  });
  const byTheFirst = timesAsked();
  // On a slow machine, Redis may answer too late for one of them.
  await eventually(async () => {
    const before = timesAsked();
    await inANewWorker(() => ask(assistant));
    expect(timesAsked()).toBe(before);
  });
  const byOthers = timesAsked();
  const keys = await sharedKeys();
  const kept = await Promise.all(keys.map((key) => stack.service.redis.getBuffer(key)));
  const lifetimes = await Promise.all(keys.map((key) => stack.service.redis.ttl(key)));
  for (const key of keys) await stack.service.redis.set(key, Buffer.alloc(1_568));
  await inANewWorker(() => ask(assistant));

  expect([byTheFirst, timesAsked() - byOthers]).toEqual([1, 1]);
  expect(kept.some((value) => value?.includes('lorry'))).toBe(false);
  expect(Math.max(...lifetimes)).toBeLessThanOrEqual(3_600);
  expect(Math.min(...lifetimes)).toBeGreaterThan(0);
});
