import { expect, onTestFinished, test } from 'vitest';
import { openEvaluator } from '../../src/evaluation/evaluator.ts';
import { createLifecycle } from '../../src/platform/process/lifecycle.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { anAssistant } from '../support/builders.ts';
import { anEmbedder } from '../support/embedder.ts';
import { askedOf } from '../support/evaluate.ts';
import { eventually } from '../support/eventually.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });

/** How many evaluations without a provider may wait beside the others. */
const WAITING_MAX = 4;
const begin = async (tokens: number | null = null) => {
  const { assistantId } = await anAssistant(stack);
  return stack.service.evaluations.create({ assistantId, set: null, questions: [askedOf()], tokens });
};
type Run = Awaited<ReturnType<typeof begin>>;
const beginMany = (count: number): Promise<Run[]> => Promise.all(Array.from({ length: count }, () => begin()));
const stateOf = async (run: Run) => (await stack.service.evaluations.get(run)).state;
const statesOf = (runs: Run[]) => Promise.all(runs.map(stateOf));
const isDone = (run: Run) => eventually(async () => expect(await stateOf(run)).toBe('done'));

/** A worker. Its questions to the assistants of these evaluations wait for their indexes until `build` is called. */
const aWorker = (lacking: Run[]) => {
  const { assistants, evaluations } = stack.service;
  const { promise: built, resolve: build } = Promise.withResolvers<void>();
  const logger = createLogger({ name: 'test', level: 'silent' });
  const lifecycle = createLifecycle(logger, { deadlineMs: 10_000 });
  onTestFinished(async () => {
    build();
    await lifecycle.close();
  });
  openEvaluator({
    evaluations,
    versions: assistants.versions,
    askEngine: {
      openDraft: async () => null,
      tryOut: async (asks, { message }) => {
        if (lacking.some(({ assistantId }) => assistantId === asks)) await built;
        const reply = { text: message, suggestedActions: [], confidence: 1, low: false, language: 'en', why: {} };
        return { reply, entries: [] };
      },
    },
    embedder: anEmbedder(),
    lifecycle,
    logger,
    besideAfterMs: 20,
  });
  return { build };
};

test('evaluations that wait for large indexes do not hold up that of another assistant', async () => {
  const lacking = await beginMany(2);
  const neighbour = await begin();

  const { build } = aWorker(lacking);

  await isDone(neighbour);
  expect(await statesOf(lacking)).toEqual(['running', 'running']);
  build();
  for (const one of lacking) await isDone(one);
});

test('only some evaluations wait beside the others, because turns wait for the indexes of all', async () => {
  const lacking = await beginMany(WAITING_MAX + 1);
  const asksProvider = await begin(1_000);

  const { build } = aWorker(lacking);

  await isDone(asksProvider);
  expect((await statesOf(lacking)).toSorted()).toEqual([...Array(WAITING_MAX).fill('running'), 'waiting']);
  build();
  for (const one of lacking) await isDone(one);
});

const NONE_TAKEN = { noneAsking: false, noneWaiting: false };

test('of slow assistants, none is taken while as many as may wait do', async () => {
  const { evaluations } = stack.service;
  const [slow, other] = [await begin(), await begin()];
  const ofSlow = { ...NONE_TAKEN, noneWaiting: true, assistantIds: [slow.assistantId], drafts: NONE_TAKEN };
  const besides = { ...NONE_TAKEN, assistantIds: [], noDrafts: false, slow: ofSlow };

  const taken = [await evaluations.acquire('worker', besides), await evaluations.acquire('worker', besides)];

  expect(taken.map((one) => one?.evaluationId)).toEqual([other.evaluationId, undefined]);
});

test('a slow draft that asks no provider does not wait for one that asks', async () => {
  const { evaluations } = stack.service;
  const one = await begin();
  await stack.service.mongo
    .collection('evaluations')
    .updateOne({ _id: one.evaluationId } as never, { $set: { draftRevision: 1 } });
  const slowWith = (drafts: typeof NONE_TAKEN) => ({
    ...NONE_TAKEN,
    assistantIds: [],
    noDrafts: false,
    slow: { ...NONE_TAKEN, assistantIds: [one.assistantId], drafts },
  });

  const beside = await evaluations.acquire('worker', slowWith({ noneAsking: false, noneWaiting: true }));
  const taken = await evaluations.acquire('worker', slowWith({ noneAsking: true, noneWaiting: false }));

  expect(beside?.evaluationId).not.toBe(one.evaluationId);
  expect(taken?.evaluationId).toBe(one.evaluationId);
});
