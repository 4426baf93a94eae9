import { randomUUID } from 'node:crypto';
import { connect } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { aTurn, anAssistant, type ErrorBody } from '../support/builders.ts';
import { askedOf } from '../support/evaluate.ts';
import { anOperator } from '../support/operator-client.ts';
import { collectionIn, examinedBy, type Profiled, profileStatements } from '../support/profile.ts';
import { sized } from '../support/size.ts';
import { useOpened, useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0 });
/** Rows that are read together. */
const AT_ONCE = 50;
/** So many questions and results are more than the kernel's buffers hold. */
const MANY = sized({ everyday: 400, long: 1_200 });
const owner = useOpened(() => anOperator(stack));

const range = (count: number) => Array.from({ length: count }, (_, nth) => nth);
const asked = (question?: string) => askedOf(question, { expected: { kind: 'none' } });
const of = (collection: string, all: Profiled[]) => all.filter((one) => collectionIn(one) === collection);
const most = (all: Profiled[], read: (one: Profiled) => number | undefined) =>
  Math.max(...all.map((one) => read(one) ?? 0));
const profiled = async <Value>(work: () => Promise<Value>) => {
  let value: Value | undefined;
  const all = await profileStatements(stack, async () => {
    value = await work();
  });
  return { all, value: value as Value };
};

/** A conversation that gave so many questions to question sets and to evaluations: 24 kB each. */
const aMarkedConversation = async (count: number) => {
  const { assistantId, chat } = await anAssistant(stack);
  const worker = await stack.startReplyWorker();
  const { conversationId } = (await chat(aTurn())).body;
  await worker.close();
  const shared = { assistantId, ...asked('永'.repeat(1_900)), conversationId, conversationIds: [conversationId] };
  const insert = (name: string, rows: object[]) => stack.service.mongo.collection(name).insertMany(rows);
  const [setId, evaluationId] = [randomUUID(), randomUUID()];
  await insert(
    'questionCases',
    range(count).map((place) => ({ ...shared, _id: randomUUID(), caseId: randomUUID(), setId, place })),
  );
  await insert(
    'evaluationResults',
    range(count).map((nth) => ({
      _id: `${evaluationId}:${nth}`,
      evaluationId,
      doubt: 1,
      reply: '永'.repeat(4_000),
      ...shared,
    })),
  );
  return { assistantId, conversationId };
};

test('an export has all questions and results, is read in small parts, and keeps its session’s place', async () => {
  const { conversationId } = await aMarkedConversation(MANY);
  const path = `/conversations/${conversationId}/export`;
  type Export = { questions: unknown[]; evaluations: unknown[] };

  const { all, value } = await profiled(() => owner.get<Export>(path));

  expect([value.body.questions.length, value.body.evaluations.length]).toEqual([MANY, MANY]);
  for (const name of ['questionCases', 'evaluationResults', 'misses'])
    expect(most(of(name, all), ({ nreturned }) => nreturned)).toBeLessThanOrEqual(AT_ONCE);

  const unread = range(2).map(() => {
    const socket = connect(Number(new URL(stack.url).port), '127.0.0.1').on('error', () => undefined);
    onTestFinished(() => void socket.destroy());
    const begun = new Promise<void>((resolve) => {
      socket.once('data', () => {
        socket.pause();
        resolve();
      });
    });
    socket.write(`GET /operator/v1${path} HTTP/1.1\r\nHost: x\r\nCookie: ${owner.cookie()}\r\n\r\n`);
    return { socket, begun };
  });
  await Promise.all(unread.map(({ begun }) => begun));
  let answered = false;
  const next = owner.get('/session').finally(() => {
    answered = true;
  });
  const others = await profiled(async () => {
    const other = await anOperator(stack);
    for (let nth = 0; nth < 10; nth += 1) expect((await other.get('/session')).status).toBe(200);
  });
  expect(answered).toBe(false);
  const read = of('evaluationResults', others.all).reduce((sum, { nreturned = 0 }) => sum + nreturned, 0);
  expect(read).toBeLessThan(MANY);
  for (const { socket } of unread) socket.destroy();
  expect((await next).status).toBe(200);
});

test('a set has at most 2 MiB, and is read and sent in parts', async () => {
  const { assistantId } = await anAssistant(stack);
  const sets = `/assistants/${assistantId}/question-sets`;
  const path = `${sets}/${(await owner.post<{ setId: string }>(sets, { name: 'Large' })).body.setId}`;
  const rows = (count: number) =>
    range(count)
      .map((nth) => JSON.stringify({ question: `${nth}${'永'.repeat(1_900)}`, expected: { kind: 'none' } }))
      .join('\n');
  const add = (count: number) => owner.post<ErrorBody>(`${path}/import`, { format: 'jsonl', text: rows(count) });
  expect([(await add(170)).status, (await add(170)).status]).toEqual([200, 200]);

  const refused = await add(30);
  const { all, value } = await profiled(() => owner.get<{ cases: unknown[]; version: number }>(path));
  const old = await owner.get<{ cases: unknown[] }>(`${path}?version=1`);

  expect([refused.status, refused.body.error.field]).toEqual([422, 'question']);
  expect([value.body.version, value.body.cases.length, old.body.cases.length]).toEqual([2, 340, 170]);
  expect(value.headers.get('content-length')).toBeNull();
  expect(most(of('questionCases', all), ({ nreturned }) => nreturned)).toBeLessThanOrEqual(AT_ONCE);
});

/** Makes these requests at once, and returns how long after the previous answer each of the others came. */
const pausesOf = async (requests: (() => Promise<{ status: number }>)[]) => {
  const ends: number[] = [];
  const answers = await Promise.all(requests.map((request) => request().finally(() => ends.push(performance.now()))));
  return { answers, pauses: ends.slice(1).map((end, nth) => end - Number(ends[nth])) };
};

test('after an import or the start of an evaluation, the next one of the assistant waits', async () => {
  const { assistantId } = await anAssistant(stack);
  const own = `/assistants/${assistantId}`;
  const addSet = async (nth: number) =>
    (await owner.post<{ setId: string }>(`${own}/question-sets`, { name: `Set ${nth}` })).body.setId;
  const ids = await Promise.all(range(4).map(addSet));
  const rows = range(1_000).map((nth) => JSON.stringify({ question: `Where ${nth}?`, expected: { kind: 'none' } }));
  const callers = [owner, await anOperator(stack), await anOperator(stack)];

  const imports = await pausesOf(
    ids.map((id) => () => owner.post(`${own}/question-sets/${id}/import`, { format: 'jsonl', text: rows.join('\n') })),
  );
  const starts = await pausesOf(callers.map((one) => () => one.post(`${own}/evaluations`, { setId: ids[0] })));

  expect(imports.answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  expect(starts.answers.map(({ status }) => status)).toEqual([201, 201, 201]);
  expect(Math.min(...imports.pauses, ...starts.pauses)).toBeGreaterThan(150);
});

test('an evaluation beyond the fifth is refused before a question is read', async () => {
  const { assistantId } = await anAssistant(stack);
  const own = `/assistants/${assistantId}`;
  const { setId } = (await owner.post<{ setId: string }>(`${own}/question-sets`, { name: 'Some' })).body;
  await owner.post(`${own}/question-sets/${setId}/cases`, { question: 'Where?', expected: { kind: 'none' } });
  const begin = () => owner.post<{ evaluationId: string }>(`${own}/evaluations`, { setId });
  const begun = [];
  for (let nth = 0; nth < 5; nth += 1) begun.push(await begin());

  const { all, value } = await profiled(begin);

  expect([...begun.map(({ status }) => status), value.status]).toEqual([201, 201, 201, 201, 201, 422]);
  expect([...of('questionCases', all), ...of('evaluationResults', all)]).toEqual([]);
  for (const { body } of begun) await owner.post(`${own}/evaluations/${body.evaluationId}/stop`);
});

test('unfinished evaluations of other assistants are not read, and results are erased in parts', async () => {
  const { evaluations, mongo } = stack.service;
  const rows = range(300).map(() => ({ _id: randomUUID(), assistantId: randomUUID(), dueAt: new Date() }));
  await mongo.collection('evaluations').insertMany(rows as never);
  const [assistantId, conversationId] = [randomUUID(), randomUUID()];
  const origin = { conversationIds: [conversationId], evaluationId: 'none' };
  const results = range(1_200).map(() => ({ _id: randomUUID(), ...origin }));
  await mongo.collection('evaluationResults').insertMany(results as never);

  const { all } = await profiled(async () => {
    const { evaluationId } = await evaluations.create({ assistantId, set: null, questions: [asked()] });
    const one = await evaluations.get({ assistantId, evaluationId });
    await evaluations.release({ ...one, next: 0, token: 'nobody', tries: 1 });
    await evaluations.stop({ assistantId, evaluationId });
    await evaluations.eraseConversations([conversationId]);
  });

  expect(most(of('evaluations', all), examinedBy)).toBeLessThan(20);
  expect(most(of('evaluationResults', all), ({ ndeleted }) => ndeleted)).toBeLessThanOrEqual(500);
  expect(await mongo.collection('evaluationResults').countDocuments(origin)).toBe(0);
  await mongo.collection('evaluations').deleteMany({ _id: { $in: rows.map(({ _id }) => _id) } } as never);
});
