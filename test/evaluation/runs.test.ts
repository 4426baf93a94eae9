import { randomUUID } from 'node:crypto';
import { writeFileSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { Answered } from '../../src/evaluation/evaluations.ts';
import { useAdmin, adminJson, runAdmin } from '../support/admin.ts';
import { anAssistant, anEntry, aTurn } from '../support/builders.ts';
import { askedOf } from '../support/evaluate.ts';
import { eventually } from '../support/eventually.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0 });
const env = useAdmin(stack);

const asked = () => askedOf('What are your opening hours?', { expected: { kind: 'text', text: 'from 9 to 5' } });

const ANSWER: Answered = {
  verdict: 'right',
  kind: 'answered',
  confidence: 1,
  reply: 'We are open from 9 to 5.',
  sources: [],
  why: {},
};

test('a run whose worker was killed is continued, and each question counts once', async () => {
  const { assistantId } = await anAssistant(stack);
  const { evaluations, mongo } = stack.service;
  const questions = Array.from({ length: 30 }, asked);
  const { evaluationId } = await evaluations.create({ assistantId, set: null, questions });
  const killed = await evaluations.acquire('killed');
  if (!killed) throw new Error('there is nothing to evaluate');
  expect(await evaluations.acquire('another')).toBeNull();
  await evaluations.record(killed, [{ nth: 0, answer: ANSWER }]);
  await mongo
    .collection<{ _id: string }>('evaluations')
    .updateOne({ _id: evaluationId }, { $set: { 'lease.until': new Date(0) } });

  const worker = await stack.startReplyWorker();
  await eventually(async () => {
    const run = await evaluations.get({ assistantId, evaluationId });
    expect(run).toMatchObject({ state: 'done', total: 30, done: 30, counts: { right: 30 } });
  });

  expect(await evaluations.record(killed, [{ nth: 1, answer: { ...ANSWER, verdict: 'wrong' } }])).toBe(false);
  expect((await evaluations.get({ assistantId, evaluationId })).counts).toEqual({ right: 30 });
  await worker.close();
});

test('a version keeps what an evaluation by a set found of it, unless another version answered too', async () => {
  const { assistantId } = await anAssistant(stack, { input: { drafts: true } });
  const { assistants, evaluations } = stack.service;
  await assistants.drafts.publish(assistantId, { name: null, note: null });
  const set = { setId: randomUUID(), name: 'Release', version: 1 };
  const begin = () => evaluations.create({ assistantId, set, questions: [asked(), asked()] });
  const isDone = ({ evaluationId }: { evaluationId: string }) =>
    eventually(async () => expect((await evaluations.get({ assistantId, evaluationId })).state).toBe('done'));
  const results = async () => (await assistants.versions.list(assistantId)).map(({ result }) => result ?? null);
  const ofTwo = await begin();
  const held = await evaluations.acquire('before');
  if (!held) throw new Error('there is nothing to evaluate');
  await evaluations.record(held, [{ nth: 0, answer: { ...ANSWER, why: { version: 1 } } }]);
  await evaluations.release(held);
  const worker = await stack.startReplyWorker();
  await isDone(ofTwo);
  expect(await results()).toEqual([null, null]);

  const { evaluationId } = await begin();
  await isDone({ evaluationId });

  const found = { right: 2 };
  expect(await results()).toEqual([{ evaluationId, set: 'Release', counts: found, judged: found }, null]);
  await worker.close();
});

test('a run that ends its workers is given up after three of them, and a run that goes on is not', async () => {
  const { evaluations, mongo } = stack.service;
  const begin = async () => {
    const { assistantId } = await anAssistant(stack);
    return evaluations.create({ assistantId, set: null, questions: [asked(), asked()] });
  };
  const kill = async () => {
    const held = await evaluations.acquire('killed');
    const runs = mongo.collection<{ _id: string }>('evaluations');
    await runs.updateOne({ _id: held?.evaluationId ?? '' }, { $set: { 'lease.until': new Date(0) } });
    return held;
  };
  const poisoned = await begin();
  for (let nth = 0; nth < 3; nth += 1) expect((await kill())?.evaluationId).toBe(poisoned.evaluationId);
  const worker = await stack.startReplyWorker();
  await eventually(async () => expect((await evaluations.get(poisoned)).state).toBe('failed'));
  await worker.close();
  const slow = await begin();
  for (let nth = 0; nth < 3; nth += 1) await kill();
  const held = await evaluations.acquire('slow');
  expect(held?.tries).toBe(4);
  await evaluations.record(held!, [{ nth: 0, answer: ANSWER }]);
  await mongo
    .collection<{ _id: string }>('evaluations')
    .updateOne({ _id: slow.evaluationId }, { $set: { 'lease.until': new Date(0) } });

  const other = await stack.startReplyWorker();

  await eventually(async () => expect((await evaluations.get(slow)).state).toBe('done'));
  expect((await evaluations.get(slow)).counts).toEqual({ right: 2 });
  expect(await evaluations.get(slow)).not.toHaveProperty('tries');
  await other.close();
});

test('assistants take turns, however many evaluations one of them has', async () => {
  const { evaluations } = stack.service;
  const [greedy, modest] = [randomUUID(), randomUUID()];
  const begin = (assistantId: string) => evaluations.create({ assistantId, set: null, questions: [asked(), asked()] });
  await begin(greedy);
  await begin(greedy);
  await begin(modest);

  const first = await evaluations.acquire('worker');
  if (!first) throw new Error('there is nothing to evaluate');
  await evaluations.release(first);
  const second = await evaluations.acquire('worker');

  expect([first.assistantId, second?.assistantId]).toEqual([greedy, modest]);
  for (const assistantId of [greedy, modest])
    for (const { evaluationId } of await evaluations.list(assistantId))
      await evaluations.stop({ assistantId, evaluationId });
});

test('the command imports questions, and ends with 1 if more replies are wrong than allowed', async () => {
  const worker = await stack.startReplyWorker();
  const { assistantId, chat } = await anAssistant(stack, { knowledge: [anEntry()] });
  const file = join(mkdtempSync(join(tmpdir(), 'parley-')), 'questions.csv');
  writeFileSync(
    file,
    'question,expect,value\nWhat are your opening hours?,text,9 to 5\nDo you sell submarines?,text,yes\n',
  );
  const at = ['--assistant', assistantId, '--set', 'Release'];

  const imported = await adminJson(env, 'questions', 'import', ...at, file);
  const strict = await runAdmin(env, ['evaluate', ...at, '--json']);
  const lenient = await runAdmin(env, ['evaluate', ...at, '--max-wrong', '1']);
  const exported = await runAdmin(env, ['questions', 'export', ...at, '--format', 'jsonl']);

  expect(imported).toMatchObject({ imported: 2, refused: [] });
  expect(strict.status).toBe(1);
  expect(JSON.parse(strict.stdout)).toMatchObject({
    state: 'done',
    counts: { right: 1, wrong: 1 },
    results: [{ verdict: 'wrong', question: 'Do you sell submarines?' }],
  });
  expect([lenient.status, lenient.stdout]).toEqual([0, expect.stringMatching(/wrong +Do you sell submarines\?/)]);
  expect(exported.stdout.split('\n').filter((line) => line !== '')).toHaveLength(2);
  expect((await runAdmin(env, ['questions', 'list', '--assistant', assistantId])).stdout).toContain('Release');
  await chat(aTurn());
  const last = ['evaluate', '--assistant', assistantId];
  const early = await runAdmin(env, [...last, '--to', '2020-01-01T00:00:00Z']);
  expect([early.status, early.stderr]).toEqual([1, expect.stringContaining('has no such question')]);
  expect((await runAdmin(env, [...last, '--from', '2020-01-01T00:00:00Z'])).status).toBe(0);
  await worker.close();
});
