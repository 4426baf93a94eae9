import { expect, onTestFinished, test } from 'vitest';
import type { Evaluations } from '../../src/evaluation/evaluations.ts';
import { openEvaluator } from '../../src/evaluation/evaluator.ts';
import { createLifecycle } from '../../src/platform/process/lifecycle.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { anAssistant } from '../support/builders.ts';
import { anEmbedder } from '../support/embedder.ts';
import { askedOf } from '../support/evaluate.ts';
import { eventually } from '../support/eventually.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });

const RENEW_MS = 20;
const NOTICED_WITHIN_MS = 10_000;
const QUESTIONS = ['First?', 'Second?'];

/** A worker that is asked the first question of an evaluation, and answers it when `go` is called. */
const aQuestionInFlight = async () => {
  const { assistants, evaluations, mongo } = stack.service;
  const { assistantId } = await anAssistant(stack);
  const run = await evaluations.create({
    assistantId,
    set: null,
    questions: QUESTIONS.map((question) => askedOf(question)),
  });
  const go = Promise.withResolvers<void>();
  const reached = Promise.withResolvers<void>();
  const givenBack = Promise.withResolvers<void>();
  const questions: string[] = [];
  let isLost = false;
  const observed: Evaluations = {
    ...evaluations,
    renew: async (held) => {
      const isHeld = await evaluations.renew(held);
      isLost ||= !isHeld;
      return isHeld;
    },
    release: async (held) => {
      await evaluations.release(held);
      givenBack.resolve();
    },
  };
  const logger = createLogger({ name: 'test', level: 'silent' });
  const lifecycle = createLifecycle(logger, { deadlineMs: 10_000 });
  onTestFinished(async () => {
    go.resolve();
    await lifecycle.close();
  });
  openEvaluator({
    evaluations: observed,
    versions: assistants.versions,
    askEngine: {
      openDraft: async () => null,
      tryOut: async (_assistantId, { message }) => {
        questions.push(message);
        reached.resolve();
        await go.promise;
        const reply = { text: message, suggestedActions: [], confidence: 1, low: false, language: 'en', why: {} };
        return { reply, entries: [] };
      },
    },
    embedder: anEmbedder(),
    lifecycle,
    logger,
    renewMs: RENEW_MS,
  });
  await reached.promise;
  const stored = mongo.collection<{ _id: string; lease: { token: string; until: Date } }>('evaluations');
  const _id = run.evaluationId;
  return {
    run,
    questions,
    /** Lets the worker notice that the lease is lost, answer the question, and end its turn. */
    goOnWithoutLease: async () => {
      await eventually(() => expect(isLost).toBe(true), NOTICED_WITHIN_MS);
      go.resolve();
      await givenBack.promise;
    },
    go: go.resolve,
    leasedUntil: async () => (await stored.findOne({ _id }))!.lease.until.getTime(),
    takeOver: () => stored.updateOne({ _id }, { $set: { 'lease.token': 'another' } }),
  };
};

test('the lease of an evaluation is renewed while a question is asked, however long that takes', async () => {
  const { run, go, leasedUntil } = await aQuestionInFlight();
  const first = await leasedUntil();

  await eventually(async () => expect(await leasedUntil()).toBeGreaterThan(first), NOTICED_WITHIN_MS);
  go();

  const { evaluations } = stack.service;
  await eventually(async () => expect(await evaluations.get(run)).toMatchObject({ state: 'done', done: 2 }));
});

test('a worker that loses the lease of an evaluation asks no further question and stores nothing', async () => {
  const { run, questions, goOnWithoutLease, takeOver } = await aQuestionInFlight();

  await takeOver();
  await goOnWithoutLease();

  expect(questions).toEqual(['First?']);
  expect(await stack.service.evaluations.get(run)).toMatchObject({ state: 'running', done: 0 });
});

test('an evaluation that is stopped while a question is asked asks no further one', async () => {
  const { run, questions, goOnWithoutLease } = await aQuestionInFlight();

  await stack.service.evaluations.stop(run);
  await goOnWithoutLease();

  expect(questions).toEqual(['First?']);
});
