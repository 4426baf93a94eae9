import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { anAssistant, type TestAssistant } from '../support/builders.ts';
import { openStream, spokenOf } from '../support/event-stream.ts';
import { eventually } from '../support/eventually.ts';
import { startRealProcess } from '../kit/processes.ts';
import { openProvider, replyWith } from '../kit/provider.ts';
import { QUICK } from '../support/quick.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0, timing: QUICK });

const acceptAll = async ({ call }: TestAssistant, session_id: string, messages: string[]): Promise<string> => {
  let id = '';
  for (const message of messages) {
    const { body } = await call<{ conversationId: string }>('/api/v1/chat', {
      body: { session_id, message },
      headers: { Prefer: 'respond-async' },
    });
    id = body.conversationId;
  }
  return id;
};
const saidIn = (assistant: TestAssistant, conversationId: string) =>
  eventually(async () => {
    const { messages } = (await assistant.history(conversationId)).body;
    if (messages.some(({ seq }) => seq === null)) throw new Error('a message is pending');
    return messages.map(({ role, content }) => `${role}: ${content}`);
  });

test('the worker that waits for further messages is killed, and all jobs are lost: a sweep of the next one answers the group', async () => {
  const assistant = await anAssistant(stack, { input: { quickMessageSeconds: 5 } });
  const { redis, queues } = stack.service;
  const killed = await startRealProcess('quickReply', stack.env);
  const conversationId = await acceptAll(assistant, randomUUID(), ['hi', 'what are your opening hours']);
  // The worker has taken the job, so it waits.
  await eventually(async () => expect(await queues.turns.countJobs()).toMatchObject({ waiting: 0, active: 0 }));

  await killed.kill();
  const keys = await redis.keys(`{${stack.env['REDIS_PREFIX']}-0}*`);
  if (keys.length > 0) await redis.del(...keys);
  const next = await startRealProcess('quickReply', stack.env);

  expect(await saidIn(assistant, conversationId)).toEqual([
    'user: hi',
    'user: what are your opening hours',
    'assistant: We are open from 9 to 5.',
  ]);
  await next.kill('SIGTERM');
});

test('a worker is killed while it writes the reply to a group: the next one answers the same group, once', async () => {
  const assistant = await anAssistant(stack, { input: { quickMessageSeconds: 2 } });
  const { assistantId, apiKey } = assistant;
  const provider = await openProvider();
  await stack.service.assistants.setEngine(assistantId, { kind: 'openai', baseUrl: provider.baseUrl, model: 'm' });
  provider.behave(({ open, say }) => {
    open();
    say('I was about to ');
  });
  const killed = await startRealProcess('quickReply', stack.env);
  const session_id = randomUUID();
  const ask = (message: string) =>
    openStream(`${stack.url}/api/v1/chat`, { body: { session_id, message }, bearer: apiKey });
  const [one, other] = [await ask('hi'), await ask('on Sundays?')];
  await eventually(() => expect(spokenOf(other.events)).toBe('I was about to'));

  await killed.kill();
  const late = await ask('one more');
  provider.behave(replyWith('From nine', ' to five.'));
  const next = await startRealProcess('quickReply', stack.env);
  await Promise.all([one, other, late].map(({ ended }) => ended));

  const conversationId = String(one.events[0]?.data['conversationId']);
  expect(await saidIn(assistant, conversationId)).toEqual([
    'user: hi',
    'user: on Sundays?',
    'assistant: From nine to five.',
    'user: one more',
    'assistant: From nine to five.',
  ]);
  expect([one, other].map(({ events }) => spokenOf(events))).toEqual(['', 'From nine to five.']);
  expect(one.events.at(-1)?.data).toEqual({ ...other.events.at(-1)?.data, mergedInto: expect.any(String) });
  expect(provider.asked.map(({ body }) => body.messages.at(-1)?.content.includes('hi\non Sundays?'))).toEqual([
    true,
    true,
    false,
  ]);
  await next.kill('SIGTERM');
  await provider.close();
});
