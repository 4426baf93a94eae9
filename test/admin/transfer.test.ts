import { mkdtempSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, onTestFinished, test } from 'vitest';
import { type Answer, openReceiver, type Received } from '../kit/receiver.ts';
import { runAdmin, useAdmin } from '../support/admin.ts';
import { anAssistant, anEntry, aTurn } from '../support/builders.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0 });
const env = useAdmin(stack);
const folder = mkdtempSync(join(tmpdir(), 'parley-transfer-'));
afterAll(() => rmSync(folder, { recursive: true }));
const fileOf = (assistantId: string): string => join(folder, `${assistantId}.ndjson`);

const anOriginal = async () => {
  const knowledge = ['One?', 'Two?', 'Three?'].map((question) => anEntry({ question }));
  const original = await anAssistant(stack, { input: { name: 'The original', guard: 'refuse' }, knowledge });
  for (let nth = 0; nth < 5; nth += 1) await original.chat(aTurn());
  return original;
};
const knowledgeOf = async (assistantId: string) =>
  (await stack.service.assistants.listKnowledge(assistantId)).map(({ entryId: _id, ...entry }) => entry);

/** The service, of which each of the first answers breaks off after some bytes. */
const openBroken = async (breaks: number, bytes: number): Promise<string> => {
  const respond = async ({ path, headers: { authorization = '' } }: Received, nth: number): Promise<Answer> => {
    const answer = await fetch(`${stack.url}${path}`, { headers: { Authorization: authorization } });
    const [{ status }, body] = [answer, Buffer.from(await answer.arrayBuffer())];
    const headers = { 'Content-Type': answer.headers.get('content-type') ?? '' };
    if (nth > breaks) return { status, headers, body };
    return (res) => res.writeHead(status, headers).write(body.subarray(0, bytes), () => res.destroy());
  };
  const { url, close } = await openReceiver({ respond });
  onTestFinished(close);
  return url;
};

const textOf = (file: string): string => readFileSync(file, 'utf8').replaceAll(/"(cursor|exportedAt)":"[^"]*"/g, '');

test('an export is imported into another assistant, and a dry run tells what differs', async () => {
  const { assistantId } = await anOriginal();
  const copy = await anAssistant(stack, { input: { name: 'The copy' } });
  const file = fileOf(assistantId);
  const into = ['import', file, '--assistant', copy.assistantId];

  const made = await runAdmin(env, ['export', assistantId, file]);
  const dry = await runAdmin(env, [...into, '--dry-run']);
  const imported = await runAdmin(env, into);
  const entries = await stack.service.assistants.listKnowledge(copy.assistantId);
  const same = await runAdmin(env, [...into, '--dry-run']);

  expect([made.stderr, made.stdout]).toEqual([
    '',
    `${file} is whole. Its lines: settings: 1, entry: 3, conversation: 5, note: 0, message: 10, delivery: 0.\n`,
  ]);
  expect(statSync(file).mode & 0o777).toBe(0o600);
  expect([dry.status, imported.status, same.status]).toEqual([3, 0, 0]);
  expect(dry.stdout).toContain('~ guard: "flag" → "refuse"\n+ knowledge: "One?"');
  expect(imported.stdout).toContain('3 entries in the file, 15 lines of conversations skipped.');
  expect(await knowledgeOf(copy.assistantId)).toEqual(await knowledgeOf(assistantId));
  expect(await stack.service.assistants.listKnowledge(copy.assistantId)).toEqual(entries);
  expect(await stack.service.assistants.getAssistant(copy.assistantId)).toMatchObject({
    name: 'The copy',
    guard: 'refuse',
  });
});

test('an export whose answers break off goes on by itself, and one that was stopped goes on when it is repeated', async () => {
  const { assistantId } = await anOriginal();
  const [whole, broken] = [fileOf(assistantId), join(folder, 'broken.ndjson')];
  await runAdmin(env, ['export', assistantId, whole]);

  const PARLEY_URL = await openBroken(3, 2_500);
  const made = await runAdmin({ ...env, PARLEY_URL }, ['export', assistantId, broken]);
  const first = textOf(broken);
  const again = await runAdmin(env, ['export', assistantId, broken]);
  truncateSync(broken, 4_000);
  const gone = await runAdmin(env, ['export', assistantId, broken, '--json']);

  expect([made.stderr, made.status, again.status, gone.status]).toEqual(['', 0, 0, 0]);
  expect(first).toBe(textOf(whole));
  expect(textOf(broken)).toBe(textOf(whole));
  expect(JSON.parse(gone.stdout)).toMatchObject({ file: broken, lines: { entry: 3, message: 10 } });
});

test('an export begins again if the knowledge has changed, and leaves other files alone', async () => {
  const [{ assistantId }, other] = [await anOriginal(), await anAssistant(stack)];
  const file = fileOf(assistantId);
  await runAdmin(env, ['export', assistantId, file]);
  const [header = '', settings = ''] = readFileSync(file, 'utf8').split('\n');
  writeFileSync(file, `${header}\n${settings}\n{"kind":`);
  await stack.service.assistants.addKnowledge(assistantId, [anEntry({ question: 'Four?' })]);
  const [notes, foreign] = [join(folder, 'notes.txt'), fileOf(other.assistantId)];
  writeFileSync(notes, 'Buy milk.');
  await runAdmin(env, ['export', other.assistantId, foreign]);

  const made = await runAdmin(env, ['export', assistantId, file, '--no-conversations']);
  const refused = [
    await runAdmin(env, ['export', assistantId, notes]),
    await runAdmin(env, ['export', assistantId, foreign]),
  ];
  const imported = await runAdmin(env, ['import', notes, '--assistant', other.assistantId]);
  const missing = await runAdmin(env, ['import', join(folder, 'none'), '--assistant', other.assistantId]);

  expect([made.stderr, made.stdout]).toEqual(['', expect.stringContaining('entry: 4, conversation: 0')]);
  expect([...refused, imported, missing].map(({ status }) => status)).toEqual([1, 1, 1, 1]);
  expect(refused.map(({ stderr }) => stderr)).toEqual([
    `${notes} is there already, and is not an export.\n`,
    `${foreign} is an export of another assistant.\n`,
  ]);
  expect([imported.stderr, missing.stderr].join('')).toMatch(/line 1 is not where.*\n.*cannot be opened: ENOENT/);
  expect(readFileSync(notes, 'utf8')).toBe('Buy milk.');
});

test('with drafts, an import is in the draft once, however often it is repeated', async () => {
  const { assistantId } = await anOriginal();
  const copy = await anAssistant(stack, { input: { drafts: true }, knowledge: [] });
  const file = fileOf(assistantId);
  await runAdmin(env, ['export', assistantId, file]);
  writeFileSync(file, readFileSync(file, 'utf8').replace('"drafts":false', '"drafts":true'));

  const made = await runAdmin(env, ['import', file, '--assistant', copy.assistantId]);
  const same = await runAdmin(env, ['import', file, '--assistant', copy.assistantId, '--dry-run']);

  expect([made.stderr, made.status, same.status]).toEqual(['', 0, 0]);
  expect(await knowledgeOf(copy.assistantId)).toEqual([]);
});
