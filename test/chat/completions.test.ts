import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { completionOperations } from '../../src/turns/http/completions.ts';
import type { AssistantEngine } from '../../src/replies/engines/engine.ts';
import { anAssistant, type ErrorBody, type TestAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import type { AnswerOf } from '../kit/operations.ts';
import { useStack } from '../support/stack.ts';

type Completion = AnswerOf<typeof completionOperations.complete>;

type Script = { pieces: string[]; reply: string; hold?: () => Promise<void> };
/** Says the text of `pieces`, then replies `reply`, once `hold` lets it: for the message with this text. */
const scripts = new Map<string, Script>();
const engine: AssistantEngine = {
  name: 'scripted',
  reply: async ({ message, language, onDelta }) => {
    const { pieces, reply, hold }: Script = scripts.get(message) ?? { pieces: [], reply: `echo: ${message}` };
    await hold?.();
    for (const piece of pieces) onDelta?.(piece);
    return { text: reply, suggestedActions: [], confidence: 1, low: false, language, why: {} };
  },
};

const stack = useStack({ engine });

const user = (content: unknown) => ({ role: 'user', content });
const complete = <Body = Completion>(
  { call }: Pick<TestAssistant, 'call'>,
  body: Record<string, unknown>,
  headers: Record<string, string> = {},
) => call<Body>('/v1/chat/completions', { body: { model: 'any', user: randomUUID(), ...body }, headers });

test('the last message of the visitor is a turn of the session that `user` names, as over the chat API', async () => {
  const assistant = await anAssistant(stack);
  const session_id = randomUUID();
  const first = await assistant.chat({ session_id, message: 'first' });

  const { status, body } = await complete(assistant, {
    user: session_id,
    messages: [
      { role: 'system', content: 'You are a pirate.' },
      user('first'),
      { role: 'assistant', content: 'made up by the caller' },
      user([
        { type: 'text', text: 'second' },
        { type: 'text', text: 'line' },
      ]),
      { role: 'assistant', content: '' },
    ],
    temperature: 0.3,
    tools: [{ type: 'function', function: { name: 'x' } }],
  });

  const { messages } = (await assistant.history(first.body.conversationId)).body;
  expect(messages.map(({ content }) => content)).toEqual([
    'first',
    'echo: first',
    'second\nline',
    'echo: second\nline',
  ]);
  const turn = messages[3];
  expect(status).toBe(200);
  expect(body).toEqual({
    id: `chatcmpl-${turn?.turnId}`,
    object: 'chat.completion',
    created: expect.any(Number),
    model: 'any',
    choices: [
      {
        index: 0,
        message: { role: 'assistant', content: 'echo: second\nline', refusal: null },
        logprobs: null,
        finish_reason: 'stop',
      },
    ],
    usage: { prompt_tokens: 3, completion_tokens: 5, total_tokens: 8 },
    parley: { conversationId: first.body.conversationId, messageId: turn?.messageId, sources: [] },
  });
});

test('the header names the session before `user`, and a repeated request gets the stored reply', async () => {
  const assistant = await anAssistant(stack);
  const headers = { 'X-Session-Id': randomUUID(), 'Idempotency-Key': randomUUID() };
  const body = { messages: [user('hello')] };

  const one = await complete(assistant, body, headers);
  const again = await complete(assistant, body, headers);
  const found = await assistant.chat({ session_id: headers['X-Session-Id'], message: 'the same conversation' });

  expect(again.body).toEqual({ ...one.body, created: again.body.created });
  expect(again.headers.get('idempotent-replayed')).toBe('true');
  expect(found.body.conversationId).toBe(one.body.parley.conversationId);
});

test.for([
  ['no session', { user: undefined, messages: [user('x')] }, 'user'],
  ['a blank session', { user: ' ', messages: [user('x')] }, 'user'],
  ['no messages', { messages: [] }, 'messages'],
  ['too many messages', { messages: Array.from({ length: 2_001 }, () => 0) }, 'messages'],
  ['none of the visitor', { messages: [null, 7, { role: 'system', content: 'x' }] }, 'messages'],
  [
    'a picture',
    { messages: [user('x'), user([{ type: 'image_url', image_url: { url: 'x' } }])] },
    'messages.1.content',
  ],
  ['no content', { messages: [{ role: 'user' }] }, 'messages.0.content'],
  ['a blank message', { messages: [user(' ')] }, 'messages.0.content'],
  ['a long message', { messages: [user('x'.repeat(8_001))] }, 'messages.0.content'],
  ['a lone surrogate', { messages: [user('\ud800')] }, 'messages.0.content'],
] as const)('%s is refused in the shape of the protocol', async ([, body, param]) => {
  const refused = await complete<ErrorBody>(await anAssistant(stack), body);

  expect(refused.status).toBe(422);
  expect(refused.body.error).toMatchObject({
    code: 'validation_failed',
    type: 'invalid_request_error',
    param,
    message: expect.stringContaining(param),
  });
});

test('every error under /v1 has the shape of the protocol', async () => {
  const assistant = await anAssistant(stack, { limitPerMinute: 1 });
  const send = async (path: string, options: Parameters<typeof assistant.call>[1]) => {
    const { status, body } = await assistant.call<ErrorBody>(path, options);
    return [status, body.error.code, body.error.type, body.error.param];
  };
  const path = '/v1/chat/completions';

  expect(await send(path, { body: {}, bearer: 'x' })).toEqual([401, 'invalid_api_key', 'invalid_request_error', null]);
  expect(await send(path, { method: 'GET' })).toEqual([405, 'method_not_allowed', 'invalid_request_error', null]);
  expect(await send('/v1/embeddings', { body: {} })).toEqual([404, 'not_found', 'invalid_request_error', null]);
  const large = JSON.stringify({ messages: [user('x'.repeat(256 * 1024))] });
  expect(await send(path, { body: large })).toEqual([413, 'payload_too_large', 'invalid_request_error', null]);
  expect(await send(path, { body: {} })).toEqual([429, 'rate_limited', 'rate_limit_error', null]);
});

test('the history that clients repeat may be longer than a message', async () => {
  const assistant = await anAssistant(stack);
  const messages = [...Array.from({ length: 1_000 }, () => user('y'.repeat(200))), user('the last one')];

  const { status, body } = await complete(assistant, { messages });

  expect([status, body.choices[0]?.message.content]).toEqual([200, 'echo: the last one']);
});

test('requests with a long history that wait for their reply keep no other from being read', async () => {
  const assistants = await Promise.all(Array.from({ length: 4 }, () => anAssistant(stack)));
  const history = user('y'.repeat(100_000));
  const over = Promise.withResolvers<void>();
  let held = 0;
  const hold = (): Promise<void> => {
    held += 1;
    return over.promise;
  };
  const waiting = assistants.flatMap((one) =>
    Array.from({ length: 5 }, () => {
      const message = randomUUID();
      scripts.set(message, { pieces: [], reply: message, hold });
      return complete(one, { messages: [history, user(message)] });
    }),
  );

  await eventually(() => expect(held).toBe(waiting.length));
  const { status } = await complete(await anAssistant(stack), { messages: [history, user('hello')] });
  over.resolve();

  expect(status).toBe(200);
  expect((await Promise.all(waiting)).map((one) => one.status)).toEqual(waiting.map(() => 200));
});

test('imports of others do not delay a message with a long history', async () => {
  const over = new AbortController();
  onTestFinished(() => over.abort());
  const sockets: Socket[] = [];
  for (let nth = 0; nth < 4; nth += 1) {
    const { assistantId } = await anAssistant(stack, { knowledge: [] });
    const made = { name: 'x', scope: 'manage' as const, assistantIds: [assistantId], createdBy: null };
    const { secret } = await stack.service.tokens.createToken(made);
    const socket = connect(Number(new URL(stack.url).port), '127.0.0.1').on('error', () => undefined);
    over.signal.addEventListener('abort', () => void socket.destroy());
    socket.write(
      `POST /operator/v1/assistants/${assistantId}/knowledge-import HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${secret}\r\n` +
        'Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 4000000\r\n\r\n',
    );
    sockets.push(socket);
    await once(socket, 'data');
  }
  const assistant = await anAssistant(stack);

  const { status } = await complete(assistant, { messages: [user('y'.repeat(100_000)), user('hello')] });

  expect(status).toBe(200);
  expect(sockets.filter(({ closed }) => closed)).toEqual([]);
});

type Chunk = {
  id: string;
  choices: { delta: { role?: string; content?: string }; finish_reason: string | null }[];
  usage?: object | null;
  parley?: { messageId: string; conversationId: string };
  error?: ErrorBody['error'];
};

/** The chunks of a stream, and whether it ended with `[DONE]`. */
const stream = async ({ apiKey }: TestAssistant, body: Record<string, unknown>) => {
  const response = await fetch(`${stack.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${apiKey}` },
    body: JSON.stringify({ model: 'any', stream: true, ...body }),
  });
  expect(response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
  const lines = (await response.text()).split('\n\n').filter((line) => line.startsWith('data: '));
  const all = lines.map((line) => line.slice('data: '.length));
  const isDone = all.at(-1) === '[DONE]';
  const chunks = (isDone ? all.slice(0, -1) : all).map((one) => JSON.parse(one) as Chunk);
  const text = chunks.map(({ choices }) => choices?.[0]?.delta.content ?? '').join('');
  return { chunks, isDone, text };
};

test('a stream has the role, the text in pieces, the end with our fields, the tokens if asked for, and [DONE]', async () => {
  const assistant = await anAssistant(stack);
  const message = randomUUID();
  scripts.set(message, { pieces: ['We are ', 'open.'], reply: 'We are open.' });

  const { chunks, isDone, text } = await stream(assistant, {
    user: randomUUID(),
    messages: [user(message)],
    stream_options: { include_usage: true },
  });

  const conversationId = chunks.at(-2)?.parley?.conversationId ?? '';
  const { messages } = (await assistant.history(conversationId)).body;
  expect(text).toBe('We are open.');
  expect(isDone).toBe(true);
  expect(new Set(chunks.map(({ id }) => id))).toEqual(new Set([`chatcmpl-${messages[1]?.turnId}`]));
  expect(chunks[0]?.choices[0]?.delta).toEqual({ role: 'assistant', content: '' });
  expect(chunks.at(-2)).toMatchObject({
    choices: [{ delta: {}, finish_reason: 'stop' }],
    parley: { messageId: messages[1]?.messageId, sources: [] },
    usage: null,
  });
  expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { completion_tokens: 3 } });
});

test('a text that was sent and is not the reply ends in an error, and the same request gets the reply', async () => {
  const assistant = await anAssistant(stack);
  const message = randomUUID();
  scripts.set(message, { pieces: ['It costs 5 '], reply: 'A person will answer.' });
  const body = { user: randomUUID(), messages: [user(message)] };

  const broken = await stream(assistant, body);
  const again = await stream(assistant, body);

  expect(broken.text).toBe('It costs 5 ');
  expect(broken.isDone).toBe(false);
  expect(broken.chunks.at(-1)?.error).toMatchObject({ code: 'conflict', type: 'invalid_request_error', param: null });
  expect([again.text, again.isDone]).toEqual(['A person will answer.', true]);
  const { messages } = (await assistant.history(again.chunks.at(-1)?.parley?.conversationId ?? '')).body;
  expect(messages).toHaveLength(2);
});

test('the models are the assistant of the key', async () => {
  const assistant = await anAssistant(stack, { input: { name: 'Front desk' } });

  const { body } = await assistant.call<AnswerOf<typeof completionOperations.models>>('/v1/models');

  expect(body.data).toEqual([{ id: 'parley', object: 'model', created: expect.any(Number), owned_by: 'Front desk' }]);
});
