import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import type { usageOperations } from '../../src/insights/http/usage.ts';
import { aTurn, anAssistant, type ErrorBody, request, type TestAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import type { AnswerOf } from '../kit/operations.ts';
import { useProjection } from '../support/projection.ts';
import { openProvider } from '../kit/provider.ts';
import { openReceiver } from '../kit/receiver.ts';
import { watchPool } from '../support/pool.ts';
import { useOpened, useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0 });
useProjection(stack);
const owner = useOpened(() => anOperator(stack));

type Usage = AnswerOf<typeof usageOperations.read>;

const today = (): string => new Date().toISOString().slice(0, 10);

const aUsage = async () => {
  const assistant = await anAssistant(stack);
  const read = async (query = '') =>
    (await owner.get<Usage>(`/assistants/${assistant.assistantId}/usage${query}`)).body;
  return { assistant, owner, read };
};

const say = ({ apiKey: bearer }: Pick<TestAssistant, 'apiKey'>, message: string, session_id: string = randomUUID()) =>
  request(`${stack.url}/api/v1/chat`, { bearer, body: aTurn({ session_id, message }) });

test.concurrent('turns, their ends, escalations and deliveries are counted by day and by key', async ({ expect }) => {
  const { assistant, owner, read } = await aUsage();
  const { assistantId } = assistant;
  const added = await owner.post<{ key: { keyId: string }; apiKey: string }>(`/assistants/${assistantId}/keys`, {
    name: '=Website, "old"',
  });
  const { key, apiKey } = added.body;
  await say(assistant, 'What are your opening hours?');
  await say(assistant, 'I want to talk to a human');
  for (const message of ['What are your opening hours?', 'Does the moon have a basement?'])
    await say({ apiKey }, message);

  const used = await eventually(async () => {
    const found = await read();
    expect(found.totals.turns).toBe(4);
    return found;
  });

  expect(used.totals).toMatchObject({ answered: 2, notAnswered: 1, other: 1, escalated: 1, promptTokens: 0 });
  expect(used.to).toBe(today());
  expect(used.days.at(-1)).toMatchObject({ day: today(), turns: 4 });
  expect(used.keys).toHaveLength(2);
  const own = used.keys.find(({ keyId }) => keyId === key.keyId);
  expect(own).toMatchObject({ name: '=Website, "old"', turns: 2, answered: 1, notAnswered: 1 });
  const file = await fetch(`${stack.url}/operator/v1/assistants/${assistantId}/usage.csv`, {
    headers: { Cookie: owner.cookie() ?? '' },
  });
  expect(file.headers.get('Content-Type')).toContain('text/csv');
  const lines = (await file.text()).split('\r\n');
  expect(lines[0]).toBe(
    'day,key_id,key,turns,answered,hedged,offered,not_answered,other,held,provider_replies,prompt_tokens,completion_tokens',
  );
  expect(lines).toContain(`${today()},${key.keyId},"'=Website, ""old""",2,1,0,0,1,0,0,0,0,0`);
});

test.concurrent('the tokens that a provider reports are counted for the key', async ({ expect }) => {
  const { assistant, read } = await aUsage();
  const provider = await openProvider();
  const settings = { kind: 'openai' as const, baseUrl: provider.baseUrl, model: 'test-model', apiKey: 'sk-secret' };
  await stack.service.assistants.setEngine(assistant.assistantId, settings);

  for (const message of ['What are your opening hours?', 'And on Sunday?']) await say(assistant, message);

  const tokens = { providerReplies: 2, promptTokens: 240, completionTokens: 14 };
  await eventually(async () => expect(await read()).toMatchObject({ totals: tokens, keys: [{ turns: 2, ...tokens }] }));
});

test('usage that is counted again from the stored messages is the same', async () => {
  const { assistant, read } = await aUsage();
  const session = randomUUID();
  for (const message of [
    'What are your opening hours?',
    'Hello!',
    'Does the moon have a basement?',
    'A human, please',
    'Anybody?',
  ])
    await say(assistant, message, session);
  const before = await eventually(async () => {
    const found = await read();
    expect(found.totals).toMatchObject({ turns: 5, held: 1 });
    return found;
  });
  const { mongo } = stack.service;
  const { assistantId } = assistant;

  for (const name of ['usage', 'figures', 'search']) await mongo.collection(name).deleteMany({ assistantId });
  await mongo.collection('projection').deleteMany({});

  await eventually(async () => expect(await read()).toEqual(before));
});

test.concurrent('limits show what is used of quotas and budget, and are set by owners only', async ({ expect }) => {
  const { assistant, owner, read: readUsage } = await aUsage();
  const { assistantId, keyId } = assistant;
  const [one, key] = [`/assistants/${assistantId}`, `/keys/${keyId}`];
  await say(assistant, 'What are your opening hours?');
  const before = (await owner.get(`${one}/limits`)).body;
  // A quota begins with the counted usage, which is not read again for ten seconds.
  await eventually(async () => expect((await readUsage()).totals.turns).toBe(1));
  await owner.call('PATCH', one, { turnsPerMonth: 10, tokensPerDay: 5_000, sessionLimitPerMinute: 5 });
  await owner.call('PATCH', key, { turnsPerMonth: 7 });

  const { body } = await eventually(async () => {
    const read = await owner.get<AnswerOf<typeof usageOperations.limits>>(`${one}/limits`);
    expect(read.body.turns?.used).toBe(1);
    return read;
  });

  expect(before).toEqual({ turns: null, tokens: null, keys: [] });
  const month = expect.stringMatching(/-01T00:00:00\.000Z$/);
  expect(body).toMatchObject({
    turns: { limit: 10, used: 1, until: month },
    tokens: { limit: 5_000, used: 0 },
    keys: [{ keyId, name: 'test', limit: 7, used: 1, until: month }],
  });
  const wrong: [string, object, string][] = [
    [one, { sessionLimitPerMinute: 0 }, 'sessionLimitPerMinute'],
    [one, { turnsPerMonth: 1.5 }, 'turnsPerMonth'],
    [one, { tokensPerDay: -1 }, 'tokensPerDay'],
    [one, { ifTokensUsedUp: 'shrug' }, 'ifTokensUsedUp'],
    [key, { turnsPerMonth: 0 }, 'turnsPerMonth'],
  ];
  for (const [path, change, field] of wrong) {
    const refused = await owner.call<ErrorBody>('PATCH', path, change);
    expect([refused.status, refused.body.error.field]).toEqual([422, field]);
  }
  const { lines } = (await owner.get<{ lines: { action: string; details: object }[] }>(`/audit?target=${keyId}`)).body;
  expect(lines[0]).toMatchObject({ action: 'key.update', details: { turnsPerMonth: 7 } });
  const agent = await anOperator(stack, 'agent');
  expect((await agent.get(`${one}/limits`)).status).toBe(403);
  expect((await agent.call('PATCH', one, { turnsPerMonth: 1 })).status).toBe(403);
});

test('a range must be in order and at most 92 days long', async () => {
  const { owner, assistant, read } = await aUsage();
  const path = `/assistants/${assistant.assistantId}/usage`;

  for (const query of [
    '?from=2026-05-02&to=2026-05-01',
    '?from=2026-01-01&to=2026-06-01',
    '?from=May',
    '?to=2026-02-30',
  ])
    expect((await owner.get(`${path}${query}`)).status, query).toBe(422);
  const { from, to, days } = await read('?from=2026-02-01&to=2026-03-01');
  expect({ from, to, days: days.length }).toEqual({ from: '2026-02-01', to: '2026-03-01', days: 29 });
});

test.each(['usage?from=2026-01-01&to=2026-03-01', 'overview?days=30'])(
  'what %s reads of an assistant is read one after the other',
  async (path) => {
    const { assistantId, apiKey } = await anAssistant(stack);
    const [receiver, other] = [await openReceiver(), await openReceiver()];
    for (const { url } of [receiver, other]) await stack.service.endpoints.addEndpoint(assistantId, { url });
    await say({ apiKey }, 'What are your opening hours?');
    for (const { waitFor } of [receiver, other]) await waitFor(({ length }) => length > 0);
    const stop = watchPool(stack.service.aside.mongo);

    const { status } = await owner.get(`/assistants/${assistantId}/${path}`);

    expect([status, stop()]).toEqual([200, 1]);
  },
);
