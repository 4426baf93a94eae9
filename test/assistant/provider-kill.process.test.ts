import { randomUUID } from 'node:crypto';
import { afterAll, expect, test } from 'vitest';
import { createVault } from '../../src/platform/process/vault.ts';
import { createEngines } from '../../src/replies/answering.ts';
import { openGuardedAgent } from '../../src/platform/http/address-guard.ts';
import { anAssistant } from '../support/builders.ts';
import { deltasOf, openStream, spokenOf } from '../support/event-stream.ts';
import { eventually } from '../support/eventually.ts';
import { startRealProcess } from '../kit/processes.ts';
import { openProvider, replyWith } from '../kit/provider.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const agent = openGuardedAgent({ allowPrivate: false, connections: 1 });
afterAll(() => agent.destroy());

test('after a worker is killed during a provider’s stream, the next one starts over, one answer is stored, and what it cost stays spent', async () => {
  const { assistantId, apiKey, history } = await anAssistant(stack, { input: { tokensPerDay: 100_000 } });
  const used = async () =>
    (await stack.service.mongo.collection('allowances').findOne({ target: assistantId }))?.['used'];
  const provider = await openProvider();
  await stack.service.assistants.setEngine(assistantId, { kind: 'openai', baseUrl: provider.baseUrl, model: 'm' });
  provider.behave(({ open, say }) => {
    open();
    say('I was about to ');
  });
  const killed = await startRealProcess('reply', stack.env);
  const open = await openStream(`${stack.url}/api/v1/chat`, {
    body: { session_id: randomUUID(), message: 'What are your opening hours?' },
    bearer: apiKey,
  });
  await eventually(() => expect(spokenOf(open.events)).toBe('I was about to'));

  const reserved = Number(await used());
  await killed.kill();
  provider.behave(replyWith('From nine', ' to five.'));
  const next = await startRealProcess('reply', stack.env);
  const turnId = String(open.events[0]?.data.turnId);
  // The dead worker's lease would expire after ten seconds. The test deletes it instead of waiting.
  await stack.service.redis.del(`{${stack.env.REDIS_PREFIX}-0}:lease:${turnId}`);
  const events = await open.ended;

  expect(deltasOf(events).at(-1)?.attempt).toBe(2);
  expect(spokenOf(events)).toBe('From nine to five.');
  expect(events.at(-1)?.data.reply).toBe('From nine to five.');
  const { messages } = (await history(String(events[0]?.data.conversationId))).body;
  expect(messages.map(({ role }) => role)).toEqual(['user', 'assistant']);
  expect(reserved).toBeGreaterThan(800);
  await eventually(async () => expect(await used()).toBe(reserved + 127));
  await next.kill('SIGTERM');
  await provider.close();
});

test.each([
  'https://127.0.0.1:8443/v1',
  'https://[::1]:8443/v1',
  'https://169.254.169.254/v1',
  'https://localhost:8443/v1',
  'http://provider.example/v1',
])('a provider at %s is not called if private addresses are not allowed', async (baseUrl) => {
  const vault = createVault({ keys: [{ id: 'k', key: Buffer.alloc(32, 1) }] });
  const engines = createEngines({
    vault,
    dispatcher: agent,
    allowPrivate: false,
    reserveCall: async () => null,
    onBudgetUsedUp: () => undefined,
  });
  const settings = { timeoutMs: 500, temperature: null, maxTokens: 100, historyTokens: 100, apiKeySealed: null };

  const { why } = await engines.reply({
    assistant: {
      assistantId: 'a',
      version: '1',
      name: 'A',
      instructions: '',
      languages: [],
      threshold: null,
      knowledge: [],
      engine: { kind: 'openai', baseUrl, model: 'm', ...settings },
    },
    message: 'hello there',
    language: 'en',
    history: async () => [],
    signal: new AbortController().signal,
  });

  expect(why.fallBack).toEqual({ from: 'openai', because: 'address_refused' });
});

test('the guard also checks the address at the socket, in every notation', async () => {
  const provider = await openProvider();
  const refusal = agent.request({ origin: new URL(provider.baseUrl).origin, path: '/', method: 'GET' });

  await expect(refusal).rejects.toMatchObject({ name: 'AddressRefused' });
  expect(provider.asked).toHaveLength(0);
  await provider.close();
});
