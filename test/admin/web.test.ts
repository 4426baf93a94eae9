import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { adminJson, runAdmin, useAdmin } from '../support/admin.ts';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { useStack } from '../support/stack.ts';
import { atSite, signUser, SITE } from '../support/visitor.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const env = useAdmin(stack);

test('the web channel is switched on, changed and shown, and signs users until its secret is removed', async () => {
  const { assistantId } = await anAssistant(stack);
  const own = ['--assistant', assistantId];
  const { settings, start } = atSite(stack, assistantId);
  // Changes are seen within a second, as the API caches assistants.
  const answers = (call: () => Promise<{ status: number }>, status: number) =>
    eventually(async () => expect((await call()).status).toBe(status));
  await answers(settings, 404);

  const looks = ['--accent', '#1E90FF', '--theme', 'dark', '--side', 'start', '--greeting', 'Hi'];
  const on = await adminJson<object>(env, 'web', 'set', ...own, '--on', '--origins', SITE, ...looks);
  const starters = ['--starter', 'When are you open?', 'Do you ship?', '--title', 'Shop'];
  await adminJson(env, 'web', 'set', ...own, ...starters);
  const shown = await adminJson<object>(env, 'web', 'show', ...own);

  await answers(settings, 200);
  const set = { enabled: true, origins: [SITE], accent: '#1e90ff', theme: 'dark', side: 'start', greeting: 'Hi' };
  expect(on).toMatchObject({ ...set, starters: [], title: '' });
  expect(shown).toMatchObject({ ...set, starters: ['When are you open?', 'Do you ship?'], title: 'Shop' });
  expect((await runAdmin(env, ['web', 'show', ...own])).stdout).toMatch(/origins +https:\/\/shop\.example\n/);

  const { secret } = await adminJson<{ secret: string }>(env, 'web', 'identity', ...own);
  const asUser = () => start(signUser(secret, 'user-42'));
  await answers(asUser, 201);
  await adminJson(env, 'web', 'identity', ...own, '--remove');
  await answers(asUser, 401);

  const cleared = ['--origins', '', '--starter', '', '--greeting', '', '--off'];
  expect(await adminJson(env, 'web', 'set', ...own, ...cleared)).toMatchObject({
    enabled: false,
    origins: [],
    starters: [],
    greeting: '',
    title: 'Shop',
  });
  await answers(settings, 404);
});

test.each([
  [['set'], 2, 'at least one option'],
  [['set', '--on', '--off'], 2, 'cannot be used with'],
  [['set', '--accent', 'red'], 2, 'a colour like'],
  [['set', '--origins', 'https://*.example.com'], 1, 'origins.0 must be an origin'],
  [['set', '--starter', 'x'.repeat(81)], 1, 'starters.0 must'],
])('web %j ends with status %i', async (words, status, message) => {
  const { assistantId } = await anAssistant(stack);
  const ended = await runAdmin(env, ['web', ...words, '--assistant', assistantId]);

  expect([ended.status, ended.stdout]).toEqual([status, '']);
  expect(ended.stderr).toContain(message);
});

test('an unknown assistant is named', async () => {
  const id = randomUUID();
  const { status, stderr } = await runAdmin(env, ['web', 'show', '--assistant', id]);

  expect([status, stderr]).toEqual([1, `There is no assistant ${id}.\n`]);
});
