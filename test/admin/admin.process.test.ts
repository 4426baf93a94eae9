import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, describe, expect, onTestFinished, test } from 'vitest';
import { adminJson, runAdmin, spawnAdmin, useAdmin } from '../support/admin.ts';
import { aTurn, anAssistant, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { useStack } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';

const stack = useStack();
const env = useAdmin(stack);
const folder = mkdtempSync(join(tmpdir(), 'parley-admin-'));
const UNKNOWN = '00000000-0000-4000-8000-000000000000';

afterAll(() => rmSync(folder, { recursive: true, force: true }));

const admin = <Value = Record<string, unknown>>(...args: string[]): Promise<Value> => adminJson<Value>(env, ...args);
const chat = (apiKey: string, body = aTurn()) => request(`${stack.url}/api/v1/chat`, { body, bearer: apiKey });
const file = (name: string, text: string): string => {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
};

test('the doctor looks again and again, one line each time in a pipe, until Ctrl-C', async () => {
  const { PATH = '' } = process.env;
  const args = ['scripts/admin.ts', 'doctor', '--watch', '--json'];
  const child = spawn(process.execPath, args, { env: { PATH, ...env }, stdio: ['ignore', 'pipe', 'inherit'] });
  onTestFinished(() => void child.kill('SIGKILL'));
  const lines: string[] = [];
  createInterface(child.stdout).on('line', (line) => lines.push(line));
  await eventually(() => expect(lines.length).toBeGreaterThanOrEqual(2), 30_000);

  child.kill('SIGINT');
  const [status] = await once(child, 'exit');

  const looks = lines.map((line) => JSON.parse(line) as { at: string; ok: boolean; queues: object[] });
  expect(looks.every(({ at, queues }) => !Number.isNaN(Date.parse(at)) && queues.length === 4)).toBe(true);
  expect(status).toBe(looks.at(-1)?.ok ? 0 : 1);
});

describe('assistants, knowledge and keys', () => {
  test('an assistant with knowledge and a key, created by the command, answers over HTTP', async () => {
    const { assistantId } = await admin<{ assistantId: string }>(
      'assistant',
      'create',
      '--name',
      'Shop',
      '--dedupe-window',
      '5',
    );
    const entries = [{ question: 'What are your opening hours?', answer: 'Nine to five.' }, { question: 'No answer' }];
    const path = file('faq.json', JSON.stringify(entries, null, 1));
    const [imported, made] = await Promise.all([
      admin('knowledge', 'import', '--assistant', assistantId, path),
      admin<{ apiKey: string }>('key', 'create', '--assistant', assistantId, '--name', 'web', '--limit', '7'),
    ]);

    const answer = await chat(made.apiKey);

    expect(imported).toEqual({ imported: 1, refused: [{ line: 6, reason: 'entry 2: answer is required' }] });
    expect(Object.keys(made)).toEqual(['keyId', 'apiKey']);
    expect(answer.status).toBe(200);
    expect(answer.body.reply).toContain('Nine to five.');
    expect(answer.headers.get('x-ratelimit-limit')).toBe('7');
    expect(await admin('assistant', 'show', assistantId)).toMatchObject({
      name: 'Shop',
      dedupeWindowSeconds: 5,
      knowledgeEntries: 1,
    });
  });

  test('lists show all objects and no secret', async () => {
    const { assistantId, apiKey, keyId } = await anAssistant(stack);

    const [assistants, keys, knowledge] = await Promise.all([
      admin<{ assistantId: string }[]>('assistant', 'list'),
      admin('key', 'list', '--assistant', assistantId),
      admin('knowledge', 'list', '--assistant', assistantId),
    ]);

    expect(assistants.map((one) => one.assistantId)).toContain(assistantId);
    expect(keys).toMatchObject([{ keyId, lastFour: apiKey.slice(-4), revokedAt: null }]);
    expect(knowledge).toMatchObject([{ question: 'What are your opening hours?' }]);
    expect(JSON.stringify([assistants, keys])).not.toMatch(/sessionKey|tokenHash|"hash"|sk_/);
  });

  test('a rotated key keeps its id and limit, and its old secret and a revoked key are refused', async () => {
    const { apiKey, keyId } = await anAssistant(stack, { limitPerMinute: 500 });
    expect((await chat(apiKey)).status).toBe(200);

    const rotated = await admin<{ keyId: string; apiKey: string }>('key', 'rotate', keyId);
    await eventually(async () => expect((await chat(apiKey)).status).toBe(401));
    const answer = await chat(rotated.apiKey);
    const limited = await admin<object>('key', 'update', keyId, '--turns-per-month', '7');
    const unlimited = await admin<object>('key', 'update', keyId, '--turns-per-month', 'none');
    const kept = await admin<{ apiKey: string }>('key', 'rotate', keyId, '--overlap', '1');
    const both = await Promise.all([rotated, kept].map((one) => chat(one.apiKey)));
    const revoked = await admin('key', 'revoke', keyId);
    for (const one of [rotated, kept]) await eventually(async () => expect((await chat(one.apiKey)).status).toBe(401));
    const again = await runAdmin(env, ['key', 'rotate', keyId]);

    expect(rotated.keyId).toBe(keyId);
    expect([limited, unlimited]).toMatchObject([{ turnsPerMonth: 7 }, { turnsPerMonth: null }]);
    expect([answer, ...both].map(({ status }) => status)).toEqual([200, 200, 200]);
    expect(answer.headers.get('x-ratelimit-limit')).toBe('500');
    expect(revoked).toMatchObject({ keyId, revokedAt: expect.any(String) });
    expect(again).toMatchObject({ status: 1, stderr: `There is no live key ${keyId}.\n` });
  });

  test('knowledge can be replaced in any format, and a file without a valid row replaces nothing', async () => {
    const { assistantId } = await anAssistant(stack);
    const replace = (path: string) => admin('knowledge', 'import', '--assistant', assistantId, '--replace', path);
    const known = () => stack.service.assistants.listKnowledge(assistantId);

    const first = await replace(file('faq.csv', 'question,answer,variants\nPrice?,Five,How much?|Cost?\n,Six,\n'));
    const afterFirst = await known();
    await replace(file('faq.md', '# Help\n\n## Price?\n\nSeven **euros**.\n'));
    const nothing = await replace(file('bad.csv', 'question,answer\nOnly a question,\n'));

    expect(first).toEqual({ imported: 1, refused: [{ line: 3, reason: 'question is required' }] });
    expect(afterFirst).toMatchObject([{ question: 'Price?', answer: 'Five', variants: ['How much?', 'Cost?'] }]);
    expect(nothing).toMatchObject({ imported: 0, refused: [{ line: 2 }] });
    expect(await known()).toMatchObject([{ answer: 'Seven euros.' }]);
  });
});

test('the inbound webhook channel is protected, opened with a warning, limited and disconnected', async () => {
  const { assistantId } = await anAssistant(stack);
  const path = `/api/v1/channels/webhook/${assistantId}`;
  const set = (...options: string[]) => admin('channel', 'set', '--assistant', assistantId, ...options);
  const callUntil = (status: number, bearer: string | null = null) =>
    eventually(async () => {
      const answer = await request(`${stack.url}${path}`, { body: aTurn(), bearer });
      expect(answer.status).toBe(status);
      return answer;
    });

  const closed = await set('--token', 't-1', '--limit', '900');
  const limited = await callUntil(200, 't-1');
  await callUntil(401);
  const { secretPath } = await admin<{ secretPath: string }>('channel', 'address', '--assistant', assistantId);
  const bySecret = () => request(`${stack.url}${secretPath}`, { body: aTurn() });
  await eventually(async () => expect((await bySecret()).status).toBe(200));
  await admin('channel', 'address', '--assistant', assistantId, '--remove');
  await eventually(async () => expect((await bySecret()).status).toBe(401));
  const open = await set('--open');
  await callUntil(200);
  const off = await set('--off');
  await callUntil(404);

  expect(closed).toEqual({ assistantId, connected: true, open: false, limitPerMinute: 900, path, secretAddress: null });
  expect(limited.headers.get('x-ratelimit-limit')).toBe('900');
  expect(open).toMatchObject({ open: true, limitPerMinute: 900, warning: expect.stringContaining('anyone who knows') });
  expect(off).toMatchObject({ connected: false, open: false });
});

describe('conversations', () => {
  test('the list begins with the latest change', async () => {
    const assistant = await anAssistant(stack);
    const { body: first } = await assistant.chat(aTurn({ session_id: 'first' }));
    const { body: second } = await assistant.chat(aTurn({ session_id: 'second' }));
    await admin('conversation', 'tag', first.conversationId, 'late');

    const listed = await admin<{ conversationId: string }[]>(
      'conversation',
      'list',
      '--assistant',
      assistant.assistantId,
    );

    expect(listed.map(({ conversationId }) => conversationId)).toEqual([first.conversationId, second.conversationId]);
  });

  test('a conversation is assigned, snoozed, noted and exported, and shown as callers see it with sources', async () => {
    const assistant = await anAssistant(stack);
    const { conversationId } = (await assistant.chat(aTurn())).body;
    const given = { email: 'agent@example.com', password: 'correct horse battery' };
    const { operatorId } = await stack.service.operators.createOperator({ ...given, role: 'agent' });
    const until = new Date(Date.now() + 3_600_000).toISOString();

    const assigned = await admin('conversation', 'assign', conversationId, '--operator', operatorId);
    const snoozed = await admin('conversation', 'snooze', conversationId, '--until', until);
    await admin('conversation', 'note', conversationId, 'Called back.');
    const exported = await admin('conversation', 'export', conversationId);
    const shown = await admin('conversation', 'show', conversationId);
    const freed = await admin('conversation', 'assign', conversationId, '--nobody');
    const neither = await runAdmin(env, ['conversation', 'assign', conversationId]);

    expect([assigned, freed]).toMatchObject([{ assigneeId: operatorId }, { assigneeId: null }]);
    expect(snoozed).toMatchObject({ snoozedUntil: until });
    expect(exported).toMatchObject({ conversation: { assigneeId: operatorId }, notes: [{ content: 'Called back.' }] });
    expect(shown).toEqual((await assistant.history(conversationId, '?include=sources')).body);
    expect(neither).toMatchObject({ status: 2, stdout: '' });
  });

  test('resolving uses the first owner, and asks for an operator if there is none', async () => {
    const assistant = await anAssistant(stack);
    const { body } = await assistant.chat(aTurn());

    const alone = await runAdmin(env, ['conversation', 'resolve', body.conversationId, '--json']);
    const given = { email: 'owner@example.com', password: 'correct horse battery' };
    const { operatorId } = await stack.service.operators.createOperator({ ...given, role: 'owner' });
    await stack.service.operators.createOperator({ ...given, email: 'second@example.com', role: 'owner' });
    const resolved = await admin('conversation', 'resolve', body.conversationId);

    expect(alone).toMatchObject({ status: 2, stdout: '' });
    expect(JSON.parse(alone.stderr)).toMatchObject({ error: { code: 'usage' } });
    expect(resolved).toMatchObject({ status: 'resolved', resolvedBy: operatorId });
  });
});

describe('the command itself', () => {
  test('reports an error in one line, with its exit status', async () => {
    const { assistantId } = await anAssistant(stack);
    const [unknown, unknownJson, missing, badNumber, noCommand, badUrl, badFile] = await Promise.all(
      [
        ['key', 'list', '--assistant', UNKNOWN],
        ['turn', 'show', UNKNOWN, '--json'],
        ['key', 'create', '--name', 'x'],
        ['key', 'create', '--assistant', assistantId, '--name', 'x', '--limit', 'many', '--json'],
        ['nonsense'],
        ['endpoint', 'add', '--assistant', assistantId, '--url', 'ftp://example.com', '--json'],
        ['knowledge', 'import', '--assistant', assistantId, join(folder, 'none.json')],
      ].map((args) => runAdmin(env, args)),
    );

    expect(unknown).toMatchObject({ status: 1, stdout: '', stderr: `There is no assistant ${UNKNOWN}.\n` });
    expect(unknownJson).toMatchObject({ status: 1, stdout: '' });
    expect(JSON.parse(unknownJson?.stderr ?? '')).toEqual({
      error: { code: 'not_found', message: `There is no turn ${UNKNOWN}.` },
    });
    expect(missing).toMatchObject({
      status: 2,
      stdout: '',
      stderr: "required option '--assistant <id>' not specified\n",
    });
    expect(badNumber?.status).toBe(2);
    expect(JSON.parse(badNumber?.stderr ?? '')).toMatchObject({
      error: { code: 'usage', message: expect.stringContaining('whole number') },
    });
    expect(noCommand).toMatchObject({ status: 2, stderr: "unknown command 'nonsense'\n" });
    expect(badUrl?.status).toBe(1);
    expect(JSON.parse(badUrl?.stderr ?? '')).toMatchObject({
      error: { code: 'validation_failed', message: expect.stringContaining('url') },
    });
    expect(badFile).toMatchObject({ status: 1, stderr: expect.stringContaining('ENOENT') });
  });

  test('prints text and help with an example, and ends by itself', async () => {
    const { assistantId } = await anAssistant(stack, { input: { name: 'Bell\u0007\u001b[31m' } });

    const text = await runAdmin(env, ['assistant', 'list']);
    const help = await runAdmin({}, ['key', 'create', '--help']);

    expect(text.status).toBe(0);
    expect(text.stdout).toMatch(/^ASSISTANT +NAME/);
    expect(text.stdout).toContain(`${assistantId}  Bell\uFFFD\uFFFD[31m`);
    expect(help.status).toBe(0);
    expect(help.stdout).toMatch(/Example:\n {2}npm run admin -- key create --assistant [0-9a-f-]{36}/);
    expect(help.stdout).toContain('--json');
  });

  test('reports an unavailable service within seconds', async () => {
    const nowhere = { ...env, MONGODB_URL: 'mongodb://127.0.0.1:1/x', PARLEY_URL: 'http://127.0.0.1:1' };
    const create = ['operator', 'create', '--email', 'a@example.com', '--json'];

    const [listed, created] = await Promise.all([
      spawnAdmin(nowhere, ['assistant', 'list', '--json']),
      spawnAdmin(nowhere, create),
    ]);

    for (const [{ status, stdout, stderr, ms }, which] of [
      [listed, /^The API cannot be reached at http:\/\/127\.0\.0\.1:1: /],
      [created, /^MongoDB cannot be used at the address of/],
    ] as const) {
      expect({ status, stdout }).toEqual({ status: 1, stdout: '' });
      expect(JSON.parse(stderr)).toMatchObject({
        error: { code: 'unavailable', message: expect.stringMatching(which) },
      });
      expect(ms).toBeLessThan(atPace(10_000));
    }
  });

  test('explains how to get a token, and reports a wrong token', async () => {
    const without = await runAdmin({ MONGODB_URL: 'mongodb://127.0.0.1:1/x' }, ['assistant', 'list', '--json']);
    const wrong = await runAdmin({ ...env, OPERATOR_TOKEN: 'op_wrong' }, ['assistant', 'list', '--json']);

    expect([without.status, JSON.parse(without.stderr)]).toMatchObject([
      1,
      { error: { code: 'no_operator_token', message: expect.stringContaining('admin -- token create') } },
    ]);
    expect([wrong.status, JSON.parse(wrong.stderr)]).toMatchObject([1, { error: { code: 'not_signed_in' } }]);
  });

  test('every change is in the audit log under the token’s name', async () => {
    const { assistantId } = await admin<{ assistantId: string }>('assistant', 'create', '--name', 'Trail');
    const one = ['--assistant', assistantId];
    const { keyId } = await admin<{ keyId: string }>('key', 'create', ...one, '--name', 'web');
    await admin('channel', 'set', ...one, '--open');
    await admin('knowledge', 'import', ...one, file('trail.json', '[{"question":"Q","answer":"A"}]'));
    const made = await admin<{ operatorId: string }>('operator', 'create', '--email', 'trail@example.com');
    await admin('operator', 'disable', 'trail@example.com');
    const { tokenId, token } = await admin<{ tokenId: string; token: string }>('token', 'create', '--name', 'ci');

    const { lines } = await stack.service.audit.list({ limit: 7 });

    const done = lines.toReversed().map(({ actor, email, action, target }) => [actor, email, action, target]);
    expect(done).toEqual([
      ['token', 'admin command', 'assistant.create', assistantId],
      ['token', 'admin command', 'key.create', keyId],
      ['token', 'admin command', 'channel.change', assistantId],
      ['token', 'admin command', 'knowledge.import', assistantId],
      ['command', 'admin command', 'operator.create', made.operatorId],
      ['token', 'admin command', 'operator.update', made.operatorId],
      ['command', 'admin command', 'token.create', tokenId],
    ]);
    expect(token).toMatch(/^op_[0-9A-Za-z]{43}$/);
    expect(JSON.stringify(lines)).not.toContain(token);
    expect((await runAdmin({ ...env, OPERATOR_TOKEN: token }, ['assistant', 'list'])).status).toBe(0);
  });
});
