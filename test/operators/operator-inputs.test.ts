import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { boundedLine } from '../../src/operators/audit.ts';
import { anAssistant, anEntry, aTurn } from '../support/builders.ts';
import { limiterOf } from '../support/limits.ts';
import { anOperator } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { sized } from '../support/size.ts';
import { useOpened, useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0 });
const owner = useOpened(() => anOperator(stack));

test.each([
  'chrome-extension://abcdefghijklmnop',
  'file://',
  'data:text/html,hello',
  'null',
  'blob:null/1',
  'about:blank',
  'not an address',
])('a change from a page of %s is refused', async (Origin) => {
  const headers = { Origin, 'Sec-Fetch-Site': 'same-origin' };
  const answers = [
    await owner.call('POST', '/assistants', { name: 'x' }, headers),
    await owner.call('POST', '/session', { email: owner.email, password: 'wrong' }, headers),
  ];

  expect(answers.map(problemOf)).toEqual(['403 forbidden', '403 forbidden']);
});

const LONE = ['\ud800', 'a\udc00', '\ude00\ud83d', 'a\0b'];

test.each(sized({ everyday: LONE.slice(-2), long: LONE }))(
  'a string that cannot be stored exactly is refused from an operator: %j',
  async (text) => {
    const { assistantId } = await anAssistant(stack, { knowledge: [] });
    const one = `/assistants/${assistantId}`;
    const entry = (overrides: object) => ({ ...anEntry(), ...overrides });

    const answers = [
      await owner.post('/assistants', { name: text }),
      await owner.call('PATCH', one, { instructions: text }),
      await owner.call('PATCH', one, { holdingText: text }),
      await owner.call('PATCH', one, { allowedLinks: ['shop.example', text] }),
      await owner.post(`${one}/knowledge`, entry({ question: text })),
      await owner.post(`${one}/knowledge`, entry({ answer: text })),
      await owner.post(`${one}/knowledge`, entry({ variants: ['Open?', text] })),
      await owner.post(`${one}/knowledge`, entry({ actions: [{ label: text, type: 'reply', payload: 'Yes' }] })),
      await owner.post(`${one}/knowledge-import`, { format: 'markdown', text: `# Open?\n\n${text}` }),
      await owner.call('PUT', `${one}/engine`, { kind: 'openai', baseUrl: 'https://x.example/v1', model: text }),
      await owner.post('/session', { email: owner.email, password: text }),
    ];

    expect(answers.map(problemOf)).toEqual([
      '422 validation_failed name',
      '422 validation_failed instructions',
      '422 validation_failed holdingText',
      '422 validation_failed allowedLinks.1',
      '422 validation_failed question',
      '422 validation_failed answer',
      '422 validation_failed variants.1',
      '422 validation_failed actions.0.label',
      '422 validation_failed text',
      '422 validation_failed model',
      '422 validation_failed password',
    ]);
    expect(await stack.service.assistants.listKnowledge(assistantId)).toEqual([]);
  },
);

test('NUL in a search is refused before the database is asked', async () => {
  const agent = await anOperator(stack);
  const { assistantId } = await anAssistant(stack);
  const one = `/assistants/${assistantId}`;

  const answers = [
    await agent.get(`${one}/conversations?search=%00`),
    await agent.get(`${one}/conversations?search=a%00b`),
    await agent.get(`${one}/conversations?tag=%00`),
    await agent.get(`${one}/knowledge?search=a%00b`),
  ];

  expect(answers.map(problemOf)).toEqual([
    '422 validation_failed search',
    '422 validation_failed search',
    '422 validation_failed tag',
    '422 validation_failed search',
  ]);
});

test('an import row that is nested too deeply is refused alone, and only a few of its faults are listed', async () => {
  const { assistantId } = await anAssistant(stack, { knowledge: [] });
  const deep = '['.repeat(100_000) + ']'.repeat(100_000);
  const wrong = JSON.stringify({ question: 'A?', answer: 'B', variants: Array.from({ length: 2_000 }, () => 1) });
  const text = `[{"question": ${deep}, "answer": "x"}, {"question": "Q?", "answer": "A", "more": ${deep}}, ${wrong}]`;

  const { status, body } = await owner.post<{ imported: number; refused: { reason: string }[] }>(
    `/assistants/${assistantId}/knowledge-import`,
    { format: 'json', text },
  );

  expect([status, body.imported, body.refused.length]).toEqual([200, 1, 2]);
  expect(body.refused[0]?.reason).toBe('entry 1: question: must be a string');
  expect(body.refused[1]?.reason.length).toBeLessThan(1_000);
});

test('an answer lists twenty wrong fields, however many there are', async () => {
  const { assistantId, call } = await anAssistant(stack);
  const many = Array.from({ length: 7_000 }, () => 'zebra');

  const wrong = await owner.post(`/assistants/${assistantId}/endpoints`, { url: 'https://x.example', events: many });
  const repeated = await owner.post(`/assistants/${assistantId}/endpoints`, {
    url: 'https://x.example',
    events: Array.from({ length: 1_000 }, () => 'tag.added'),
  });
  const languages = await owner.call('PATCH', `/assistants/${assistantId}`, {
    languages: many.slice(0, 50).map(() => 7),
  });
  const chat = await call('/api/v1/chat', { body: aTurn({ message: 7, session_id: 7 }) });

  expect(
    [wrong, repeated, languages, chat].map((answer) => problemOf(answer).split(' ').slice(0, 2).join(' ')),
  ).toEqual(Array(4).fill('422 validation_failed'));
  const details = [wrong, repeated, languages, chat].map(
    ({ body }) => (body as { error: { details: unknown[] } }).error,
  );
  expect(details.map((error) => error.details.length)).toEqual([1, 1, 20, 2]);
});

test('a tag is removed under the rules for adding it, and the audit trail keeps no long text', async () => {
  const agent = await anOperator(stack);
  const { chat } = await anAssistant(stack);
  const { body } = await chat(aTurn());
  const tags = `/conversations/${body.conversationId}/tags`;
  await agent.post(tags, { tag: 'parcel' });

  const answers = [
    await agent.call('DELETE', `${tags}/${'x'.repeat(51)}`),
    await agent.call('DELETE', `${tags}/${'x'.repeat(14_000)}`),
    await agent.call('DELETE', `${tags}/a%00b`),
    await agent.call('DELETE', `${tags}/a%0Ab`),
  ];
  const taken = await agent.call<{ tags: unknown[] }>('DELETE', `${tags}/parcel`);

  expect(answers.map(problemOf)).toEqual(Array(4).fill('422 validation_failed tag'));
  expect([taken.status, taken.body.tags]).toEqual([200, []]);
  const { lines } = await stack.service.audit.list({ limit: 10, target: body.conversationId });
  expect(lines.map(({ action, details }) => [action, details.tag])).toEqual([
    ['conversation.untag', 'parcel'],
    ['conversation.tag', 'parcel'],
  ]);
});

test('no text in the audit trail is longer than 500 characters', () => {
  const line = { target: 'x'.repeat(2_000), details: { text: `${'y'.repeat(499)}😀`, count: 7, none: null } };

  expect(boundedLine(line)).toEqual({
    target: 'x'.repeat(500),
    details: { text: `${'y'.repeat(499)}\ufffd`, count: 7, none: null },
  });
});

test('an API key cannot see a playground conversation', async () => {
  const { assistantId, call } = await anAssistant(stack);
  const turn = { sessionId: randomUUID(), message: 'What are your opening hours?' };
  const { body } = await owner.post<{ conversationId: string }>(`/assistants/${assistantId}/playground`, turn);
  const path = `/api/v1/conversations/${body.conversationId}`;
  const stored = await stack.service.mongo.collection('conversations').findOne({ conversationId: body.conversationId });
  const turnId = (stored?.recent as { turnId: string }[] | undefined)?.[0]?.turnId;

  const answers = [
    await call(path),
    await call(`${path}?after_seq=0&wait=1`),
    await call(`${path}/escalate`, { body: {} }),
    await call(path, { method: 'DELETE' }),
    await call(`/api/v1/turns/${turnId}`),
  ];

  expect(answers.map(problemOf)).toEqual(Array(5).fill('404 not_found'));
  const read = await owner.get<{ status: string }>(`/conversations/${body.conversationId}`);
  expect([read.status, read.body.status]).toEqual([200, 'open']);
});

test('an operator may send sixty playground turns a minute, and another operator has a separate limit', async () => {
  const [agent, another] = [await anOperator(stack), await anOperator(stack)];
  const { assistantId } = await anAssistant(stack);
  const { assistantId: other } = await anAssistant(stack);
  const ask = (who: typeof agent, of: string) =>
    who.post(`/assistants/${of}/playground`, { sessionId: randomUUID(), message: 'Hello' });

  // Every day, most turns are only counted.
  const counted = sized({ everyday: 50, long: 0 });
  const limiter = limiterOf(stack);
  await Promise.all(Array.from({ length: counted }, () => limiter.forPlayground(agent.operatorId)));

  const answers = await Promise.all(
    Array.from({ length: 70 - counted }, (_, nth) => ask(agent, nth % 2 ? assistantId : other)),
  );
  const theirs = await ask(another, assistantId);

  const refused = answers.filter(({ status }) => status === 429);
  expect(answers.filter(({ status }) => status === 200)).toHaveLength(60 - counted);
  expect(refused.map(problemOf)).toEqual(Array(10).fill('429 rate_limited'));
  expect(answers.every(({ headers }) => headers.get('x-ratelimit-limit') === '60')).toBe(true);
  expect([theirs.status, theirs.headers.get('x-ratelimit-remaining')]).toEqual([200, '59']);
});
