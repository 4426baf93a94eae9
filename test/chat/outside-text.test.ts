import fc from 'fast-check';
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { anAssistant, type TestAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { openReceiver, type Receiver } from '../kit/receiver.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack();
let receiver: Receiver;
let assistant: TestAssistant;
beforeAll(async () => {
  receiver = await openReceiver();
  assistant = await anAssistant(stack);
  await stack.service.endpoints.addEndpoint(assistant.assistantId, { url: receiver.url });
});
afterAll(() => receiver.close());

/** Texts with a special meaning for a store, a log, a template, a shell or a browser. */
const LOADED = [
  '__proto__',
  'constructor',
  'toString',
  '_bsontype',
  '$where',
  '$$ROOT',
  '$salt',
  'a.b.c',
  'waiting.0.turnId',
  '{"$ne":null}',
  'null',
  'undefined',
  'NaN',
  '[object Object]',
  '-1',
  '1e999',
  '%s %d %j %o',
  '{{7*7}} ${7*7}',
  '<script>alert(1)</script>',
  "' OR 1=1 --",
  '$(touch x) `x` ; x',
  '../../etc/passwd',
  'a\r\nSet-Cookie: x=1',
  'event: message\ndata: {}',
  '\u202Etxet\u202C \u200B\u2028\u2029\uFEFF',
  'Z̶̡̛̜a͓̞l̢͕g͚o̴͝',
  '👩‍👩‍👧‍👦🏳️‍🌈',
  'İıſﬀΩ',
];

/** A message that shows nothing is refused as blank (test/chat/fields.test.ts). */
const SHOWN = /[^\s\p{Default_Ignorable_Code_Point}\p{Cc}\p{M}\u2800]/u;

const text = fc.oneof(
  fc.constantFrom(...LOADED),
  fc.string({ unit: 'binary', minLength: 1, maxLength: 80 }).filter((one) => !one.includes('\0') && SHOWN.test(one)),
);
const DRAWN = sized({ everyday: 4, long: 60 });
/** Session ids cannot have control characters. */
const id = text.map((one) => `${one.replaceAll(/\p{Cc}/gu, ' ')} ${randomUUID()}`);

test('every text comes back unchanged in the history and in the event, and appears in no field name', async () => {
  const { chat, call, history } = assistant;
  const said = new Map<string, string>();

  await fc.assert(
    fc.asyncProperty(id, text, text, async (session_id, message, reason) => {
      const { status, body } = await chat({ session_id, message });
      expect(status).toBe(200);
      const path = `/api/v1/conversations/${body.conversationId}/escalate`;
      const escalated = await call<{ reason: string }>(path, { body: { reason } });
      expect([escalated.status, escalated.body.reason]).toEqual([200, reason]);
      const read = (await history(body.conversationId)).body;
      expect([read.sessionId, read.escalationReason, read.messages[0]?.content]).toEqual([session_id, reason, message]);
      said.set(body.conversationId, message);
    }),
    {
      numRuns: LOADED.length + DRAWN,
      examples: LOADED.map((one) => [`${one.replaceAll(/\p{Cc}/gu, ' ')} ${randomUUID()}`, one, one]),
    },
  );

  await eventually(() => {
    const told = receiver.received
      .map(({ json }) => json as { event: string; payload: { conversation_id: string; content: string } })
      .filter(({ event }) => event === 'message.received')
      .map(({ payload }): [string, string] => [payload.conversation_id, payload.content]);
    expect(new Map(told)).toEqual(said);
  });
  // No text became a field: all conversations have the same fields.
  const rows = await stack.service.mongo.collection('conversations').find().toArray();
  const plain = await assistant.chat({ session_id: randomUUID(), message: 'plain' });
  const known = await stack.service.mongo.collection('conversations').findOne({
    conversationId: plain.body.conversationId,
  });
  const names = new Set([...Object.keys(known ?? {}), 'outbox']);
  expect(rows.flatMap((row) => Object.keys(row)).filter((name) => !names.has(name))).toEqual([]);
  expect(stack.logs.filter(({ level }) => (level as number) >= 50)).toEqual([]);
});
