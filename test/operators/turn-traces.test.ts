import { expect, test } from 'vitest';
import { anAssistant, aTurn, request } from '../support/builders.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0 });
const TRACES = 40;

/** A program that reads the trace of a turn of its assistant. The turn's job is looked for among all jobs. */
const aProgram = async () => {
  const assistant = await anAssistant(stack, { knowledge: [] });
  const { assistantId } = assistant;
  await assistant.chat(aTurn());
  const stored = await stack.service.mongo.collection('conversations').findOne({ assistantId });
  const made = { name: 'a program', scope: 'read' as const, assistantIds: [assistantId], createdBy: null };
  const { secret: bearer } = await stack.service.tokens.createToken(made);
  return async () => (await request(`${stack.url}/operator/v1/turns/${stored?.recent[0].turnId}`, { bearer })).status;
};

test('a program that reads many traces at once takes turns with others', async () => {
  const [many, one] = [await aProgram(), await aProgram()];
  let answered = 0;
  const traces = Array.from({ length: TRACES }, async () => {
    const status = await many();
    answered += 1;
    return status;
  });
  await Promise.race(traces);

  expect(await one()).toBe(200);

  expect(answered).toBeLessThan(TRACES / 2);
  expect([...new Set(await Promise.all(traces))]).toEqual([200]);
});
