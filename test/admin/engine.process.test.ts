import { expect, test } from 'vitest';
import { AssistantInput } from '../../src/assistants/assistant.ts';
import { adminJson, runAdmin, spawnAdmin, useAdmin } from '../support/admin.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const strict = useStack({ replyWorkers: 0, deliveryWorkers: 0, env: { WEBHOOK_ALLOW_PRIVATE: 'false' } });
const command = useAdmin(stack);
const strictCommand = useAdmin(strict);
const PROVIDER = ['--engine', 'openai', '--base-url', 'http://127.0.0.1:9/v1/', '--model', 'm'];

test('a provider’s key comes from a variable and is never shown, and the engine can be set back', async () => {
  const { assistantId } = await stack.service.assistants.createAssistant({ name: 'A' });
  const env = { ...command, PROVIDER_KEY: 'sk-very-secret' };
  const update = ['assistant', 'update', assistantId];

  const set = await spawnAdmin(env, [
    ...update,
    ...PROVIDER,
    '--key-env',
    'PROVIDER_KEY',
    '--guard',
    'refuse',
    '--json',
  ]);
  const shown = await runAdmin(env, ['assistant', 'show', assistantId]);
  const back = await adminJson<{ engine: unknown; guard: string }>(env, ...update, '--engine', 'retrieval');

  expect([set.status, JSON.parse(set.stdout)]).toMatchObject([
    0,
    { guard: 'refuse', engine: { kind: 'openai', baseUrl: 'http://127.0.0.1:9/v1', apiKey: 'configured' } },
  ]);
  expect(shown.stdout).toContain('m at http://127.0.0.1:9/v1 (key configured)');
  for (const { stdout } of [set, shown]) expect(stdout).not.toMatch(/very-secret|apiKeySealed|v1\.development/);
  expect(back).toMatchObject({ engine: { kind: 'retrieval' }, guard: 'refuse' });
});

test('each setting of an assistant can be changed, and the others stay', async () => {
  const { assistantId } = await stack.service.assistants.createAssistant({ name: 'A', instructions: 'Be brief.' });
  const update = (...args: string[]) => adminJson(command, 'assistant', 'update', assistantId, ...args);
  const { openingHours: _hours, ...fields } = AssistantInput.shape;
  const changes: Record<Exclude<keyof typeof fields, 'instructions'>, [unknown, ...string[]]> = {
    name: ['B', '--name', 'B'],
    languages: [['de', 'en'], '--languages', 'de,en'],
    holdingText: ['One moment.', '--holding-text', 'One moment.'],
    answering: ['careful', '--answering', 'careful'],
    threshold: [0.7, '--threshold', '0.7'],
    dedupeWindowSeconds: [5, '--dedupe-window', '5'],
    guard: ['off', '--guard', 'off'],
    allowedLinks: [['example.com'], '--allowed-links', 'example.com'],
    strict: [true, '--strict', 'on'],
    takeWithinMinutes: [30, '--take-within', '30'],
    ifNotTaken: ['remind', '--if-not-taken', 'remind'],
    contactsEscalate: [true, '--contacts-escalate', 'on'],
    quickMessageSeconds: [2.5, '--quick-messages', '2.5'],
    sessionLimitPerMinute: [7, '--session-limit', '7'],
    turnsPerMonth: [8, '--turns-per-month', '8'],
    tokensPerDay: [9, '--tokens-per-day', '9'],
    ifTokensUsedUp: ['hand_over', '--if-tokens-used-up', 'hand_over'],
    keepDays: [10, '--keep-days', '10'],
    drafts: [true, '--drafts', 'on'],
    worseAllowed: [2, '--worse-allowed', '2'],
  };

  await update(...Object.values(changes).flatMap(([, ...args]) => args));
  const all = await stack.service.assistants.drafts.apply(await stack.service.assistants.getAssistant(assistantId));
  await update('--threshold', 'none', '--take-within', 'none', '--drafts', 'on', '--contacts-escalate', 'off');
  const after = await stack.service.assistants.drafts.apply(await stack.service.assistants.getAssistant(assistantId));
  const wrong = await runAdmin(command, [
    'assistant',
    'update',
    assistantId,
    '--answering',
    'bold',
    '--strict',
    'maybe',
  ]);

  const wanted = Object.fromEntries(Object.entries(changes).map(([name, [value]]) => [name, value]));
  expect(all).toMatchObject({ instructions: 'Be brief.', ...wanted });
  expect(after).toMatchObject({ ...wanted, threshold: null, takeWithinMinutes: null, contactsEscalate: false });
  expect(wrong.status).toBeGreaterThan(0);
});

test.each<[string, string[], 'strict'?]>([
  ['nothing to change', []],
  ['a provider without an address', ['--engine', 'openai', '--model', 'm']],
  ['a model without a provider', ['--model', 'm']],
  ['a variable that is not set', [...PROVIDER, '--key-env', 'MISSING']],
  ['a private address where those are refused', PROVIDER, 'strict'],
])('%s is refused', async (_name, args, where) => {
  const { service } = where === 'strict' ? strict : stack;
  const env = where === 'strict' ? strictCommand : command;
  const { assistantId } = await service.assistants.createAssistant({ name: 'A' });

  const { status } = await runAdmin(env, ['assistant', 'update', assistantId, ...args]);

  expect(status).toBeGreaterThan(0);
  expect((await service.assistants.getAssistant(assistantId)).engine).toEqual({ kind: 'retrieval' });
});
