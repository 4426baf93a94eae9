import { randomUUID } from 'node:crypto';
import { expect, onTestFinished, test } from 'vitest';
import { boundedWhy } from '../../src/replies/ask-engine.ts';
import type { AssistantEngine } from '../../src/replies/engines/engine.ts';
import { anAssistant, anEntry } from '../support/builders.ts';
import { openStream, spokenOf } from '../support/event-stream.ts';
import { eventually } from '../support/eventually.ts';
import { openProvider } from '../kit/provider.ts';
import { openStack, useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0 });

const chunk = (fields: object): string => `data: ${JSON.stringify(fields)}\n\n`;

/** A provider that streams exactly these chunks. */
const setUp = async (chunksOf: (message: string) => string[]) => {
  const provider = await openProvider();
  onTestFinished(provider.close);
  provider.behave(({ response }, { body }) => {
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    for (const one of chunksOf(body.messages.at(-1)?.content ?? '')) response.write(one);
    response.end('data: [DONE]\n\n');
  });
  const assistant = await anAssistant(stack, { knowledge: [anEntry()] });
  const { baseUrl } = provider;
  await stack.service.assistants.setEngine(assistant.assistantId, { kind: 'openai', baseUrl, model: 'm' });
  return assistant;
};

const lineOf = (conversationId: string, all = stack.logs) =>
  eventually(() => {
    const found = all.findLast((line) => line.msg === 'turn ended' && line.conversationId === conversationId);
    if (!found) throw new Error('no log line');
    return found;
  });

const storedOf = (conversationId: string, { mongo } = stack.service) =>
  mongo.collection('conversations').findOne({ conversationId });

test('a provider’s finish reason is one of a few words: no visitor’s text in the log, no growing document', async () => {
  const { chat } = await setUp((message) => [
    chunk({
      choices: [{ delta: { content: 'A short answer.' }, finish_reason: `ECHO ${message}${'y'.repeat(100_000)}` }],
    }),
  ]);

  const { status, body } = await chat({ session_id: randomUUID(), message: 'zebra crossing 4111' });

  const line = await lineOf(body.conversationId);
  expect([status, body.reply]).toEqual([200, 'A short answer.']);
  expect(line.why).toMatchObject({ engine: 'openai', finish: 'other' });
  expect(JSON.stringify(line)).not.toMatch(/zebra|yyyy/);
  expect(JSON.stringify(await storedOf(body.conversationId)).length).toBeLessThan(10_000);
});

test.each(['stop', 'length', 'tool_calls'])('the finish reason %s is kept', async (finish_reason) => {
  const { chat } = await setUp(() => [chunk({ choices: [{ delta: { content: 'Yes.' }, finish_reason }] })]);

  const { body } = await chat({ session_id: randomUUID(), message: 'Really?' });

  expect((await lineOf(body.conversationId)).why).toMatchObject({ finish: finish_reason });
});

test.each([
  [-1, 2],
  [1.5, 2],
  [3, 1e300],
  [3, 'zebra'],
])('a usage of %j and %j tokens is not recorded', async (prompt_tokens, completion_tokens) => {
  const { chat } = await setUp(() => [
    chunk({ choices: [{ delta: { content: 'Yes.' }, finish_reason: 'stop' }] }),
    chunk({ choices: [], usage: { prompt_tokens, completion_tokens } }),
  ]);

  const { body } = await chat({ session_id: randomUUID(), message: 'Really?' });

  expect((await lineOf(body.conversationId)).why).toMatchObject({ engine: 'openai', usage: null });
});

test('a lone surrogate or NUL from a provider is answered, streamed, replayed and stored in the same way', async () => {
  const { chat, history, apiKey } = await setUp(() => [
    'data: {"choices":[{"delta":{"content":"bad \\ud800 nul \\u0000 pair \\ud83d"}}]}\n\n',
    'data: {"choices":[{"delta":{"content":"\\ude00 end \\udc00"},"finish_reason":"stop"}]}\n\n',
  ]);
  const turn = { session_id: randomUUID(), message: 'Really?' };
  const clean = 'bad \ufffd nul  pair 😀 end \ufffd';

  const first = await chat(turn);
  const again = await chat(turn);
  const open = await openStream(`${stack.url}/api/v1/chat`, {
    body: { ...turn, session_id: randomUUID() },
    bearer: apiKey,
  });
  const events = await open.ended;
  const { body } = await history(first.body.conversationId);

  expect([first.body.reply, again.body.reply]).toEqual([clean, clean]);
  expect(again.headers.get('idempotent-replayed')).toBe('true');
  expect(spokenOf(events)).toBe(clean);
  expect(body.messages[1]?.content).toBe(clean);
});

test('an engine’s explanation is stored and logged; above 4 KiB only engine and kind stay', async () => {
  const talkative: AssistantEngine = {
    name: 'talkative',
    reply: ({ message, language }) =>
      Promise.resolve({
        text: 'Yes.',
        suggestedActions: [],
        confidence: 1,
        low: false,
        language,
        why: { engine: 'talkative', kind: 'answer', said: message.repeat(1_000) },
      }),
  };
  const own = await openStack({ engine: talkative, deliveryWorkers: 0 });
  onTestFinished(own.close);
  const { chat } = await anAssistant(own);

  const { body } = await chat({ session_id: randomUUID(), message: 'zebra crossing' });

  const { why } = await lineOf(body.conversationId, own.logs);
  expect(why).toEqual({ engine: 'talkative', kind: 'answer', cut: true });
  expect(JSON.stringify(await storedOf(body.conversationId, own.service))).not.toContain('zebra crossingzebra');
});

test('an explanation that JSON cannot hold is shortened too', () => {
  const cycle: Record<string, unknown> = { engine: 'x'.repeat(1_000), kind: 7 };
  cycle.self = cycle;

  expect(boundedWhy(cycle)).toEqual({ engine: 'x'.repeat(100), cut: true });
  expect(boundedWhy({ engine: 'retrieval', n: 1 })).toEqual({ engine: 'retrieval', n: 1 });
});
