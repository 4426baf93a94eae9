import { randomUUID } from 'node:crypto';
import { connect } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { anAssistant, aTurn } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { heapMb } from '../support/heap.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const CALLERS = 200;
/** Much less than callers wait for their reply. */
const ACCEPTED_MS = 5_000;

const chat = (message: string) => aTurn({ session_id: randomUUID(), message });
const completion = (message: string) => ({ user: randomUUID(), messages: [{ role: 'user', content: message }] });
/** The ways to send a message and wait for its reply. */
const WAYS = {
  'an answer': { path: '/api/v1/chat', accept: 'application/json', bodyOf: chat },
  'a stream': { path: '/api/v1/chat', accept: 'text/event-stream', bodyOf: chat },
  'a completion': { path: '/v1/chat/completions', accept: 'application/json', bodyOf: completion },
  'a stream of a completion': {
    path: '/v1/chat/completions',
    accept: 'text/event-stream',
    bodyOf: (message: string) => ({ ...completion(message), stream: true, stream_options: { include_usage: true } }),
  },
};

test.for(Object.entries(WAYS))('callers who wait for %s do not keep their messages', async ([, way]) => {
  const { assistantId, apiKey } = await anAssistant(stack);
  // The gate counts turns of a provider only until they are accepted.
  const engine = { kind: 'openai', baseUrl: 'https://provider.example.com', model: 'slow', apiKey: null } as const;
  await stack.service.assistants.setEngine(assistantId, engine);
  const conversations = stack.service.mongo.collection('conversations');
  /** Sends messages until so many are stored. Returns how to measure how much more is in use than before. */
  const send = async (message: string, all: number): Promise<() => number> => {
    const before = heapMb();
    for (let nth = 0; nth < CALLERS; nth += 1) {
      const body = JSON.stringify(way.bodyOf(`${nth} ${message}`));
      const socket = connect(Number(new URL(stack.url).port), '127.0.0.1').on('error', () => undefined);
      onTestFinished(() => void socket.destroy());
      const head = [`POST ${way.path} HTTP/1.1`, 'Host: x', `Authorization: Bearer ${apiKey}`, `Accept: ${way.accept}`];
      const length = `Content-Length: ${Buffer.byteLength(body)}`;
      socket.write(Buffer.from([...head, 'Content-Type: application/json', length, '', body].join('\r\n')));
    }
    await eventually(async () => expect(await conversations.countDocuments({ assistantId })).toBe(all));
    return () => heapMb() - before;
  };
  await send('hello', CALLERS); // what the process keeps of its first ones

  const few = (await send('hello', 2 * CALLERS))();
  const many = await send('語'.repeat(7_900), 3 * CALLERS);

  // Their messages have 3 MB. The last ones are still being accepted for a moment.
  await eventually(() => expect(many() - few).toBeLessThan(1), ACCEPTED_MS);
});
