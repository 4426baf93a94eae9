import { randomUUID } from 'node:crypto';
import { expect, onTestFinished, test } from 'vitest';
import type { evaluationOperations } from '../../src/evaluation/http/evaluations.ts';
import type { questionSetOperations } from '../../src/evaluation/http/question-sets.ts';
import type { usageOperations } from '../../src/insights/http/usage.ts';
import { aTurn, anAssistant, anEntry } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import type { AnswerOf } from '../kit/operations.ts';
import { useProjection } from '../support/projection.ts';
import { contentOf, openReceiver } from '../kit/receiver.ts';
import { useOpened, useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0 });
useProjection(stack);
const owner = useOpened(() => anOperator(stack));

type SetBody = AnswerOf<typeof questionSetOperations.read>;
type Run = AnswerOf<typeof evaluationOperations.read>;
type Results = AnswerOf<typeof evaluationOperations.results>;

const HOURS = anEntry({ question: 'What are your opening hours?', answer: 'We are open from 9 to 5.' });
const PARKING = anEntry({ question: 'Where can I park my car?', answer: 'Park behind the house.' });
const RETURNS = anEntry({ question: 'How do I return a parcel?', answer: 'Send it back within 30 days.' });

const aSet = async () => {
  const assistant = await anAssistant(stack, { knowledge: [HOURS, PARKING, RETURNS] });
  const own = `/assistants/${assistant.assistantId}`;
  const { body } = await owner.post<SetBody>(`${own}/question-sets`, { name: 'Every release' });
  const path = `${own}/question-sets/${body.setId}`;
  const read = async (query = '') => (await owner.get<SetBody>(`${path}${query}`)).body;
  const add = (question: string, expected: object, more: object = {}) =>
    owner.post<SetBody['cases'][number]>(`${path}/cases`, { question, expected, ...more });
  const evaluate = async (wanted: object = { setId: body.setId }) => {
    const begun = await owner.post<Run>(`${own}/evaluations`, wanted);
    expect(begun.status).toBe(201);
    const at = `${own}/evaluations/${begun.body.evaluationId}`;
    return eventually(async () => {
      const run = (await owner.get<Run>(at)).body;
      expect(run.state).toBe('done');
      const { results } = (await owner.get<Results>(`${at}/results`)).body;
      return { ...run, results, at };
    });
  };
  return { assistant, owner, own, path, setId: body.setId, read, add, evaluate };
};

test('a run judges each reply by the answer that is expected, and shows the least certain first', async () => {
  const { add, evaluate } = await aSet();
  await add('When are you open? What are your opening hours?', { kind: 'entry', entry: HOURS.question });
  await add('Where can I park my car?', { kind: 'text', text: 'BEHIND the  house' });
  await add('Do you sell submarines?', { kind: 'none' });
  await add('What are your opening hours?', { kind: 'entry', entry: PARKING.question });

  const { results, counts, total, done } = await evaluate();

  expect({ total, done, counts }).toMatchObject({ total: 4, done: 4, counts: { right: 3, wrong: 1, offered: 0 } });
  expect(results[0]).toMatchObject({
    verdict: 'wrong',
    question: 'What are your opening hours?',
    reply: HOURS.answer,
    why: { kind: 'answer' },
  });
  expect(results.slice(1).map(({ verdict }) => verdict)).toEqual(['right', 'right', 'right']);
});

test('a change that breaks three answers is found before visitors see it', async () => {
  const { assistant, add, evaluate, owner, own } = await aSet();
  for (const { question } of [HOURS, PARKING, RETURNS]) await add(question, { kind: 'entry', entry: question });
  expect((await evaluate()).counts).toMatchObject({ right: 3 });

  const { entries } = (await owner.get<{ entries: { entryId: string }[] }>(`${own}/knowledge`)).body;
  await stack.service.assistants.removeKnowledge(
    assistant.assistantId,
    entries.map(({ entryId }) => entryId),
  );

  await eventually(async () => expect((await evaluate()).counts).toMatchObject({ right: 0, wrong: 3 }));
});

test('a set is versioned, and its questions can be changed, removed, imported and exported', async () => {
  const { owner, path, read, add } = await aSet();
  const { body: first } = await add('Where?', { kind: 'page', page: 'https://example.com/way' });
  await add('Why?', { kind: 'none' });
  const changed = { question: 'Where is it?', expected: { kind: 'text', text: 'here' } };
  await owner.call('PUT', `${path}/cases/${first.caseId}`, changed);
  await owner.call('DELETE', `${path}/cases/${first.caseId}`);

  const csv = 'expect;question;value\r\nentry;"What; then?";Some entry\r\nnonsense;x;\r\n';
  const imported = await owner.post<{ imported: number; refused: { line: number }[] }>(`${path}/import`, {
    format: 'csv',
    text: csv,
  });

  expect(imported.body).toMatchObject({ imported: 1, refused: [{ line: 3 }] });
  const questionsOf = ({ cases }: SetBody) => cases.map(({ question }) => question);
  const now = await read();
  expect([now.version, questionsOf(now)]).toEqual([5, ['Why?', 'What; then?']]);
  expect(questionsOf(await read('?version=2'))).toEqual(['Where?', 'Why?']);
  expect(questionsOf(await read('?version=3'))).toEqual(['Where is it?', 'Why?']);
  for (const format of ['csv', 'jsonl']) {
    const headers = { Cookie: owner.cookie() ?? '' };
    const file = await fetch(`${stack.url}/operator/v1${path}/export?format=${format}`, { headers });
    const text = await file.text();
    const again = await owner.post(`${path}/import`, { format, text, replace: true });
    expect(again.body).toEqual({ imported: 2, refused: [] });
    expect((await read()).cases.map(({ question, expected }) => ({ question, expected }))).toEqual([
      { question: 'Why?', expected: { kind: 'none' } },
      { question: 'What; then?', expected: { kind: 'entry', entry: 'Some entry' } },
    ]);
  }
});

test('no question of an exported file is run by a spreadsheet, and each comes back as it was', async () => {
  const { owner, path, read, add } = await aSet();
  const questions = ['=HYPERLINK("http://example.com","x")', "'=1+1", '-5 degrees?', '+49 what?', '@home, "or" not?'];
  for (const question of questions) await add(question, { kind: 'text', text: '=2' });
  const headers = { Cookie: owner.cookie() ?? '' };

  const text = await (await fetch(`${stack.url}/operator/v1${path}/export?format=csv`, { headers })).text();

  expect(text).not.toMatch(/(^|[,"\n])[=+\-@]/);
  expect((await owner.post(`${path}/import`, { format: 'csv', text: `\uFEFF${text}`, replace: true })).status).toBe(
    200,
  );
  const { cases } = await read();
  expect(cases.map(({ question, expected }) => [question, expected])).toEqual(
    questions.map((question) => [question, { kind: 'text', text: '=2' }]),
  );
});

test.for([
  ['a set without a name', '', { name: ' ' }, 'name'],
  ['a broken quote', '/import', { format: 'csv', text: 'question,expect\n"a,none\n' }, 'text'],
  ['no heading', '/import', { format: 'csv', text: 'a,b\n' }, 'text'],
  ['too many cells', '/import', { format: 'csv', text: `question,expect${','.repeat(20_000)}\na,none\n` }, 'text'],
  ['too many', '/import', { format: 'csv', text: `question,expect\n${'a,none\n'.repeat(1_001)}` }, 'text'],
  ['an unknown kind', '/cases', { question: 'x', expected: { kind: 'x' } }, 'expected.kind'],
  [
    'a strange conversation',
    '/cases',
    { question: 'x', expected: { kind: 'none' }, from: { conversationId: randomUUID() } },
    'from.conversationId',
  ],
] as const)('%s is refused with its field', async ([, where, body, field]) => {
  const { owner, own, path } = await aSet();

  const { status, body: answer } = await owner.post<{ error: { field: string } }>(
    where === '' ? `${own}/question-sets` : `${path}${where}`,
    body,
  );

  expect([status, answer.error.field]).toEqual([422, field]);
});

test('questions of visitors are found by how they ended, and tried without a trace', async () => {
  const { assistant, owner, own, evaluate } = await aSet();
  const receiver = await openReceiver();
  onTestFinished(receiver.close);
  await stack.service.endpoints.addEndpoint(assistant.assistantId, { url: receiver.url });
  const session_id = randomUUID();
  for (const message of ['What are your opening hours?', 'Does the moon have a basement?', 'A human, please'])
    await assistant.chat(aTurn({ session_id, message }));
  const usage = async () => {
    const { deliveries: _, ...turns } = (await owner.get<AnswerOf<typeof usageOperations.read>>(`${own}/usage`)).body
      .totals;
    return turns;
  };
  await eventually(async () => expect(await usage()).toMatchObject({ turns: 3 }));
  const before = await usage();

  const all = await evaluate({ real: {} });
  const unanswered = await evaluate({ real: { only: 'unanswered' } });
  const escalated = await evaluate({ real: { only: 'escalated', language: 'en' } });

  expect(all.results).toHaveLength(3);
  expect(all.counts).toMatchObject({ same: 3 - (all.counts.other ?? 0) });
  expect(unanswered.results.map(({ question }) => question)).toEqual(['Does the moon have a basement?']);
  expect(escalated.results.map(({ question }) => question)).toEqual(['A human, please']);
  const now = new Date().toISOString();
  for (const none of [{ language: 'fr' }, { only: 'offered' }, { from: now }, { to: '2020-01-01T00:00:00Z' }])
    expect((await owner.post(`${own}/evaluations`, { real: none })).status).toBe(422);
  expect((await evaluate({ real: { to: now } })).results).toHaveLength(3);
  expect(await usage()).toEqual(before);
  const { conversations } = (await owner.get<{ conversations: { conversationId: string }[] }>(`${own}/conversations`))
    .body;
  expect(conversations).toHaveLength(1);
  const last = 'And where can I park?';
  await assistant.chat(aTurn({ session_id, message: last }));
  const events = await receiver.waitFor((received) => received.some((one) => contentOf(one) === last));
  const announced = new Set(
    events.map(({ json }) => (json as { payload: { conversation_id: string } }).payload.conversation_id),
  );
  expect([...announced]).toEqual([conversations[0]?.conversationId]);
});

test('an erased conversation vanishes from sets and results', async () => {
  const { assistant, owner, add, read, evaluate } = await aSet();
  const { conversationId } = (await assistant.chat(aTurn({ message: 'Where can I park my car?' }))).body;
  await add('Mine', { kind: 'none' }, { from: { conversationId } });
  await add('Ours', { kind: 'none' });
  const run = await evaluate({ real: {} });
  expect(run.results).toHaveLength(1);
  await add('Marked', { kind: 'none' }, { from: { resultId: run.results[0]?.resultId } });
  const told = await owner.get<{ questions: unknown[]; evaluations: unknown[] }>(
    `/conversations/${conversationId}/export`,
  );
  expect([told.body.questions.length, told.body.evaluations.length]).toEqual([2, 1]);

  expect((await owner.call('DELETE', `/conversations/${conversationId}`)).status).toBe(204);

  await eventually(async () => {
    expect((await read()).cases.map(({ question }) => question)).toEqual(['Ours']);
    expect((await owner.get<Results>(`${run.at}/results`)).body.results).toEqual([]);
  });
});

test('a stopped evaluation keeps what is answered, and at most five wait', async () => {
  const { owner, own, path, setId } = await aSet();
  const text = Array.from({ length: 300 }, (_, nth) => `Question ${nth}?,none\n`).join('');
  await owner.post(`${path}/import`, { format: 'csv', text: `question,expect\n${text}` });
  const begin = () => owner.post<Run>(`${own}/evaluations`, { setId });
  const begun = await Promise.all(Array.from({ length: 5 }, begin));

  expect((await begin()).status).toBe(422);
  for (const { body } of begun) {
    const { body: stopped } = await owner.post<Run>(`${own}/evaluations/${body.evaluationId}/stop`);
    expect(stopped.state).toBe('stopped');
  }
  const { evaluations } = (await owner.get<{ evaluations: Run[] }>(`${own}/evaluations`)).body;
  expect(evaluations.map(({ state }) => state)).toEqual(Array.from({ length: 5 }, () => 'stopped'));
});

test('two owners add to a set at once, and nothing is lost', async () => {
  const { add, read } = await aSet();

  const added = await Promise.all(Array.from({ length: 8 }, (_, nth) => add(`Question ${nth}?`, { kind: 'none' })));

  expect(added.map(({ status }) => status)).toEqual(added.map(() => 201));
  const { cases, version } = await read();
  expect([cases.length, version]).toEqual([8, 8]);
});

test('large files that replace a set at once are read one after the other', async () => {
  const { owner, path, read } = await aSet();
  const text = `question,expect\n${Array.from({ length: 400 }, (_, nth) => `Question ${nth}?,none\n`).join('')}`;

  const imported = await Promise.all(
    Array.from({ length: 5 }, () => owner.post(`${path}/import`, { format: 'csv', text, replace: true })),
  );

  expect(imported.map(({ status }) => status)).toEqual(imported.map(() => 200));
  const { cases, version } = await read();
  expect([cases.length, version]).toEqual([400, 5]);
});
