import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { constants, getPriority, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { mongo } from 'mongoose';
import { expect, onTestFinished, test } from 'vitest';
import { runAdmin, useAdmin } from '../support/admin.ts';
import { anAssistant, anEntry, type ErrorBody } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { watchLoop } from '../support/loop.ts';
import { sized } from '../support/size.ts';
import { useOpened, useStack } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';
import { collectionIn, profileStatements } from '../support/profile.ts';

const LARGEST = 4 * 1024 * 1024 - 4_096;
const FILE = sized({ everyday: 1024 * 1024 - 4_096, long: LARGEST });
const MOST = 10_000;
const MANY = sized({ everyday: 1_000, long: MOST });
const TOO_MANY = 'file must have at most 10,000 entries';

const stack = useStack({ deliveryWorkers: 0 });
const command = useAdmin(stack);
const owner = useOpened(() => anOperator(stack));

const range = (count: number) => Array.from({ length: count }, (_, index) => index);
const rows = (count: number) => range(count).map((row) => ({ question: row.toString(36), answer: 'b' }));
const newAssistant = () => anAssistant(stack, { knowledge: [] });
/** An assistant with this many entries, stored as the service would. */
const aFilledOne = async (count: number) => {
  const assistant = await newAssistant();
  if (count === 0) return assistant;
  const { assistantId } = assistant;
  const stored = rows(count).map((row, nth) => ({
    _id: randomUUID(),
    assistantId,
    position: nth + 1,
    ...anEntry(row),
  }));
  await stack.service.mongo.collection('knowledge').insertMany(stored as never);
  const last = { $set: { 'knowledgePlaces.last': count } };
  await stack.service.mongo.collection<{ _id: string }>('assistants').updateOne({ _id: assistantId }, last);
  return assistant;
};
const importInto = <Body = ErrorBody & { imported: number; refused: unknown[] }>(
  assistantId: string,
  body: Record<string, unknown>,
) => owner.post<Body>(`/assistants/${assistantId}/knowledge-import`, body);

const countOf = (assistantId: string) => stack.service.mongo.collection('knowledge').countDocuments({ assistantId });

/** Repeats `piece` until the request has its size, in the long suite the maximum. */
const filled = (first: string, piece: string) => first + piece.repeat(FILE / (JSON.stringify(piece).length - 2));
const CSV = 'question,answer\n';
const QUESTION = '# Q\n\n';

const LARGE_FILES = [
  { of: 'tiny rows', format: 'csv', text: filled(CSV, 'a,b\n'), answers: [422] },
  { of: 'rows that are read, and none of them good', format: 'csv', text: filled(CSV, 'a,\n'), answers: [200] },
  { of: 'links that do not end', format: 'markdown', text: filled(QUESTION, '[a]('), answers: [200, 422] },
  { of: 'emphasis that does not end', format: 'markdown', text: filled(QUESTION, '*a_'), answers: [200, 422] },
  { of: 'tiny headings', format: 'markdown', text: filled('', '# a\nb\n'), answers: [422] },
];

test.each(sized({ everyday: LARGE_FILES.slice(0, 1), long: LARGE_FILES }))(
  'while a file of $of is imported, others chat',
  async ({ format, text, answers }) => {
    const { assistantId } = await newAssistant();
    const neighbour = await anAssistant(stack);
    await neighbour.chat({ session_id: randomUUID(), message: 'hello' });

    let ended = false;
    const imported = importInto(assistantId, { format, text }).finally(() => {
      ended = true;
    });
    const waits: number[] = [];
    while (!ended) {
      const begun = performance.now();
      expect((await neighbour.chat({ session_id: randomUUID(), message: 'hello' })).status).toBe(200);
      waits.push(performance.now() - begun);
    }

    expect(answers).toContain((await imported).status);
    expect(Math.max(...waits)).toBeLessThan(atPace(1_000));
  },
);

/** The priorities of the processes that read a file for this one. */
const readersPriorities = (): number[] =>
  readFileSync(`/proc/${process.pid}/task/${process.pid}/children`, 'utf8')
    .split(' ')
    .filter((pid) => pid !== '' && readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('knowledge/reader.ts'))
    .map((pid) => getPriority(Number(pid)));

/** An assistant and a program that imports into it a file whose reading takes as long as it may, until it leaves. */
const aSlowImport = async () => {
  const { assistantId } = await newAssistant();
  const rights = { scope: 'manage' as const, assistantIds: [assistantId], createdBy: null };
  const { secret } = await stack.service.tokens.createToken({ name: 'a program', ...rights });
  const caller = new AbortController();
  const left = fetch(`${stack.url}/operator/v1/assistants/${assistantId}/knowledge-import`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${secret}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ format: 'markdown', text: QUESTION + '['.repeat(LARGEST) }),
    signal: caller.signal,
  }).catch(() => 'left');
  onTestFinished(() => caller.abort());
  await eventually(() => expect(readersPriorities()).toEqual([constants.priority.PRIORITY_BELOW_NORMAL]));
  return { assistantId, left, leave: () => caller.abort() };
};

test('a file is read after turns have their time, and if its caller has left, no further', async () => {
  const { assistantId, left, leave } = await aSlowImport();
  const begun = performance.now();
  const imported = importInto(assistantId, { format: 'json', text: JSON.stringify(rows(40)) });

  leave();

  expect((await imported).body).toEqual({ imported: 40, refused: [] });
  // The file would be read for 20 s, however fast the machine is.
  expect(performance.now() - begun).toBeLessThan(15_000);
  expect(await left).toBe('left');
});

test('while the file of an assistant takes as long as it may, another one’s is read', async () => {
  const { left, leave } = await aSlowImport();
  const { assistantId } = await newAssistant();
  const first = await Promise.race([
    left.then(() => 'the slow one'),
    importInto(assistantId, { format: 'json', text: JSON.stringify(rows(40)) }).then(({ status }) => status),
  ]);
  leave();

  expect(first).toBe(200);
  expect(await left).toBe('left');
});

test('very many entries are written in small steps, and none is used before the last is written', async () => {
  const { assistantId } = await newAssistant();
  const text = JSON.stringify(rows(MANY));
  const seen = new Set<unknown>();

  let ended = false;
  const stopWatching = watchLoop();
  const imported = importInto(assistantId, { format: 'json', text }).finally(() => {
    ended = true;
  });
  while (!ended) {
    seen.add((await owner.get(`/assistants/${assistantId}/overview`)).body['knowledgeEntries']);
    await pause(5);
  }
  const { ms, name } = stopWatching();

  expect((await imported).body).toEqual({ imported: MANY, refused: [] });
  expect([...seen].filter((count) => count !== 0 && count !== MANY)).toEqual([]);
  expect(ms, name).toBeLessThan(atPace(200));
});

test('an import that fails half way changes nothing', async () => {
  const { assistantId } = await newAssistant();
  const path = `/assistants/${assistantId}`;
  await importInto(assistantId, { format: 'json', text: JSON.stringify(rows(3)) });
  const collection = stack.service.mongo.collection('knowledge');
  // A unique index makes the database refuse a row in the middle of the import.
  const like = { question: 'taken' };
  await collection.createIndex({ question: 1 }, { unique: true, partialFilterExpression: like });
  onTestFinished(async () => void (await collection.dropIndex('question_1')));
  await collection.insertOne({ _id: randomUUID() as never, assistantId: 'another', position: 1, ...like });
  const text = JSON.stringify(rows(1_200).with(1_100, { ...like, answer: 'b' }));

  const failed = await importInto(assistantId, { format: 'json', text });

  expect(failed.status).toBe(500);
  expect((await owner.get<{ entries: unknown[] }>(`${path}/knowledge`)).body.entries).toHaveLength(3);
  expect(await collection.countDocuments({ assistantId })).toBe(3);
  await owner.post(`${path}/knowledge`, anEntry({ question: 'after' }));
  expect((await owner.get(`${path}/overview`)).body).toMatchObject({ knowledgeEntries: 4 });
});

test('imports at once do not exceed an assistant’s maximum together', async () => {
  const stored = sized({ everyday: MOST - 75, long: 0 });
  const each = (MOST - stored) * 0.4;
  const { assistantId } = await aFilledOne(stored);
  const text = JSON.stringify(rows(each));

  // On a busy machine a service may refuse one that waits too long. Callers send it again.
  const send = () =>
    eventually(async () => {
      const answer = await importInto(assistantId, { format: 'json', text });
      expect(answer.status).not.toBe(503);
      return answer;
    });
  const answers = await Promise.all(range(5).map(send));

  expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 200, 422, 422, 422]);
  expect((await owner.get(`/assistants/${assistantId}/overview`)).body).toMatchObject({
    knowledgeEntries: stored + 2 * each,
  });
});

test('an import of too many entries is refused with a clear message, by the API and by the command', async () => {
  const { assistantId } = await newAssistant();
  const text = JSON.stringify(rows(MOST + 1));
  const file = join(tmpdir(), `${randomUUID()}.json`);
  await writeFile(file, text);
  onTestFinished(() => rm(file));
  const full = 'knowledge would have more than 10,000 entries, the most an assistant may have';

  const refused = await importInto(assistantId, { format: 'json', text });
  const dry = await importInto(assistantId, { format: 'json', text, dryRun: true });
  const byCommand = await runAdmin(command, ['knowledge', 'import', '--assistant', assistantId, file]);
  const { assistantId: nearlyFull } = await aFilledOne(MOST - 1);
  const path = `/assistants/${nearlyFull}/knowledge`;
  const two = await importInto(nearlyFull, { format: 'json', text: JSON.stringify(rows(2)) });
  const last = await owner.post(path, anEntry());
  const one = await owner.post<ErrorBody>(path, anEntry());
  const replaced = await importInto(nearlyFull, { format: 'json', text: JSON.stringify(rows(2)), replace: true });

  expect([refused, dry].map(({ status, body }) => [status, body.error.message])).toEqual([
    [422, TOO_MANY],
    [422, TOO_MANY],
  ]);
  expect(byCommand.status).toBe(1);
  expect(byCommand.stderr).toContain(TOO_MANY);
  expect([two, one].map(({ status, body }) => [status, body.error.message])).toEqual([
    [422, full],
    [422, full],
  ]);
  expect(last.status).toBe(201);
  expect(replaced.body).toEqual({ imported: 2, refused: [] });
  // Many entries are deleted after the answer.
  await eventually(async () => expect(await countOf(nearlyFull)).toBe(2));
});

test('the entries that an import replaces are removed in small steps', async () => {
  const { assistantId } = await aFilledOne(1_500);
  const text = JSON.stringify(rows(2));

  const statements = await profileStatements(stack, async () => {
    await importInto(assistantId, { format: 'json', text, replace: true });
    await eventually(async () => expect(await countOf(assistantId)).toBe(2));
  });

  const removed = statements
    .filter((one) => one.op === 'remove' && collectionIn(one) === 'knowledge')
    .map(({ ndeleted }) => ndeleted);
  expect(removed).toEqual(range(30).map(() => 50));
});

test('the overview counts the knowledge without loading it', async () => {
  const { assistantId } = await aFilledOne(MANY);
  const database = stack.service.mongo.db as unknown as mongo.Db;
  await database.command({ profile: 2 });
  onTestFinished(async () => void (await database.command({ profile: 0 })));

  const { body } = await owner.get(`/assistants/${assistantId}/overview`);

  const asked = await database
    .collection('system.profile')
    .find({ ns: `${database.databaseName}.knowledge` })
    .toArray();
  expect(body).toMatchObject({ knowledgeEntries: MANY });
  expect(asked.map(({ op, command }) => [op, Object.keys(command as object)[0]])).toEqual([['command', 'aggregate']]);
  expect(asked[0]).toMatchObject({ docsExamined: 0, nreturned: 1 });
});
