import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { AssistantInput } from '../../src/assistants/assistant.ts';
import type { StoredAllowance } from '../../src/turns/allowances.ts';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { answering, type Behaviour, openProvider } from '../kit/provider.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 4, deliveryWorkers: 0 });
const MAX_TOKENS = 100;

const setUp = async (input: Partial<AssistantInput>) => {
  const provider = await openProvider();
  const assistant = await anAssistant(stack, { input });
  const { assistantId } = assistant;
  await stack.service.assistants.setEngine(assistantId, {
    kind: 'openai',
    baseUrl: provider.baseUrl,
    model: 'test-model',
    maxTokens: MAX_TOKENS,
  });
  const ask = (session_id: string = randomUUID()) =>
    assistant.chat({ session_id, message: 'What are your opening hours?' });
  const used = async (): Promise<number> => {
    const rows = stack.service.mongo.collection<StoredAllowance>('allowances');
    return (await rows.findOne({ target: assistantId, kind: 'tokens' }))?.used ?? 0;
  };
  return { ...assistant, provider, ask, used };
};

const whyOf = (conversationId: string): Promise<Record<string, unknown>> =>
  eventually(() => {
    const line = stack.logs.findLast((one) => one['msg'] === 'turn ended' && one['conversationId'] === conversationId);
    if (!line) throw new Error('no log line');
    return line['why'] as Record<string, unknown>;
  });

test('a call is reserved by its prompt and the most it may answer, and settled by what it cost', async () => {
  const { provider, ask, used } = await setUp({ tokensPerDay: 10_000 });
  const during: number[] = [];
  const observe = (next: Behaviour): void =>
    provider.behave(async (wire, asked) => {
      during.push(await used());
      await next(wire, asked);
    });

  observe(answering(300));
  await ask();
  await eventually(async () => expect(await used()).toBe(300));
  observe(({ response }) => response.writeHead(500).end());
  await ask();
  await eventually(async () => expect(await used()).toBe(300));
  observe(answering(null));
  await ask();

  const [first = 0, refused = 0, silent = 0] = during;
  expect(first).toBeGreaterThan(MAX_TOKENS + 200);
  expect(first).toBeLessThan(MAX_TOKENS + 800);
  // The marks around the visitor's text are random, and so are their tokens.
  for (const one of [refused, silent]) expect(Math.abs(one - first - 300)).toBeLessThan(40);
  expect(await used()).toBe(silent);
});

test('a call whose connection broke may have cost something: it counts in full, and is repeated only if it fits again', async () => {
  const breakFirst = ({ provider }: Awaited<ReturnType<typeof setUp>>) =>
    provider.behave((wire, asked) => {
      if (provider.asked.length === 1) return wire.response.socket?.destroy();
      return answering(300)(wire, asked);
    });
  const rich = await setUp({ tokensPerDay: 10_000 });
  breakFirst(rich);
  const repeated = await rich.ask();
  await eventually(async () => expect(await rich.used()).toBeGreaterThan(MAX_TOKENS + 200 + 300));

  const ofOne = (await rich.used()) - 300;
  const poor = await setUp({ tokensPerDay: Math.floor(1.5 * ofOne) });
  breakFirst(poor);
  const given = await poor.ask();

  expect([repeated.body.reply, rich.provider.asked.length]).toEqual(['From nine.', 2]);
  expect(ofOne).toBeLessThan(MAX_TOKENS + 800);
  expect([given.body.reply, poor.provider.asked.length]).toEqual(['We are open from 9 to 5.', 1]);
  // The marks around the visitor's text are random, and so are their tokens.
  expect(Math.abs((await poor.used()) - ofOne)).toBeLessThan(40);
});

test('when the tokens of a day are used up, retrieval answers or a person does, as the assistant is set', async () => {
  const { provider, ask, used, assistantId } = await setUp({ tokensPerDay: 1_000 });
  provider.behave(answering(990));
  await ask();
  await eventually(async () => expect(await used()).toBe(990));

  const byRetrieval = await ask();
  await stack.service.assistants.updateAssistant(assistantId, { ifTokensUsedUp: 'hand_over' });
  const handedOver = await eventually(async () => {
    const { body } = await ask();
    const found = await stack.service.conversations.findById(body.conversationId);
    expect(found?.status).toBe('escalated');
    return found;
  });

  expect(byRetrieval.body.reply).toBe('We are open from 9 to 5.');
  expect(await whyOf(byRetrieval.body.conversationId)).toMatchObject({ engine: 'retrieval', budget: 'used_up' });
  expect(handedOver?.escalationReason).toBe('budget_used_up');
  expect(provider.asked).toHaveLength(1);
  await stack.service.assistants.updateAssistant(assistantId, { tokensPerDay: null });
  await eventually(async () => expect((await ask()).body.reply).toBe('From nine.'));
});

test('four workers together never spend more than the budget, and what is given back is used', async () => {
  const property = async (budget: number, costs: number[]) => {
    const { provider, ask, used } = await setUp({ tokensPerDay: budget });
    let [nth, spent] = [0, 0];
    provider.behave((wire, asked) => {
      const cost = costs[nth % costs.length] ?? 0;
      nth += 1;
      if (cost === 0) return wire.response.writeHead(429).end();
      spent += cost;
      return answering(cost)(wire, asked);
    });

    for (let round = 0; round < 3; round += 1) {
      const answers = await Promise.all(Array.from({ length: 8 }, () => ask()));
      expect(answers.map(({ status }) => status)).toEqual(Array(8).fill(200));
      expect(await used()).toBeLessThanOrEqual(budget);
    }

    await eventually(async () => expect(await used()).toBe(spent));
    expect(spent).toBeLessThanOrEqual(budget);
    await provider.close();
  };
  const cost = fc.constantFrom(0, 60, 200, 350);
  const costs = fc.array(cost, { minLength: 1, maxLength: 6 });
  await fc.assert(fc.asyncProperty(fc.integer({ min: 300, max: 6_000 }), costs, property), {
    numRuns: sized({ everyday: 1, long: 4 }),
  });
});
