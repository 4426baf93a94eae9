import { randomUUID } from 'node:crypto';
import { beforeAll, expect, test } from 'vitest';
import { createVault } from '../../src/platform/process/vault.ts';
import { readConfig } from '../../src/platform/process/config.ts';
import { inChunks } from '../../src/platform/mongo/batches.ts';
import { anAssistant, anEntry, aTurn } from '../support/builders.ts';
import { anOperator, openOperatorClient, type OperatorClient } from '../support/operator-client.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const RUNS = sized({ everyday: 2, long: 30 });
const AT_ONCE = 10;

const stack = useStack({ apis: 2, deliveryWorkers: 0 });
let here: OperatorClient;
let there: OperatorClient;

beforeAll(async () => {
  here = await anOperator(stack);
  there = openOperatorClient(stack.urls[1] ?? '');
  there.setCookie(here.cookie());
});

const range = (count: number) => Array.from({ length: count }, (_, index) => index);
/** Some runs at once. All of them at once would be refused by a service on a slow machine. */
const runs = async <Result>(run: (index: number) => Promise<Result>): Promise<Result[]> => {
  const results: Result[] = [];
  for (const some of inChunks(range(RUNS), AT_ONCE)) results.push(...(await Promise.all(some.map(run))));
  return results;
};
const newAssistant = async (): Promise<string> =>
  (await stack.service.assistants.createAssistant({ name: 'Raced' })).assistantId;

type Entries = { entries: { question: string }[] };
const questionsOf = async (assistantId: string): Promise<string[]> =>
  (await here.get<Entries>(`/assistants/${assistantId}/knowledge`)).body.entries.map(({ question }) => question);

test('a provider’s key set at the same time as another engine setting is kept, and no key goes to another address', async () => {
  const vault = createVault({ keys: readConfig(stack.env).ENCRYPTION_KEY });
  const provider = { kind: 'openai', baseUrl: 'https://127.0.0.1:9001/v1', model: 'm' };
  const left = await runs(async () => {
    const assistantId = await newAssistant();
    const path = `/assistants/${assistantId}/engine`;
    await here.call('PUT', path, { ...provider, apiKey: 'old-key' });
    await Promise.all([
      here.call('PUT', path, { ...provider, apiKey: 'new-key' }),
      there.call('PUT', path, { ...provider, model: 'm2' }),
    ]);
    const { engine } = await stack.service.assistants.getAssistant(assistantId);
    if (engine.kind !== 'openai' || engine.apiKeySealed === null) return 'no key';
    return vault.open(engine.apiKeySealed, assistantId);
  });
  const moved = await runs(async () => {
    const assistantId = await newAssistant();
    const path = `/assistants/${assistantId}/engine`;
    await here.call('PUT', path, { ...provider, apiKey: 'old-key' });
    await Promise.all([
      here.call('PUT', path, { ...provider, baseUrl: 'https://127.0.0.1:9002/v1' }),
      there.call('PUT', path, { ...provider, baseUrl: 'https://127.0.0.1:9003/v1' }),
    ]);
    const { engine } = await stack.service.assistants.getAssistant(assistantId);
    return engine.kind === 'openai' && engine.apiKeySealed;
  });

  expect(new Set(left)).toEqual(new Set(['new-key']));
  expect(new Set(moved)).toEqual(new Set([null]));
});

test('concurrent imports each keep their rows together and in order', async () => {
  const left = await runs(async () => {
    const assistantId = await newAssistant();
    const path = `/assistants/${assistantId}/knowledge`;
    const file = (name: string) =>
      `question,answer\n${range(5)
        .map((row) => `${name}${row},x\n`)
        .join('')}`;
    await Promise.all([
      here.post(`${path}-import`, { format: 'csv', text: file('a') }),
      there.post(`${path}-import`, { format: 'csv', text: file('b') }),
      here.post(path, anEntry({ question: 'c0' })),
    ]);
    return questionsOf(assistantId);
  });

  for (const questions of left) {
    expect(questions).toHaveLength(11);
    expect(questions.join(' ')).toContain('a0 a1 a2 a3 a4');
    expect(questions.join(' ')).toContain('b0 b1 b2 b3 b4');
  }
});

test('of two concurrent imports that replace the knowledge, exactly one stays, complete', async () => {
  const left = await runs(async () => {
    const { assistantId } = await anAssistant(stack);
    const path = `/assistants/${assistantId}/knowledge-import`;
    const file = (name: string) => ({
      format: 'csv',
      replace: true,
      text: `question,answer\n${name}1,x\n${name}2,x\n`,
    });
    await Promise.all([here.post(path, file('a')), there.post(path, file('b'))]);
    const stored = await stack.service.mongo.collection('knowledge').countDocuments({ assistantId });
    return `${(await questionsOf(assistantId)).join(' ')}, ${stored} stored`;
  });

  expect(left.filter((one) => !['a1 a2, 2 stored', 'b1 b2, 2 stored'].includes(one))).toEqual([]);
});

test('while knowledge is replaced, no reader finds it empty', async () => {
  const { assistantId } = await anAssistant(stack);
  const path = `/assistants/${assistantId}/knowledge-import`;
  const file = (name: string) => ({ format: 'csv', replace: true, text: `question,answer\n${name}1,x\n${name}2,x\n` });
  await here.post(path, file('f'));

  const seen = new Set<string>();
  for (const name of sized({ everyday: ['d', 'e'], long: ['a', 'b', 'c', 'd', 'e'] })) {
    let ended = false;
    const replaced = there.post(path, file(name)).finally(() => {
      ended = true;
    });
    while (!ended) seen.add((await questionsOf(assistantId)).join(' '));
    await replaced;
  }

  expect([...seen].filter((one) => one === '')).toEqual([]);
  expect(await questionsOf(assistantId)).toEqual(['e1', 'e2']);
});

test('concurrent changes of an assistant, a key and an endpoint are all kept', async () => {
  const left = await runs(async (index) => {
    const { assistantId, keyId } = await anAssistant(stack);
    const { endpoint } = await stack.service.endpoints.addEndpoint(assistantId, { url: 'http://127.0.0.1:9999/a' });
    const [assistant, key, hook] = [
      `/assistants/${assistantId}`,
      `/keys/${keyId}`,
      `/endpoints/${endpoint.endpointId}`,
    ];
    await Promise.all([
      here.call('PATCH', assistant, { holdingText: 'One moment.' }),
      there.call('PATCH', assistant, { dedupeWindowSeconds: index }),
      here.call('PATCH', key, { name: 'renamed' }),
      there.call('PATCH', key, { limitPerMinute: 7 }),
      here.call('PATCH', hook, { enabled: false }),
      there.call('PATCH', hook, { events: ['message.received'] }),
    ]);
    const { body } = await here.get(assistant);
    const { body: keys } = await here.get<{ keys: object[] }>(`${assistant}/keys`);
    const { body: after } = await here.get(hook);
    return { body, key: keys.keys[0], after, index };
  });

  for (const { body, key, after, index } of left) {
    expect(body).toMatchObject({ holdingText: 'One moment.', dedupeWindowSeconds: index });
    expect(key).toMatchObject({ name: 'renamed', limitPerMinute: 7 });
    expect(after).toMatchObject({ enabled: false, events: ['message.received'] });
  }
});

test('many tags added to one conversation at once are all kept, and each has one event', async () => {
  const { chat, history, assistantId } = await anAssistant(stack);
  await stack.service.endpoints.addEndpoint(assistantId, { url: 'http://127.0.0.1:9999/a', events: ['tag.added'] });
  const { body } = await chat(aTurn());
  const tags = range(sized({ everyday: 8, long: 50 })).map((index) => `tag-${index}`);

  const answers = await Promise.all(
    tags.map((tag, index) =>
      (index % 2 === 0 ? here : there).post(`/conversations/${body.conversationId}/tags`, { tag, color: null }),
    ),
  );
  const after = await history(body.conversationId);

  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
  expect(after.body.tags.map(({ tag }) => tag).toSorted()).toEqual(tags.toSorted());
});

test('an endpoint removed by two requests at once is removed by one, and the limit of ten is never exceeded', async () => {
  const { assistantId } = await anAssistant(stack);
  const path = `/assistants/${assistantId}/endpoints`;
  type Made = { endpoint?: { endpointId: string } };

  const made = await Promise.all(
    range(15).map((index) =>
      (index % 2 === 0 ? here : there).post<Made>(path, { url: `http://127.0.0.1:9999/${randomUUID()}` }),
    ),
  );
  const ids = made.flatMap(({ body: { endpoint } }) => endpoint?.endpointId ?? []);
  const removed = await Promise.all(
    ids.map(async (id) => {
      const both = await Promise.all([here, there].map((one) => one.call('DELETE', `/endpoints/${id}`)));
      return both.map(({ status }) => status).toSorted();
    }),
  );

  expect(ids).toHaveLength(10);
  expect(removed).toEqual(ids.map(() => [204, 404]));
});
