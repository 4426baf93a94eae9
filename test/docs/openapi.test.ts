import { randomUUID } from 'node:crypto';
import addFormats from 'ajv-formats';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { mongo as driver } from 'mongoose';
import { afterAll, expect, test } from 'vitest';
import { openApi } from '../../src/api.ts';
import { chatConversationOperations } from '../../src/conversations/http.ts';
import { EVENT_KINDS } from '../../src/conversations/event.ts';
import { EVENT_BODIES } from '../../src/events/wire.ts';
import { PUBLIC_OPERATIONS, WEB_OPERATIONS } from '../../src/api/document.ts';
import { OPERATIONS } from '../../src/api/operator-routes.ts';
import { readConfig } from '../../src/platform/process/config.ts';
import { createLifecycle } from '../../src/platform/process/lifecycle.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { ChatRequest } from '../../src/turns/turn.ts';
import type { AssistantEngine } from '../../src/replies/engines/engine.ts';
import { anAssistant, aTurn, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { openReceiver } from '../kit/receiver.ts';
import { useStack } from '../support/stack.ts';
import { aVisitor, aWebAssistant } from '../support/visitor.ts';
import { apiDocument, pointer, type Seen, validateResponse, validatorOf } from '../support/validate-response.ts';

const engine: AssistantEngine = {
  name: 'scripted',
  reply: async ({ message, language, signal }) => {
    if (message === 'hold') await new Promise((resolve) => signal.addEventListener('abort', resolve));
    const suggestedActions = [{ label: 'Directions', type: 'link' as const, payload: '/directions' }];
    return { text: 'echo', suggestedActions, confidence: 1, low: false, language, why: {} };
  },
};
const stack = useStack({ engine, env: { REPLY_TIMEOUT_MS: '3000' } });
const lifecycle = createLifecycle(createLogger({ name: 'test', level: 'silent' }), { deadlineMs: 5_000 });
afterAll(() => lifecycle.close());

type Json = Record<string, unknown>;

const walk = (value: unknown, visit: (node: Json, path: string[]) => void, path: string[] = []): void => {
  if (typeof value !== 'object' || value === null) return;
  visit(value as Json, path);
  for (const [name, inner] of Object.entries(value)) walk(inner, visit, [...path, name]);
};

test('the document is served with the address that callers use', async () => {
  const { status, headers, body } = await request<{ openapi: string; servers: unknown }>(`${stack.url}/openapi.json`);

  expect([status, headers.get('content-type')]).toEqual([200, 'application/json; charset=utf-8']);
  expect(body).toEqual(JSON.parse(JSON.stringify(apiDocument().document)));
  expect([body.openapi, body.servers]).toEqual(['3.1.1', [{ url: '/' }]]);
});

test('the document of the events is served, with a schema and an example of each kind', async () => {
  const { status, body } = await request<Json>(`${stack.url}/asyncapi.json`);

  const ajv = new Ajv2020({ strict: false });
  addFormats.default(ajv);
  ajv.addSchema({ ...body, $id: 'events' });
  const { messages } = body.components as { messages: Record<string, { name: string; examples: [{ payload: Json }] }> };
  for (const [name, { examples }] of Object.entries(messages)) {
    const validate = ajv.getSchema(`events#/components/messages/${name}/payload`);
    expect([name, validate?.(examples[0].payload), validate?.({ event: name })]).toEqual([name, true, false]);
  }
  const references: string[] = [];
  walk(body, ({ $ref }) => void (typeof $ref === 'string' && references.push($ref)));
  for (const one of references) expect([one, pointer(body, one.slice(2).split('/'))]).not.toContain(undefined);
  expect([status, body.asyncapi]).toEqual([200, '3.0.0']);
  expect(Object.values(messages).map(({ name }) => name)).toEqual([...EVENT_KINDS]);
});

test('the JSON Schema of the events is served, and accepts an example of each kind', async () => {
  const { body: schema } = await request<Json>(`${stack.url}/events.schema.json`);
  const { body: events } = await request<Json>(`${stack.url}/asyncapi.json`);

  const ajv = new Ajv2020({ strict: false });
  addFormats.default(ajv);
  const validate = ajv.compile(schema);
  const { messages } = events.components as { messages: Record<string, { examples: [{ payload: Json }] }> };
  for (const [name, { examples }] of Object.entries(messages))
    expect([name, validate(examples[0].payload), validate({ event: name })]).toEqual([name, true, false]);
});

test('every reference resolves, every operation id is unique, and every example matches its schema', () => {
  const { document } = apiDocument();
  const ids: unknown[] = [];
  const references: string[] = [];
  const examples: string[] = [];
  walk(document, (node, path) => {
    if (typeof node.$ref === 'string') references.push(node.$ref);
    if ('operationId' in node) ids.push(node.operationId);
    if (path.at(-2) !== 'content') return;
    const given = node.examples as Record<string, { value: unknown }> | undefined;
    for (const value of given
      ? Object.values(given).map((one) => one.value)
      : 'example' in node
        ? [node.example]
        : []) {
      const validate = validatorOf([...path, 'schema']);
      expect([path.join(' '), validate(value), validate.errors]).toEqual([path.join(' '), true, null]);
      examples.push(path.join(' '));
    }
  });

  for (const one of references) expect([one, pointer(document, one.slice(2).split('/'))]).not.toContain(undefined);
  expect(new Set(ids).size).toBe(ids.length);
  const events = Object.keys(EVENT_BODIES);
  expect(ids).toHaveLength(PUBLIC_OPERATIONS.length + WEB_OPERATIONS.length + OPERATIONS.length + events.length);
  expect(examples.length).toBeGreaterThan(50);
});

test('the document and the code accept the same requests', () => {
  const validate = validatorOf(['components', 'schemas', 'ChatRequest']);
  const requests = [
    aTurn(),
    aTurn({ language: null }),
    aTurn({ language: 'de', unknown: 1 }),
    aTurn({ message: '😀'.repeat(8000) }),
    aTurn({ message: 'x'.repeat(8001) }),
    aTurn({ session_id: 'x'.repeat(257) }),
    aTurn({ session_id: '' }),
    aTurn({ message: 7 }),
    aTurn({ language: 7 }),
    {},
    { message: 'x' },
  ];

  for (const one of requests) expect([one, validate(one)]).toEqual([one, ChatRequest.safeParse(one).success]);
});

const seenOf = (overrides: Partial<Seen>): Seen => ({
  method: 'POST',
  url: 'http://x/api/v1/chat',
  status: 200,
  headers: new Headers({
    'Content-Type': 'application/json; charset=utf-8',
    'X-Request-Id': 'request-1',
    'X-RateLimit-Limit': '60',
    'X-RateLimit-Remaining': '59',
    'X-RateLimit-Reset': '60',
  }),
  body: { reply: 'x', conversationId: randomUUID(), messageId: randomUUID() },
  ...overrides,
});

test.each<[string, Partial<Seen>]>([
  ['a status that is not documented', { status: 201 }],
  ['a field too many', { body: { ...(seenOf({}).body as Json), extra: 1 } }],
  ['a field too few', { body: { reply: 'x', conversationId: randomUUID() } }],
  ['an id that is none', { body: { ...(seenOf({}).body as Json), messageId: '7' } }],
  ['a missing header', { headers: new Headers({ 'Content-Type': 'application/json' }) }],
  [
    'another content type',
    { headers: new Headers({ ...Object.fromEntries(seenOf({}).headers), 'content-type': 'text/html' }) },
  ],
  ['a code of another status', { status: 422, body: { error: { code: 'not_found', message: 'x', requestId: 'r' } } }],
  ['an error without its request id', { status: 404, body: { error: { code: 'not_found', message: 'x' } } }],
  ['an undocumented path', { url: 'http://x/api/v1/other' }],
  ['a body where none is documented', { method: 'DELETE', url: 'http://x/api/v1/conversations/1', status: 204 }],
])('the suite refuses a response with %s', (_name, overrides) => {
  expect(validateResponse(seenOf({}))).toEqual({ operationId: 'sendMessage', status: 200 });
  expect(() => validateResponse(seenOf(overrides))).toThrow('breaks the OpenAPI document');
});

test('events of all eight kinds match the document, field by field', async () => {
  const { assistantId, chat, callOperation } = await anAssistant(stack);
  const receiver = await openReceiver();
  const { endpoints, conversations, deliveries, deliveryQueue } = stack.service;
  const { endpoint } = await endpoints.addEndpoint(assistantId, { url: receiver.url });
  await endpoints.addEndpoint(assistantId, { url: receiver.url, events: ['message.sent', 'conversation.erased'] });
  const turn = aTurn();
  // Compiling the schemas held the loop, so a message may be refused for a moment.
  const { body } = await eventually(async () => {
    const answer = await chat(turn);
    expect(answer.status).toBe(200);
    return answer;
  });
  const where = { conversationId: body.conversationId, assistantId };

  await callOperation(chatConversationOperations.escalate, {
    params: { id: body.conversationId },
    body: { lead_score: 80 },
  });
  await conversations.transitions.addTag(where, { tag: 'billing', color: null });
  await conversations.transitions.resolve(where, randomUUID());
  deliveryQueue.wakeDelivery(await deliveries.queueTest({ ...endpoint, assistantId }));

  await receiver.waitFor((all) => all.length >= 8);
  await eventually(async () =>
    expect((await deliveries.list({ assistantId, outcome: 'queued' })).deliveries).toEqual([]),
  );
  await callOperation(chatConversationOperations.erase, { params: { id: body.conversationId } });
  const received = await receiver.waitFor((all) =>
    all.some(({ headers }) => headers['x-factory-event'] === 'conversation.erased'),
  );
  const kinds = received.map(({ headers, json }) => {
    const event = headers['x-factory-event'] as keyof typeof EVENT_BODIES;
    expect(EVENT_BODIES[event].parse(json)).toEqual(json);
    const path = ['webhooks', event, 'post', 'requestBody', 'content', 'application/json', 'schema'];
    expect(validatorOf(path)(json)).toBe(true);
    return event;
  });
  expect([...new Set(kinds)].toSorted()).toEqual(Object.keys(EVENT_BODIES).toSorted());
  expect(Object.keys(apiDocument().document.webhooks).toSorted()).toEqual(Object.keys(EVENT_BODIES).toSorted());
});

test('every documented status of every operation occurs', async () => {
  const occurred = new Set<string>();
  const drive = async <Body>(url: string, options: Parameters<typeof request>[1] = {}) => {
    const { status, headers, body } = await request<Body>(url, options);
    const method = options.method ?? (options.body === undefined ? 'GET' : 'POST');
    const { operationId } = validateResponse({ method, url, status, headers, body }) ?? {};
    occurred.add(`${operationId} ${status}`);
    return body;
  };
  const draining = AbortSignal.abort();
  const logger = createLogger({ name: 'test', level: 'silent' });
  const drained = await openApi({ config: readConfig(stack.env), logger, lifecycle: { ...lifecycle, draining } });
  const { mongo, assistants } = stack.service;
  const { apiKey, assistantId } = await anAssistant(stack);
  const limited = await anAssistant(stack, { limitPerMinute: 1 });
  await assistants.setChannel(assistantId, { connected: true, token: 'verify-me', limitPerMinute: 4 });
  await limited.call('/api/v1/conversations');
  const tooLarge = { body: 'x'.repeat(65_537) };

  const bothWays = (method: string, path: string, { bearer, good }: { bearer: string; good: object }) =>
    [
      { url: `${stack.url}${path}`, options: { method, bearer, ...good } },
      { url: `${stack.url}${path}`, options: { method, bearer: 'wrong', ...good } },
      { url: `http://127.0.0.1:${drained.port}${path}`, options: { method, bearer, ...good } },
    ].map(({ url, options }) => drive(url, options));

  // Turn requests: a valid turn, a wrong key, a draining API, a body that is too large, an invalid body, a late reply
  // and a rate limit.
  const channel = `/api/v1/channels/webhook/${assistantId}`;
  const { secret } = await assistants.rotateSecretAddress(assistantId);
  for (const [path, bearer] of [
    ['/api/v1/chat', apiKey],
    [channel, 'verify-me'],
  ] as const) {
    await Promise.all(bothWays('POST', path, { bearer, good: { body: aTurn() } }));
    for (const rest of [tooLarge, { body: {} }, { body: aTurn({ message: 'hold' }) }]) {
      await drive(`${stack.url}${path}`, { bearer, ...rest });
    }
  }
  await drive(`${stack.url}/api/v1/chat`, { body: aTurn(), bearer: limited.apiKey });
  await drive(`${stack.url}${channel}`, { body: aTurn(), bearer: 'verify-me' });
  await drive(`${stack.url}/api/v1/channels/webhook/${randomUUID()}`, { body: aTurn() });

  // The same by the secret address of the channel.
  const address = `${channel}/${secret}`;
  await assistants.setChannel(assistantId, { limitPerMinute: 1_000 });
  await eventually(async () => {
    const { body } = await request<{ reply?: string }>(`${stack.url}${address}`, { body: aTurn() });
    expect(body.reply).toBe('echo');
  });
  await Promise.all(bothWays('POST', address, { bearer: 'ignored', good: { body: aTurn() } }));
  for (const rest of [tooLarge, { body: {} }, { body: aTurn({ message: 'hold' }) }])
    await drive(`${stack.url}${address}`, rest);
  await drive(`${stack.url}${address}x`, { body: aTurn() });
  await assistants.setChannel(assistantId, { limitPerMinute: 1 });
  await eventually(async () => expect((await request(`${stack.url}${address}`, { body: aTurn() })).status).toBe(429));
  await drive(`${stack.url}${address}`, { body: aTurn() });
  await drive(`${stack.url}/api/v1/channels/webhook/${randomUUID()}/${secret}`, { body: aTurn() });

  // OpenAI's protocol. The models of an assistant whose record is broken cannot be read.
  const asking = (content: string, user = randomUUID()) => ({ body: { user, messages: [{ role: 'user', content }] } });
  const completions = '/v1/chat/completions';
  await Promise.all(bothWays('POST', completions, { bearer: apiKey, good: asking('hello') }));
  await Promise.all(bothWays('GET', '/v1/models', { bearer: apiKey, good: {} }));
  for (const rest of [{ body: 'x'.repeat(262_145) }, { body: {} }, asking('hold')])
    await drive(`${stack.url}${completions}`, { bearer: apiKey, ...rest });
  await drive(`${stack.url}${completions}`, { bearer: limited.apiKey, ...asking('hello') });
  await drive(`${stack.url}/v1/models`, { bearer: limited.apiKey });
  const broken = await anAssistant(stack);
  await mongo.collection('assistants').updateOne({ _id: broken.assistantId as never }, { $set: { createdAt: null } });
  await drive(`${stack.url}/v1/models`, { bearer: broken.apiKey });

  // A conversation is erased while its callers wait for the reply.
  const session_id = randomUUID();
  const alsoWaiting = drive(`${stack.url}${completions}`, { bearer: apiKey, ...asking('hold', session_id) });
  const waiting = drive(`${stack.url}/api/v1/chat`, { body: { session_id, message: 'hold' }, bearer: apiKey });
  await eventually(async () => {
    const url = `${stack.url}/api/v1/conversations?session_id=${session_id}`;
    const { conversations } = await drive<{ conversations: { conversationId: string }[] }>(url, { bearer: apiKey });
    expect(conversations).toHaveLength(1);
    const id = conversations[0]?.conversationId;
    await drive(`${stack.url}/api/v1/conversations/${id}`, { method: 'DELETE', bearer: apiKey });
  });
  await Promise.all([waiting, alsoWaiting]);

  // Conversation requests: a valid request, a wrong key, a draining API, an unknown id, an invalid request and a
  // corrupt record.
  const { conversationId, turnId } = await drive<{ conversationId: string; turnId: string }>(
    `${stack.url}/api/v1/chat`,
    {
      body: aTurn(),
      bearer: apiKey,
      headers: { Prefer: 'respond-async' },
    },
  );
  await eventually(async () => {
    const { status } = await drive<{ status: string }>(`${stack.url}/api/v1/turns/${turnId}`, { bearer: apiKey });
    expect(status).toBe('answered');
  });
  const one = `/api/v1/conversations/${conversationId}`;
  const endpoints: [string, string, object][] = [
    ['GET', '/api/v1/conversations', {}],
    ['GET', '/api/v1/events', {}],
    ['GET', one, {}],
    ['POST', `${one}/escalate`, { body: {} }],
    ['POST', `${one}/attributes`, { body: { plan: 'pro' } }],
    ['GET', `/api/v1/turns/${turnId}`, {}],
    ['DELETE', one, {}],
  ];
  for (const [method, path, good] of endpoints.slice(0, 6))
    await Promise.all(bothWays(method, path, { bearer: apiKey, good }));
  await Promise.all(bothWays('DELETE', `/api/v1/conversations/${randomUUID()}`, { bearer: apiKey, good: {} }));
  for (const [method, path, good] of endpoints) {
    await drive(`${stack.url}${path}`, { method, bearer: limited.apiKey, ...good });
    const unknown = path.replace(conversationId, randomUUID()).replace(turnId, randomUUID());
    await drive(`${stack.url}${unknown}?limit=x`, { method, bearer: apiKey, ...good });
    await drive(`${stack.url}${unknown}`, { method, bearer: apiKey, ...good });
  }
  await drive(`${stack.url}${one}?limit=x`, { bearer: apiKey });
  await drive(`${stack.url}/api/v1/turns/${turnId}?include=x`, { bearer: apiKey });
  for (const rest of [tooLarge, { body: { reason: 7 } }])
    await drive(`${stack.url}${one}/escalate`, { bearer: apiKey, ...rest });
  for (const rest of [tooLarge, { body: { plan: [] } }])
    await drive(`${stack.url}${one}/attributes`, { bearer: apiKey, ...rest });
  await mongo
    .collection('conversations')
    .updateMany({ assistantId }, { $set: { texts: null, status: 'open', attributes: 7 }, $unset: { updatedAt: 1 } });
  const ended = {
    assistantId,
    endpointId: randomUUID(),
    outcome: 'delivered',
    endedOn: new driver.Timestamp({ t: 1, i: 1 }),
  };
  await mongo.collection('deliveries').insertOne({ _id: randomUUID(), ...ended, body: '{' } as never);
  await mongo.db?.command({ collMod: 'tombstones', validator: { never: { $exists: true } } });
  for (const [method, path, good] of endpoints)
    await drive(`${stack.url}${path}?limit=1`, { method, bearer: apiKey, ...good });

  // The web channel: valid requests, then each refusal, and at last a record that cannot be read.
  const web = await aWebAssistant(stack);
  const { token } = await aVisitor(stack, web.assistantId);
  const ofWeb: [string, object][] = [
    ['settings', {}],
    ['sessions', { body: {} }],
    ['messages', { body: { message: 'hello' } }],
    ['messages?wait=0', {}],
    ['escalate', { body: {} }],
  ];
  const webAt = (path: string, of = web.assistantId, at = stack.url) => `${at}/api/v1/web/${of}/${path}`;
  for (const [path, good] of ofWeb) {
    const rest = { bearer: token, ...good };
    await drive(webAt(path), rest);
    await drive(webAt(path), { ...good, bearer: 'wrong' });
    await drive(webAt(path, randomUUID()), rest);
    await drive(webAt(path, web.assistantId, `http://127.0.0.1:${drained.port}`), rest);
    await drive(webAt(path), { ...rest, headers: { Origin: 'https://evil.example' } });
    if ('body' in good)
      for (const wrong of [tooLarge, { body: { message: 7, reason: 7, user: 7 } }])
        await drive(webAt(path), { ...rest, ...wrong });
  }
  await drive(webAt('sessions'), { body: { user: { id: 'ada', expires: 1, signature: '0'.repeat(64) } } });
  await drive(webAt('messages?status=x'), { bearer: token });
  await mongo.collection('assistants').updateOne({ _id: web.assistantId as never }, { $set: { 'web.origins': null } });
  await eventually(async () => {
    for (const [path, good] of ofWeb)
      await drive(webAt(path), { bearer: token, ...good, headers: { Origin: 'https://evil.example' } });
    // The assistant may be read again in the middle of a round.
    for (const one of ['getWebSettings', 'startWebSession', 'sendWebMessage', 'readWebMessages', 'escalateWebSession'])
      expect(occurred).toContain(`${one} 500`);
  });
  await eventually(async () => {
    for (const [path, good] of ofWeb) await drive(webAt(path, randomUUID()), good);
    // The limit is reached in the middle of a round.
    for (const one of ['getWebSettings', 'escalateWebSession']) expect(occurred).toContain(`${one} 429`);
  });

  for (const path of ['/healthz', '/readyz', '/openapi.json', '/asyncapi.json', '/events.schema.json'])
    await drive(`${stack.url}${path}`);
  await drive(`http://127.0.0.1:${drained.port}/readyz`);
  await drive(`${stack.url}/metrics`, { headers: { 'X-Forwarded-For': '203.0.113.1' } });
  const metrics = await fetch(`${stack.url}/metrics`);
  const { status, headers } = metrics;
  validateResponse({ method: 'GET', url: `${stack.url}/metrics`, status, headers, body: await metrics.text() });
  occurred.add(`getMetrics ${status}`);
  const reference = await fetch(`${stack.url}/docs`);
  const response = { status: reference.status, headers: reference.headers, body: await reference.text() };
  validateResponse({ method: 'GET', url: `${stack.url}/docs`, ...response });
  occurred.add(`getReference ${response.status}`);

  const callers = apiDocument().operations.filter(({ path }) => !path.startsWith('/operator/'));
  const documented = callers.flatMap(({ operation }) =>
    Object.keys(operation.responses).map((code) => `${operation.operationId} ${code}`),
  );
  expect([...occurred].toSorted()).toEqual(documented.toSorted());
});
