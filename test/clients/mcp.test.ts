import { randomUUID } from 'node:crypto';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { expect, onTestFinished, test } from 'vitest';
import { anAssistant, anEntry, type TestAssistant } from '../support/builders.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack();

/** The client of the official SDK. */
const connect = async (apiKey: string): Promise<Client> => {
  const client = new Client({ name: 'test', version: '1' });
  const headers = { Authorization: `Bearer ${apiKey}` };
  await client.connect(new StreamableHTTPClientTransport(new URL(`${stack.url}/mcp`), { requestInit: { headers } }));
  onTestFinished(() => client.close());
  return client;
};

type Result = { isError?: boolean; structuredContent?: Record<string, unknown>; content: { text?: string }[] };
const callOf =
  (client: Client) =>
  async (name: string, args: Record<string, unknown>): Promise<Result> =>
    (await client.callTool({ name, arguments: args })) as Result;

const open = async (assistant?: TestAssistant) => {
  const used = assistant ?? (await anAssistant(stack));
  return { ...used, call: callOf(await connect(used.apiKey)) };
};

test('a client of the SDK sees four tools, asks, reads and escalates', async () => {
  const assistant = await anAssistant(stack);
  const client = await connect(assistant.apiKey);
  const call = callOf(client);
  const session_id = randomUUID();

  const { tools } = await client.listTools();
  const asked = await call('ask', { session_id, message: 'What are your opening hours?' });
  const { conversationId, messageId } = asked.structuredContent as { conversationId: string; messageId: string };
  const again = await call('ask', { session_id, message: 'And on Sundays?' });
  const read = await call('read_conversation', { conversation_id: conversationId });
  const later = await call('read_conversation', { conversation_id: conversationId, after_seq: 1 });
  const escalated = await call('escalate', { conversation_id: conversationId, reason: 'wants a person' });

  expect(tools.map(({ name }) => name)).toEqual(['ask', 'search_knowledge', 'read_conversation', 'escalate']);
  expect(asked).toMatchObject({
    content: [{ type: 'text', text: 'We are open from 9 to 5.' }],
    structuredContent: { reply: 'We are open from 9 to 5.', sources: [] },
  });
  expect(again.structuredContent?.['conversationId']).toBe(conversationId);
  const contentsOf = ({ structuredContent }: Result) =>
    (structuredContent as { messages: { content: string }[] }).messages.map(({ content }) => content);
  const { messages } = (await assistant.history(conversationId)).body;
  expect(contentsOf(read)).toEqual(messages.slice(0, 4).map(({ content }) => content));
  expect(contentsOf(later)).toEqual(contentsOf(read).slice(2));
  expect(messages[1]?.messageId).toBe(messageId);
  expect(escalated.structuredContent).toMatchObject({ status: 'escalated', reason: 'wants a person' });
});

test('the knowledge is found by words, the entry with most of them first, and only that of the key', async () => {
  const assistant = await anAssistant(stack, {
    knowledge: [
      anEntry({ question: 'Is there parking?', answer: 'Yes, for cars.' }),
      anEntry({ question: 'What does parking a bicycle cost?', answer: 'Nothing.' }),
      anEntry({ question: 'Do you deliver?', answer: 'Yes.' }),
    ],
  });
  await anAssistant(stack, { knowledge: [anEntry({ question: 'What does parking a bicycle cost here?' })] });
  const { call } = await open(assistant);
  const search = async (args: Record<string, unknown>) =>
    ((await call('search_knowledge', args)).structuredContent as { entries: { question: string }[] }).entries.map(
      ({ question }) => question,
    );

  expect(await search({ query: 'how much is the PARKING of a bicycle' })).toEqual([
    'What does parking a bicycle cost?',
    'Is there parking?',
  ]);
  expect(await search({ query: 'parking', limit: 1 })).toEqual(['Is there parking?']);
  expect(await search({ query: 'zebra' })).toEqual([]);
});

test('what goes wrong is told to the model, with the codes of the chat API', async () => {
  const { call } = await open();
  const other = await anAssistant(stack);
  const foreign = (await other.chat({ session_id: 'x', message: 'hello' })).body.conversationId;

  const unknown = await call('read_conversation', { conversation_id: foreign });
  const notEscalated = await call('escalate', { conversation_id: foreign });
  const blank = await call('ask', { session_id: 'x', message: ' ' });

  expect(unknown).toMatchObject({ isError: true, content: [{ text: expect.stringMatching(/^not_found: /) }] });
  expect(notEscalated).toMatchObject({ isError: true, content: [{ text: expect.stringMatching(/^not_found: /) }] });
  expect(blank).toMatchObject({ isError: true, content: [{ text: expect.stringContaining('must not be blank') }] });
});

test('each request has one call, which counts for its key, and there is nothing to subscribe to', async () => {
  const { apiKey } = await anAssistant(stack, { limitPerMinute: 4 });
  const send = async (body: unknown, key = apiKey, method = 'POST') => {
    const response = await fetch(`${stack.url}/mcp`, {
      method,
      headers: {
        Authorization: `Bearer ${key}`,
        'Content-Type': 'application/json',
        Accept: 'application/json, text/event-stream',
      },
      ...(method === 'POST' && { body: JSON.stringify(body) }),
    });
    return [response.status, await response.text()] as const;
  };
  const list = { jsonrpc: '2.0', id: 1, method: 'tools/list', params: {} };

  expect(await send(list, 'wrong')).toEqual([401, expect.stringContaining('invalid_api_key')]);
  expect(await send(list, apiKey, 'GET')).toEqual([405, expect.stringContaining('method_not_allowed')]);
  expect(await send(list)).toEqual([200, expect.stringContaining('search_knowledge')]);
  expect(await send({ jsonrpc: '2.0', id: 2, method: 'subscriptions/listen', params: {} })).toEqual([
    403,
    expect.stringContaining('no subscriptions'),
  ]);
  expect((await send({ jsonrpc: '2.0', id: 3, method: 'no such method' }))[1]).toContain('-32601');
  // The library would take a batch of 100 calls.
  expect(await send([list, list])).toEqual([422, expect.stringContaining('invalid_json')]);
  expect((await send(list))[0]).toBe(429);
});

test.each([
  ['long', `"${'x'.repeat(17_000)}"`],
  ['deep', '['.repeat(6_000) + ']'.repeat(6_000)],
])('a call with a %s field beside its arguments is refused', async (_how, text) => {
  const { apiKey } = await anAssistant(stack);

  const { status } = await fetch(`${stack.url}/mcp`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${apiKey}`, 'Content-Type': 'application/json', Accept: 'application/json' },
    body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask","arguments":{},"_meta":{"x":${text}}}}`,
  });

  expect(status).toBe(413);
});

test('a message with thousands of parameters that no tool has is refused before the library looks at it', async () => {
  const { apiKey } = await anAssistant(stack);
  const params = Object.fromEntries(Array.from({ length: 5_000 }, (_, nth) => [`p${nth}`, 0]));
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'no/such', params });

  const { status } = await fetch(`${stack.url}/mcp`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${apiKey}`, 'Content-Type': 'application/json' },
    body,
  });

  expect(status).toBe(413);
});
