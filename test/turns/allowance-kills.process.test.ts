import fc from 'fast-check';
import { expect, onTestFinished, test } from 'vitest';
import type { StoredAllowance } from '../../src/turns/allowances.ts';
import { anAssistant, aTurn } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { problemOf } from '../support/problem.ts';
import { type RealProcess, startRealProcess } from '../kit/processes.ts';
import { answering, openProvider } from '../kit/provider.ts';
import { QUICK } from '../support/quick.ts';
import { isLong, sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const WORKERS = 4;
const MAX_TOKENS = 100;
/** More than any call of this test reserves: its prompt and `MAX_TOKENS`. */
const RESERVED_MAX = MAX_TOKENS + 800;

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0, timing: QUICK });

/** A provider that answers the calls that it holds when it is told to. Each costs the next of `costs`. */
const aHoldingProvider = async (costs: number[]) => {
  const provider = await openProvider();
  onTestFinished(provider.close);
  const calls = { held: 0, cut: 0, spent: 0 };
  let gate = Promise.withResolvers<void>();
  provider.behave(async (wire, asked) => {
    const cost = costs[provider.asked.length % costs.length] ?? 0;
    calls.spent += cost; // a provider counts a call also if nobody is there to read the answer
    calls.held += 1;
    wire.response.once('close', () => {
      calls.held -= 1;
      if (!wire.response.writableEnded) calls.cut += 1;
    });
    await gate.promise;
    await answering(cost)(wire, asked);
  });
  const hold = (): (() => void) => {
    gate = Promise.withResolvers<void>();
    return gate.resolve;
  };
  return { baseUrl: provider.baseUrl, calls, hold };
};

const setUp = async ({ budget, quota, costs }: { budget: number; quota: number; costs: number[] }) => {
  const provider = await aHoldingProvider(costs);
  const input = { tokensPerDay: budget, turnsPerMonth: quota };
  const { assistantId, chat, history } = await anAssistant(stack, { input });
  const { baseUrl } = provider;
  const engine = { kind: 'openai' as const, baseUrl, model: 'test-model', maxTokens: MAX_TOKENS };
  await stack.service.assistants.setEngine(assistantId, engine);
  const [conversations, allowances] = ['conversations', 'allowances'].map((one) => stack.service.mongo.collection(one));
  return {
    provider,
    history,
    /** Sends turns at once, each in a conversation of its own. Returns the conversations of those that were accepted. */
    send: async (turns: number): Promise<string[]> => {
      const headers = { Prefer: 'respond-async' };
      const answers = await Promise.all(Array.from({ length: turns }, () => chat(aTurn(), { headers })));
      const refused = answers.filter(({ status }) => status !== 202);
      expect(refused.map(problemOf)).toEqual(refused.map(() => '429 quota_exceeded'));
      return answers.flatMap(({ status, body }) => (status === 202 ? [body.conversationId] : []));
    },
    countStored: async () => conversations?.countDocuments({ assistantId }),
    countPending: async () => conversations?.countDocuments({ assistantId, 'waiting.0': { $exists: true } }),
    used: async (kind: StoredAllowance['kind']): Promise<number> =>
      Number((await allowances?.findOne({ target: assistantId, kind }))?.['used'] ?? 0),
  };
};

const start = (): Promise<RealProcess> => startRealProcess('quickReply', stack.env);

test('neither the tokens of a day nor the turns of a month are exceeded while reply workers are killed', async () => {
  const workers = await Promise.all(Array.from({ length: sized({ everyday: 1, long: WORKERS }) }, start));
  onTestFinished(async () => void (await Promise.all(workers.map((one) => one.kill()))));
  let cut = 0;

  type Round = { turns: number; victim: number };
  const property = async (budget: number, quota: number, costs: number[], rounds: Round[]) => {
    const { provider, send, countStored, countPending, used, history } = await setUp({ budget, quota, costs });
    const { calls, hold } = provider;
    const accepted: string[] = [];
    for (const { turns, victim } of rounds) {
      const release = hold();
      accepted.push(...(await send(turns)));
      // Then the provider has seen each call that a worker has reserved tokens for.
      await eventually(async () => expect(calls.held).toBe(await countPending()));
      await workers[victim % workers.length]?.kill();
      // An answer that is written before the provider sees that nobody is there would not count as cut.
      await eventually(() => expect(workers.length === 1 ? calls.held : 0).toBe(0));
      release();
      // Every day the others are in this process, because four processes take seconds to start.
      if (isLong) workers[victim] = await start();
      else await Promise.all(Array.from({ length: WORKERS - 1 }, () => stack.startReplyWorker()));
      await eventually(async () => expect(await countPending()).toBe(0));
      expect(calls.spent).toBeLessThanOrEqual(budget);
    }
    accepted.push(...(await send(quota)));
    await eventually(async () => expect(await countPending()).toBe(0));

    cut += calls.cut;
    expect(calls.spent).toBeLessThanOrEqual(budget);
    // What a killed worker has reserved stays used; everything else is given back.
    await eventually(async () =>
      expect(await used('tokens')).toBeLessThanOrEqual(calls.spent + calls.cut * RESERVED_MAX),
    );
    expect(await used('tokens')).toBeGreaterThanOrEqual(calls.spent);
    expect(await used('tokens')).toBeLessThanOrEqual(budget);
    expect([accepted.length, await used('assistant'), await countStored()]).toEqual([quota, quota, quota]);
    for (const conversationId of accepted) {
      const { messages } = (await history(conversationId)).body;
      expect(messages.map(({ role }) => role)).toEqual(['user', 'assistant']);
    }
  };
  const round = fc.record({ turns: fc.integer({ min: 1, max: 6 }), victim: fc.nat(WORKERS - 1) });
  await fc.assert(
    fc.asyncProperty(
      // So the turns of any quota cost more than any budget allows.
      fc.integer({ min: 1_000, max: 2_300 }),
      fc.integer({ min: 12, max: 30 }),
      fc.array(fc.constantFrom(200, 250, 300), { minLength: 1, maxLength: 6 }),
      fc.array(round, sized({ everyday: { minLength: 1, maxLength: 1 }, long: { minLength: 2, maxLength: 6 } })),
      property,
    ),
    { numRuns: sized({ everyday: 1, long: 10 }), endOnFailure: true },
  );

  expect(cut).toBeGreaterThan(0);
});
