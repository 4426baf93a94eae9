import { expect, test } from 'vitest';
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
