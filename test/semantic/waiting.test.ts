import { randomUUID } from 'node:crypto';
import { openEmbedder } from '@parley/understanding';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { startVectorUpdates } from '../../src/assistants/knowledge/update-vectors.ts';
import { readConfig } from '../../src/platform/process/config.ts';
import { createLifecycle } from '../../src/platform/process/lifecycle.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { someEntries } from '../support/assistant-with-vectors.ts';
import { anAssistant, anEntry, aTurn, type TestAssistant } from '../support/builders.ts';
import { anEmbedder, vectorOf } from '../support/embedder.ts';
import { eventually } from '../support/eventually.ts';
import { projectAtOnce } from '../support/projection.ts';
import { addPassages, setSource } from '../support/sources.ts';
import { useStack } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
let stopProjecting: () => Promise<void>;
beforeAll(async () => {
  stopProjecting = await projectAtOnce(stack);
});
afterAll(() => stopProjecting());

const KNOWLEDGE = [
  anEntry({ question: 'When are you open?', answer: 'From nine to five.' }),
  anEntry({ question: 'Can I pay by card?', answer: 'By any card.' }),
  anEntry({ question: 'Is there parking?', answer: 'Behind the house.' }),
];

/** An assistant whose vectors are all made and whose worker has stopped. */
const aKnown = async (): Promise<TestAssistant> => {
  const assistant = await anAssistant(stack, { knowledge: KNOWLEDGE });
  const worker = await stack.startReplyWorker(undefined, anEmbedder());
  await eventually(async () => {
    const { semantic, version } = await stack.service.assistants.getAssistant(assistant.assistantId);
    expect(semantic).toMatchObject({ version, answers: KNOWLEDGE.length });
  });
  await worker.close();
  return assistant;
};

const waitInLine = async ({ call }: TestAssistant, messages: string[]): Promise<string> => {
  const { session_id } = aTurn();
  let conversationId = '';
  for (const message of messages) {
    const headers = { Prefer: 'respond-async' };
    const { status, body } = await call<{ conversationId: string }>('/api/v1/chat', {
      body: { session_id, message, language: 'en' },
      headers,
    });
    expect(status).toBe(202);
    conversationId = body.conversationId;
  }
  return conversationId;
};

test('a turn that is sure by its words does not wait for the model while another turn does', async () => {
  const assistant = await aKnown();
  const slow = anEmbedder();
  const gate = Promise.withResolvers<void>();
  const asked = Promise.withResolvers<void>();
  slow.gate = () => {
    asked.resolve();
    return gate.promise;
  };
  const conversationId = await waitInLine(assistant, [
    'When are you open?',
    'somewhere for my lorry',
    'Can I pay by card?',
  ]);

  const worker = await stack.startReplyWorker(undefined, slow);
  await asked.promise;
  await eventually(async () => {
    const { body } = await assistant.history(conversationId);
    expect(body.messages.map(({ content }) => content)).toContain('From nine to five.');
  });
  gate.resolve();
  await eventually(async () => {
    const { body } = await assistant.history(conversationId);
    expect(body.messages.filter(({ role }) => role === 'assistant')).toHaveLength(3);
  });

  await worker.close();
});

test('a turn waits for the model for two seconds at most, then it is answered by words', async () => {
  const assistant = await aKnown();
  const stuck = anEmbedder();
  const end = Promise.withResolvers<void>();
  stuck.gate = () => end.promise;
  const worker = await stack.startReplyWorker(undefined, stuck);

  const startedAt = performance.now();
  const { status, body } = await assistant.chat(
    aTurn({ message: 'is there any place for parking a lorry', language: 'en' }),
  );
  const ms = performance.now() - startedAt;
  end.resolve();

  expect(status).toBe(200);
  expect(ms).toBeLessThan(atPace(6_000));
  const why = stack.logs.findLast(
    ({ msg, conversationId }) => msg === 'turn ended' && conversationId === body.conversationId,
  )?.['why'];
  expect(why).toMatchObject({ by: 'words only', hits: [expect.not.objectContaining({ meaning: expect.anything() })] });
  await worker.close();
});

test('a turn for which the model had no time says so, also if words find nothing, and is counted', async () => {
  const assistant = await aKnown();
  const busy = anEmbedder();
  busy.refuse = () => true;
  const worker = await stack.startReplyWorker(undefined, busy);

  const { body } = await assistant.chat(aTurn({ message: 'somewhere for my lorry', language: 'en' }));

  const ended = stack.logs.findLast(
    ({ msg, conversationId }) => msg === 'turn ended' && conversationId === body.conversationId,
  );
  expect(ended?.['why']).toMatchObject({ kind: 'unsure', by: 'words only' });
  await eventually(async () => {
    const { assistantId } = assistant;
    const [hour] = await stack.service.insights.figures.listHours(assistantId, {
      from: new Date(Date.now() - 3_600_000),
    });
    expect(hour).toMatchObject({ turns: 1, notAnswered: 1, byWordsOnly: 1 });
  });
  await worker.close();
});

/** A model that opens when it is let, as one does that the machine is slow to load. */
const openLate = async (waitMs: number) => {
  const opens = Promise.withResolvers<void>();
  const asked = Promise.withResolvers<void>();
  const ended = Promise.withResolvers<string>();
  const limits = { texts: 8, concurrency: 1, answerMs: 2_000, pieceBytes: 8_000, pieces: { query: 1, passage: 1 } };
  const open = async (signal: AbortSignal) => {
    signal.addEventListener('abort', () => opens.reject(new Error('closed')));
    await opens.promise;
    const embed = async (texts: string[]) => texts.map(vectorOf);
    return { model: 'trigrams-1', dimensions: 384, embed, ended: ended.promise, end: ended.resolve };
  };
  const log = { info: () => undefined, warn: () => undefined };
  const embedder = await openEmbedder({ limits, open }, { log, waitMs });
  const embed: typeof embedder.embed = (...given) => {
    asked.resolve();
    return embedder.embed(...given);
  };
  return { embedder: { ...embedder, embed }, asked: asked.promise, letIt: opens.resolve };
};

const whyOf = (conversationId: string) =>
  stack.logs.findLast((line) => line['msg'] === 'turn ended' && line['conversationId'] === conversationId)?.['why'];

test('the first question of a worker waits for the model that is being opened, and is answered by meaning', async () => {
  const assistant = await aKnown();
  const late = await openLate(2_000);
  const worker = await stack.startReplyWorker(undefined, late.embedder);

  const answer = assistant.chat(aTurn({ message: 'is there any place for parking a lorry', language: 'en' }));
  await late.asked;
  late.letIt();
  const { body } = await answer;

  expect(whyOf(body.conversationId)).toMatchObject({
    by: 'both',
    hits: expect.arrayContaining([expect.objectContaining({ meaning: expect.any(Number) })]) as object[],
  });
  await worker.close();
});

test('a question is answered by words, and says so, if the model is not opened in time or not there', async () => {
  const assistant = await aKnown();
  const late = await openLate(50);
  const worker = await stack.startReplyWorker(undefined, late.embedder);
  const ask = async (message: string) =>
    whyOf((await assistant.chat(aTurn({ message, language: 'en' }))).body.conversationId);

  const tooLate = await ask('is there any place for parking a lorry');
  await worker.close();
  late.letIt();
  const broken = anEmbedder();
  broken.set({ available: false });
  const another = await stack.startReplyWorker(undefined, broken);
  const notThere = await ask('is there any place for parking a coach');

  expect([tooLate, notThere]).toMatchObject([{ by: 'words only' }, { by: 'words only' }]);
  await another.close();
});

test('a question that passages answer by their words alone says so', async () => {
  const assistant = await anAssistant(stack, { input: { threshold: 0.01 }, knowledge: [] });
  const ids = { assistantId: assistant.assistantId, sourceId: randomUUID() };
  const source = { assistantId: ids.assistantId, live: 0, removedAt: null, createdAt: new Date() };
  await stack.service.mongo.collection('sources').insertOne({ _id: ids.sourceId, ...source } as never);
  await addPassages(stack, ids, [{ text: 'A refund takes 14 working days.' }]);
  await setSource(stack, ids, { live: 1 });
  await stack.service.assistants.raisePassages(ids.assistantId, async () => ({ live: 1, drafted: 0 }));
  const busy = anEmbedder();
  busy.refuse = () => true;
  const worker = await stack.startReplyWorker(undefined, busy);

  const { body } = await assistant.chat(aTurn({ message: 'How long does a refund take?', language: 'en' }));

  expect(body.reply).toContain('14 working days');
  expect(whyOf(body.conversationId)).toMatchObject({ by: 'words only', passages: [expect.any(Object)] });
  await worker.close();
});

test('assistants whose knowledge changes all the time leave the model to one whose knowledge has changed once', async () => {
  const greedy: TestAssistant[] = [];
  for (let nth = 0; nth < 16; nth += 1) greedy.push(await anAssistant(stack, { knowledge: [] }));
  const neighbour = await anAssistant(stack, { knowledge: [] });
  const { assistants } = stack.service;
  const add = async ({ assistantId }: TestAssistant, question: string) => {
    await assistants.addKnowledge(assistantId, [anEntry({ question })]);
  };
  const held: (() => void)[] = [];
  const embedder = anEmbedder();
  embedder.gate = ([text = '']) =>
    text.startsWith('greedy') ? new Promise((resolve) => void held.push(resolve)) : undefined;
  const worker = await stack.startReplyWorker(undefined, embedder);
  for (const one of greedy) await add(one, 'greedy once');
  await eventually(() => expect(held).toHaveLength(16));

  await add(neighbour, 'When are you open?');
  for (const one of greedy) await add(one, 'greedy again');
  for (const letGo of held.splice(0)) letGo();

  await eventually(async () => {
    const { semantic } = await assistants.getAssistant(neighbour.assistantId);
    expect(semantic).toMatchObject({ answers: 1 });
  });
  embedder.gate = () => undefined;
  for (const letGo of held.splice(0)) letGo();
  await worker.close();
});

const aLifecycle = () => {
  const logger = createLogger({ name: 'test', level: 'silent' });
  const lifecycle = createLifecycle(logger, { deadlineMs: 5_000 });
  onTestFinished(lifecycle.close);
  return { logger, lifecycle };
};

test('assistants with long imports leave the model to one that has a short one', async () => {
  const { logger, lifecycle } = aLifecycle();
  const { assistants } = stack.service;
  const { vectors, semantic, embedders } = assistants;
  const large: TestAssistant[] = [];
  for (let nth = 0; nth < 16; nth += 1) large.push(await anAssistant(stack, { knowledge: someEntries(40) }));
  const neighbour = await anAssistant(stack, { knowledge: [anEntry({ question: 'When are you open?' })] });
  const embedder = anEmbedder({ msEach: 1 });
  const process = await startVectorUpdates({
    store: { vectors, semantic, embedders },
    embedder,
    timing: readConfig(stack.env).timing,
    logger,
    lifecycle,
    passMs: 0,
  });

  for (const { assistantId } of [...large, neighbour]) await process({ assistantId });

  await eventually(() => expect(embedder.texts).toContain('When are you open?'));
  const ofLarge = 16 * 40 * 3;
  expect(embedder.texts.indexOf('When are you open?')).toBeLessThan(ofLarge / 2);
});

test('an entry with many texts leaves the model to others after each call, and loses nothing of what was made', async () => {
  const { logger, lifecycle } = aLifecycle();
  const { assistants } = stack.service;
  const { vectors, semantic, embedders } = assistants;
  const large: TestAssistant[] = [];
  for (let nth = 0; nth < 16; nth += 1) {
    const variants = Array.from({ length: 49 }, (_, of) => `large ${nth}, variant ${of}`);
    large.push(await anAssistant(stack, { knowledge: [anEntry({ question: `large ${nth}`, variants })] }));
  }
  const neighbour = await anAssistant(stack, { knowledge: [anEntry({ question: 'When are you open?' })] });
  const embedder = anEmbedder({ msEach: 1 });
  const process = await startVectorUpdates({
    store: { vectors, semantic, embedders },
    embedder,
    timing: readConfig(stack.env).timing,
    logger,
    lifecycle,
    passMs: 0,
  });

  for (const { assistantId } of [...large, neighbour]) await process({ assistantId });
  const areMade = async () => {
    for (const { assistantId } of large)
      expect((await assistants.getAssistant(assistantId)).semantic).toMatchObject({ answers: 1 });
  };
  await eventually(areMade);

  const ofLarge = embedder.texts.filter((text) => text.startsWith('large'));
  expect(embedder.texts.indexOf('When are you open?')).toBeLessThan(ofLarge.length / 2);
  expect(ofLarge.length).toBe(new Set(ofLarge).size);
});

test('an assistant whose knowledge changes all the time rests after each plan of its vectors', async () => {
  const { logger, lifecycle } = aLifecycle();
  const { assistants } = stack.service;
  const { vectors, semantic, embedders } = assistants;
  const { assistantId } = await anAssistant(stack, { knowledge: someEntries(1_000) });
  const plans: { from: number; to: number }[] = [];
  const list: typeof vectors.list = async function* (of) {
    if (of === assistantId) plans.push({ from: performance.now(), to: Number.POSITIVE_INFINITY });
    yield* vectors.list(of);
  };
  const readTexts: typeof vectors.readTexts = async function* (of, ids) {
    yield* vectors.readTexts(of, ids);
    if (of === assistantId && !ids) plans.at(-1)!.to = performance.now();
  };
  const process = await startVectorUpdates({
    store: { vectors: { ...vectors, list, readTexts }, semantic, embedders },
    embedder: anEmbedder(),
    timing: readConfig(stack.env).timing,
    logger,
    lifecycle,
  });

  for (let nth = 0; plans.length < 5; nth += 1) {
    await assistants.addKnowledge(assistantId, [anEntry({ question: `What is number ${nth}?` })]);
    await process({ assistantId });
  }

  const RESTS_MOST_MS = 2_000;
  const rests = plans.slice(1).map(({ from: next }, nth) => {
    const { from, to } = plans[nth]!;
    return (next - to) / Math.min(RESTS_MOST_MS, to - from);
  });
  expect(Math.min(...rests)).toBeGreaterThan(0.9);
});
