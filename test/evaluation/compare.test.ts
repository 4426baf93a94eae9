import { writeFileSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { findSemanticStatus } from '../../src/assistants/knowledge/semantic-state.ts';
import { adminJson, runAdmin, useAdmin } from '../support/admin.ts';
import { anAssistant, anEntry, aTurn } from '../support/builders.ts';
import { anEmbedder } from '../support/embedder.ts';
import { evaluateWith, type Results } from '../support/evaluate.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { sized } from '../support/size.ts';
import { useOpened, useStack } from '../support/stack.ts';

const embedder = anEmbedder();
const stack = useStack({ deliveryWorkers: 0, embedder: () => embedder });
const owner = useOpened(() => anOperator(stack));

const env = useAdmin(stack);

const HOURS = anEntry({ question: 'What are your opening hours?', answer: 'We are open from 9 to 5.' });
const PARKING = anEntry({ question: 'Where can I park my car?', answer: 'Park behind the house.' });
const RETURNS = anEntry({ question: 'How do I return a parcel?', answer: 'Send it back within 30 days.' });
const WRAPPING = anEntry({ question: 'Do you wrap presents?', answer: 'Yes, for free.' });

const aDraft = async () => {
  const assistant = await anAssistant(stack, { knowledge: [HOURS, PARKING, RETURNS], input: { drafts: true } });
  const own = `/assistants/${assistant.assistantId}`;
  // Knowledge of a new assistant with drafts lies in its draft.
  expect((await owner.post(`${own}/draft/publish`, {})).status).toBe(200);
  const { entries } = (await owner.get<{ entries: { entryId: string }[] }>(`${own}/knowledge`)).body;
  const change = async (): Promise<void> => {
    const [hours, parking] = entries;
    const closed = anEntry({ question: 'Are you closed?', answer: 'Never.' });
    await owner.call('PUT', `${own}/knowledge/${hours?.entryId}`, closed);
    await owner.call('DELETE', `${own}/knowledge/${parking?.entryId}`);
    await owner.post(`${own}/knowledge`, WRAPPING);
  };
  const evaluate = evaluateWith(owner, own);
  return { assistant, owner, own, change, evaluate };
};

const FILE = `question,expect,value
What are your opening hours?,text,9 to 5
Where can I park my car?,text,behind the house
How do I return a parcel?,text,30 days
Do you wrap presents?,text,for free
`;

test('what a draft breaks and mends is shown before visitors see it, the worst first, and by the command', async () => {
  const { assistant, owner, own, change, evaluate } = await aDraft();
  const at = ['--assistant', assistant.assistantId, '--set', 'Release'];
  const file = join(mkdtempSync(join(tmpdir(), 'parley-')), 'questions.csv');
  writeFileSync(file, FILE);
  const { setId } = await adminJson<{ setId: string }>(env, 'questions', 'import', ...at, file);
  expect(problemOf(await owner.post(`${own}/evaluations`, { setId, against: 'draft' }))).toBe('409 conflict');
  await change();

  const { counts, judged, against, results } = await evaluate({ setId, against: 'draft' });

  expect([against, counts, judged]).toMatchObject([
    'draft',
    { worse: 2, better: 1, same: 1, other: 0 },
    { right: 2, wrong: 2 },
  ]);
  expect(results.map(({ verdict }) => verdict)).toEqual(['worse', 'worse', 'better', 'same']);
  const byQuestion = new Map(results.map((one) => [one.question, one]));
  expect(byQuestion.get(HOURS.question)).toMatchObject({
    judged: 'wrong',
    live: { judged: 'right', reply: HOURS.answer, why: { kind: 'answer' } },
  });
  expect(byQuestion.get(WRAPPING.question)).toMatchObject({
    judged: 'right',
    reply: WRAPPING.answer,
    live: { judged: 'wrong' },
  });
  expect((await assistant.chat(aTurn({ message: HOURS.question }))).body.reply).toBe(HOURS.answer);
  const strict = await runAdmin(env, ['evaluate', ...at, '--draft', '--json']);
  const lenient = await runAdmin(env, ['evaluate', ...at, '--draft', '--max-worse', '2']);
  expect([strict.status, lenient.status]).toEqual([1, 0]);
  expect(JSON.parse(strict.stdout)).toMatchObject({ against: 'draft', counts: { worse: 2 } });
});

test('a comparison says what the draft would answer once it is published, also by meaning', async () => {
  const { assistant, owner, own, change, evaluate } = await aDraft();
  const { assistantId } = assistant;
  const ready = () =>
    eventually(async () => {
      expect(await findSemanticStatus(stack.service.assistants, assistantId)).toMatchObject({ state: 'ready' });
      expect((await stack.service.assistants.getAssistant(assistantId)).semantic?.stale).toBeUndefined();
    });
  await ready();
  const asked = ['When closd?', 'parcels returning', 'wraping of a present', 'is parking possible for cars'];
  for (const message of asked) await assistant.chat(aTurn({ message }));
  await change();
  const said = ({ results }: { results: Results['results'] }) =>
    results
      .map(({ question, kind, confidence, reply }) => ({ question, kind, confidence, reply }))
      .toSorted((one, other) => one.question.localeCompare(other.question));
  const before = await eventually(async () => {
    const run = await evaluate({ real: { limit: 10 }, against: 'draft' });
    expect(run.total).toBe(asked.length);
    return run;
  });
  expect(before.counts.same).toBeLessThan(asked.length);

  await owner.post(`${own}/draft/publish`, {});
  await ready();

  await eventually(async () => expect(said(await evaluate({ real: { limit: 10 } }))).toEqual(said(before)));
});

test('a draft that makes more cases worse than allowed is published only if that is confirmed, and is rolled back by the command', async () => {
  const { assistant, owner, own, change, evaluate } = await aDraft();
  const { setId } = (await owner.post<{ setId: string }>(`${own}/question-sets`, { name: 'Release' })).body;
  await owner.post(`${own}/question-sets/${setId}/import`, { format: 'csv', text: FILE });
  const publish = (body: object = {}) =>
    owner.post<{ version: number; result: object | null; error?: { details: object[] } }>(`${own}/draft/publish`, body);
  await change();
  await owner.call('PATCH', own, { worseAllowed: 1 });

  expect(problemOf(await publish())).toBe('409 conflict confirm');
  await evaluate({ setId, against: 'draft' });
  const refused = await publish();

  expect([refused.status, refused.body.error?.details]).toEqual([
    409,
    [HOURS, PARKING].map(({ question }) => ({ field: 'confirm', code: 'worse', message: question })),
  ]);
  await owner.call('PATCH', own, { instructions: 'Be short.' });
  expect((await publish()).body.error?.details).toMatchObject([{ code: 'not_compared' }]);
  await evaluate({ setId, against: 'draft' });
  expect((await publish({ confirm: true })).body).toMatchObject({
    version: 3,
    result: { set: 'Release', counts: { worse: 2, better: 1 }, judged: { right: 2, wrong: 2 } },
  });
  await owner.post(`${own}/knowledge`, HOURS);
  // The reply worker may still answer by the version before.
  await eventually(async () =>
    expect((await evaluate({ setId, against: 'draft' })).counts).toMatchObject({ worse: 0, better: 1 }),
  );
  expect((await publish()).body).toMatchObject({ version: 4, result: { counts: { worse: 0, better: 1 } } });
  const results = async () => {
    type Listed = { versions: { version: number; result: { evaluationId: string | null } | null }[] };
    const { versions } = (await owner.get<Listed>(`${own}/versions`)).body;
    return versions.flatMap(({ version, result }) => (result ? [[version, result.evaluationId !== null]] : []));
  };
  expect(await results()).toEqual([
    [4, true],
    [3, true],
  ]);
  const evaluations = stack.service.mongo.collection('evaluations');
  await evaluations.deleteMany({ assistantId: assistant.assistantId });
  expect(await results()).toEqual([
    [4, false],
    [3, false],
  ]);
  const back = await runAdmin(env, ['draft', 'roll-back', '3', '--assistant', assistant.assistantId]);
  expect([back.status, back.stdout.trim()]).toEqual([0, 'Version 5 is live: it has what version 3 had.']);
  await eventually(async () => {
    await evaluate({ setId });
    const listed = await runAdmin(env, ['draft', 'versions', '--assistant', assistant.assistantId]);
    expect(listed.stdout).toMatch(/^5 .*Release: 2 right, 0 offered, 2 wrong$/m);
  });
});

test('a draft whose worse cases are erased still asks to be confirmed', async () => {
  const { assistant, owner, own, change, evaluate } = await aDraft();
  const { conversationId } = (await assistant.chat(aTurn({ message: HOURS.question }))).body;
  await change();
  await owner.call('PATCH', own, { worseAllowed: 0 });
  await eventually(async () =>
    expect((await evaluate({ real: {}, against: 'draft' })).counts).toMatchObject({ worse: 1 }),
  );
  await owner.call('DELETE', `/conversations/${conversationId}`);
  const publish = (body: object) => owner.post(`${own}/draft/publish`, body);

  await eventually(async () =>
    expect((await publish({})).body).toMatchObject({ error: { details: [{ field: 'confirm', code: 'erased' }] } }),
  );
  expect((await publish({ confirm: true })).body).toMatchObject({ result: { set: null, counts: { worse: 1 } } });
});

test('a draft that is changed ends its comparison, which would be of two drafts', async () => {
  const { assistant, owner, own, change } = await aDraft();
  await change();
  const { evaluations } = stack.service;
  const { assistantId } = assistant;
  const { revision } = (await owner.get<{ revision: number }>(`${own}/draft`)).body;
  const question = { question: HOURS.question, language: null, expected: null, caseId: null };
  const questions = [{ ...question, conversationId: null, conversationIds: [], before: null }];

  const { evaluationId } = await evaluations.create({ assistantId, set: null, questions, draftRevision: revision - 1 });

  await eventually(async () =>
    expect(await evaluations.get({ assistantId, evaluationId })).toMatchObject({ state: 'stopped', done: 0 }),
  );
});

test('drafts that are compared at the same time all become ready, however long their vectors take', async () => {
  const many = Array.from({ length: sized({ everyday: 13, long: 20 }) }, (_, nth) =>
    anEntry({ question: `What is offer ${nth}?`, answer: `${nth}` }),
  );
  const scenes = [];
  for (let nth = 0; nth < sized({ everyday: 2, long: 3 }); nth += 1) {
    const scene = await aDraft();
    const { assistantId } = scene.assistant;
    await eventually(async () =>
      expect(await findSemanticStatus(stack.service.assistants, assistantId)).toMatchObject({ state: 'ready' }),
    );
    const text = JSON.stringify(many);
    expect((await scene.owner.post(`${scene.own}/knowledge-import`, { format: 'json', text })).status).toBe(200);
    await scene.assistant.chat(aTurn({ message: 'What is offer 7?' }));
    scenes.push(scene);
  }

  // One turn of an evaluation is not enough for so many texts.
  embedder.msEach = 100;
  const compared = scenes.map(({ evaluate }) => evaluate({ real: { limit: 10 }, against: 'draft' }));

  expect(await Promise.all(compared)).toMatchObject(scenes.map(() => ({ done: 1, counts: { better: 1 } })));
  embedder.msEach = 0;
});
