import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test, type TestContext } from 'vitest';
import type { AssistantInput } from '../../src/assistants/assistant.ts';
import { placeOf } from '../../src/turns/allowances.ts';
import { runAdmin, useAdmin } from '../support/admin.ts';
import { anAssistant, anEntry, aTurn } from '../support/builders.ts';
import { anEmbedder } from '../support/embedder.ts';
import { evaluateWith } from '../support/evaluate.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { useProjection } from '../support/projection.ts';
import { openProvider, type Provider, replyWith } from '../kit/provider.ts';
import { sized } from '../support/size.ts';
import { useOpened, useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0, embedder: () => anEmbedder() });
useProjection(stack, anEmbedder());
const owner = useOpened(() => anOperator(stack));

const env = useAdmin(stack);

let provider: Provider;
beforeAll(async () => {
  provider = await openProvider();
});
afterAll(() => provider.close());

const HOURS = anEntry({ question: 'What are your opening hours?', answer: 'We are open from 9 to 5.' });
/** The model of an assistant whose provider is slow. */
const SLOW = 'slow-1';
const SHOWS_SLOW_AFTER_MS = 2_200;
/** What a call of the fake provider uses. */
const USED = 127;

const aScene = async (input: Partial<AssistantInput> = {}, model = 'fake-1', asks = provider) => {
  asks.asked.length = 0;
  asks.behave(replyWith('Hello.'));
  const engine = { kind: 'openai', baseUrl: asks.baseUrl, model, maxTokens: 100 } as const;
  const assistant = await anAssistant(stack, { knowledge: [HOURS], input });
  const own = `/assistants/${assistant.assistantId}`;
  expect((await owner.call('PUT', `${own}/engine`, engine)).status).toBe(200);
  const aSet = async (...expected: object[]): Promise<string> => {
    const { setId } = (await owner.post<{ setId: string }>(`${own}/question-sets`, { name: 'Release' })).body;
    for (const [nth, one] of expected.entries()) {
      const added = { question: `What about ${nth}?`, expected: one };
      expect((await owner.post(`${own}/question-sets/${setId}/cases`, added)).status).toBe(201);
    }
    return setId;
  };
  const evaluate = evaluateWith(owner, own);
  return { ...assistant, owner, own, aSet, evaluate };
};

const OPEN = { kind: 'text', text: 'from 9 to 5' };
const ENTRY = { kind: 'entry', entry: HOURS.question };

test('a draft is compared through the provider; of two texts that it wrote, those with other facts come first', async () => {
  const { assistantId, owner, own, aSet, evaluate } = await aScene({ drafts: true, instructions: 'Be formal.' });
  expect((await owner.post(`${own}/draft/publish`, {})).status).toBe(200);
  const setId = await aSet(OPEN, ENTRY, ENTRY);
  await owner.call('PATCH', own, { instructions: 'Be friendly.' });
  provider.behave((wire, one) => {
    const prompt = JSON.stringify(one.body.messages);
    const late = 'Hi! We are open from 9 to 6, says Grace.';
    const friendly = prompt.includes('What about 1?') ? late : 'Hi! We are open from 9 to 5.';
    return replyWith(prompt.includes('Be friendly.') ? friendly : 'We are open from 9 to 5, dear guest.')(wire, one);
  });

  const { results, provider: budget, counts, judged } = await evaluate({ setId, against: 'draft', tokens: 100_000 });

  expect(provider.asked).toHaveLength(6);
  expect(budget).toEqual({ tokens: 100_000, used: 6 * USED, isUsedUp: false });
  expect([counts, judged]).toMatchObject([{ other: 3 }, { right: 2, wrong: 0 }]);
  expect(results).toMatchObject([
    {
      question: 'What about 1?',
      judged: null,
      difference: { before: ['5'], now: ['6', 'grace'], meaning: expect.any(Number) },
      live: { judged: null, reply: 'We are open from 9 to 5, dear guest.', why: { engine: 'openai' } },
    },
    { difference: { before: [], now: [] } },
    { difference: { before: [], now: [] } },
  ]);
  expect(await stack.service.mongo.collection('conversations').countDocuments({ assistantId })).toBe(0);
  expect((await owner.get<{ tokensPerReply: number | null }>(`${own}/evaluations`)).body.tokensPerReply).toBeNull();
});

test('an evaluation never uses more tokens than it may, and says that they are used up', async () => {
  const { aSet, evaluate } = await aScene();
  const setId = await aSet(OPEN, OPEN, OPEN, OPEN);
  const first = await evaluate({ setId, tokens: 2_000 });
  expect(first).toMatchObject({ done: 4, provider: { used: 4 * USED, isUsedUp: false } });

  const stopped = await evaluate({ setId, tokens: 400 }, 'stopped');

  const { tokens = 0, used = 0, isUsedUp } = stopped.provider ?? {};
  expect([isUsedUp, stopped.results.length]).toEqual([true, stopped.done]);
  expect([1, 2, 3]).toContain(stopped.done);
  expect(used).toBe(stopped.done * USED);
  expect(used).toBeLessThanOrEqual(tokens);
  expect(provider.asked).toHaveLength(4 + stopped.done);
});

test('what an evaluation uses counts in the budget of the day, which ends it', async () => {
  const { assistantId, aSet, evaluate } = await aScene({ tokensPerDay: 1_000 });
  const setId = await aSet(...Array.from({ length: 12 }, () => OPEN));

  const { provider: budget, done } = await evaluate({ setId, tokens: 1_000_000 }, 'stopped');

  expect(budget).toEqual({ tokens: 1_000_000, used: done * USED, isUsedUp: true });
  expect(done).toBeGreaterThan(0);
  const [used] = await stack.service.allowances.readUsed([
    placeOf({ kind: 'tokens', target: assistantId, assistantId }),
  ]);
  expect(used).toBe(done * USED);
});

test('a provider that fails makes no case better or worse', async () => {
  const { aSet, evaluate } = await aScene();
  const setId = await aSet(OPEN, { kind: 'none' });
  provider.behave(({ response }) => response.writeHead(500).end());

  const { counts, results, provider: budget } = await evaluate({ setId, tokens: 100_000 });

  expect(counts).toMatchObject({ other: 2, wrong: 0, right: 0 });
  expect(results).toMatchObject([{ why: { fallBack: { status: 500 } } }, { why: { fallBack: {} } }]);
  expect(budget?.isUsedUp).toBe(false);
});

test('the provider is asked only if tokens are given, and the command shows what it may cost', async () => {
  const { assistantId, chat, owner, own, aSet, evaluate } = await aScene();
  const setId = await aSet(OPEN);
  await chat(aTurn());
  await eventually(async () =>
    expect((await owner.get<{ tokensPerReply: number | null }>(`${own}/evaluations`)).body.tokensPerReply).toBe(USED),
  );
  provider.asked.length = 0;
  expect((await evaluate({ setId })).provider).toBeNull();
  expect(provider.asked).toHaveLength(0);

  const at = ['--assistant', assistantId, '--set', 'Release', '--tokens', '5000'];
  const shown = await runAdmin(env, ['evaluate', ...at, '--dry-run']);
  expect([shown.stdout, provider.asked.length]).toEqual([
    `At most 1 reply: about ${USED} tokens, as a reply used ${USED} on average in the last 30 days.\n`,
    0,
  ]);
  expect((await runAdmin(env, ['evaluate', ...at])).stdout).toContain(`${USED} of 5000`);
  expect(provider.asked).toHaveLength(1);
  const other = await anAssistant(stack);
  const refused = await owner.post(`/assistants/${other.assistantId}/evaluations`, {
    real: { limit: 1 },
    tokens: 5_000,
  });
  expect(problemOf(refused)).toBe('422 validation_failed tokens');
});

/** A provider that only this test asks. */
const aProvider = async ({ onTestFinished }: TestContext): Promise<Provider> => {
  const own = await openProvider();
  onTestFinished(own.close);
  return own;
};

// These mostly wait for their providers, so they wait together.
test.concurrent('a provider that does not answer holds up no other evaluation, and takes one place for its assistant', async (context) => {
  const { expect } = context;
  const provider = await aProvider(context);
  const [slow, asking, offline] = [
    await aScene({}, 'fake-1', provider),
    await aScene({}, 'fake-1', provider),
    await aScene({}, 'fake-1', provider),
  ];
  const answer = Promise.withResolvers<void>();
  provider.behave(async (wire, one) => {
    if (JSON.stringify(one.body.messages).includes('What about 1?')) await answer.promise;
    return replyWith('Hello.')(wire, one);
  });
  const slowly = await slow.aSet(OPEN, OPEN);
  const held = [1, 2].map(() => slow.evaluate({ setId: slowly, tokens: 100_000 }));
  await eventually(() => expect(provider.asked).toHaveLength(2));

  await offline.evaluate({ setId: await offline.aSet(OPEN, OPEN) });
  await asking.evaluate({ setId: await asking.aSet(OPEN), tokens: 100_000 });

  expect(provider.asked).toHaveLength(3);
  answer.resolve();
  expect(await Promise.all(held)).toMatchObject([{ done: 2 }, { done: 2 }]);
});

/** An assistant with a draft, whose provider has shown that it is slow. */
const aSlowScene = async (provider: Provider) => {
  const scene = await aScene({ drafts: true, instructions: 'Be formal.' }, SLOW, provider);
  const { owner, own, aSet, evaluate } = scene;
  expect((await owner.post(`${own}/draft/publish`, {})).status).toBe(200);
  await owner.call('PATCH', own, { instructions: 'Be friendly.' });
  const setId = await aSet(OPEN);
  provider.behave(async (wire, one) => {
    await pause(SHOWS_SLOW_AFTER_MS);
    return replyWith('Hello.')(wire, one);
  });
  return { ...scene, setId, showSlow: () => evaluate({ setId, tokens: 100_000 }) };
};

const OTHERS = [
  ['of drafts', 'draft', sized({ everyday: 2, long: 3 }), 1],
  ['of what is live', 'live', 10, 8],
] as const;

test.concurrent.for(sized({ everyday: OTHERS.slice(0, 1), long: [...OTHERS] }))(
  'slow providers hold up no evaluation %s of others',
  async ([, against, assistants, places], context) => {
    const { expect } = context;
    const provider = await aProvider(context);
    const slow = [];
    for (let nth = 0; nth < assistants; nth += 1) slow.push(await aSlowScene(provider));
    await Promise.all(slow.map(({ showSlow }) => showSlow()));
    const { owner, own, aSet, evaluate } = await aScene(
      { drafts: true, instructions: 'Be formal.' },
      'fake-1',
      provider,
    );
    expect((await owner.post(`${own}/draft/publish`, {})).status).toBe(200);
    await owner.call('PATCH', own, { instructions: 'Be friendly.' });
    const setId = await aSet(OPEN, OPEN);
    const answer = Promise.withResolvers<void>();
    provider.behave(async (wire, one) => {
      if (one.body.model === SLOW) await answer.promise;
      return replyWith('Hello.')(wire, one);
    });
    const held = slow.map((one) => one.evaluate({ setId: one.setId, against, tokens: 100_000 }));
    const heldCalls = () => provider.asked.filter(({ body }) => body.model === SLOW).length;
    await eventually(() => expect(heldCalls()).toBe(places));

    const others = await evaluate({ setId, against, tokens: 100_000 });

    expect([others.done, heldCalls()]).toEqual([2, places]);
    answer.resolve();
    expect(await Promise.all(held)).toMatchObject(slow.map(() => ({ done: 1 })));
  },
);
