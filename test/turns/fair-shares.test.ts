import { randomUUID } from 'node:crypto';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test, type TestContext } from 'vitest';
import { type Answer, anAssistant, aTurn, type ChatBody, request, type TestAssistant } from '../support/builders.ts';
import { openStream } from '../support/event-stream.ts';
import { eventually } from '../support/eventually.ts';
import { problemOf } from '../support/problem.ts';
import { aScriptedEngine } from '../support/scripted-engine.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

/** More than may be in flight in a process at first. */
const MANY = sized({ everyday: 150, long: 200 });
/** Callers of the greedy assistant, who send the next message as soon as the last one is answered. */
const GREEDY_CALLERS = sized({ everyday: 250, long: 500 });
/** More than the callers that are checked at once in an overload. */
const SLOW_CALLERS = sized({ everyday: 550, long: 700 });
const REPLY_MS = 60;
const ROUNDS = sized({ everyday: 2, long: 5 });

const { engine, hold } = aScriptedEngine();
const slow = {
  ...engine,
  reply: async (turn: Parameters<typeof engine.reply>[0]) => {
    // The work of an engine, so that the capacity is small on any machine. Turns that were held have had theirs.
    if (!turn.message.startsWith('held')) await sleep(REPLY_MS);
    return engine.reply(turn);
  },
};
const stack = useStack({ engine: slow, deliveryWorkers: 0, env: { REPLY_CONCURRENCY: '4' } });

const RESPOND_ASYNC = { headers: { Prefer: 'respond-async' } };

/** Sends on many connections without a pause. Counts the answers by status. */
const sendWithoutPause = (
  apiKey: string,
  callers: number,
  path = '/api/v1/chat',
): { statuses: Map<string, number> } => {
  const { port } = new URL(stack.url);
  const statuses = new Map<string, number>();
  const head = `POST ${path} HTTP/1.1\r\nHost: greedy\r\nAuthorization: Bearer ${apiKey}\r\nContent-Type: application/json\r\n`;
  const send = (socket: Socket): void => {
    const body = JSON.stringify(aTurn({ language: 'en' }));
    socket.write(`${head}Content-Length: ${body.length}\r\n\r\n${body}`);
  };
  const sockets = Array.from({ length: callers }, () => {
    const socket = connect(Number(port), '127.0.0.1', () => send(socket));
    let text = '';
    socket.on('data', (data: Buffer) => {
      text += data.toString();
      const end = text.indexOf('\r\n\r\n');
      const length = Number(/content-length: (\d+)/i.exec(text)?.[1]);
      if (end === -1 || text.length < end + 4 + length) return;
      const status = text.slice(9, 12);
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
      text = '';
      send(socket);
    });
    socket.on('error', () => undefined);
    return socket;
  });
  onTestFinished(() => sockets.forEach((socket) => void socket.destroy()));
  return { statuses };
};

/** Fills what may be in flight in a process with turns that are held until the returned function is called. */
const fillGate = async ({ apiKey }: TestAssistant, url: string, context: TestContext): Promise<() => void> => {
  const message = `held ${randomUUID()}`;
  const letGo = hold(message);
  context.onTestFinished(letGo);
  const send = () => {
    const body = { session_id: randomUUID(), message, language: 'en' };
    return request(`${url}/api/v1/chat`, { bearer: apiKey, body, ...RESPOND_ASYNC });
  };
  const statuses = (await Promise.all(Array.from({ length: MANY }, send))).map(({ status }) => status);
  context.expect(new Set(statuses)).toEqual(new Set([202, 503]));
  return letGo;
};

/** An assistant that uses an API process of its own, in whose gate no other turns are. */
const anAssistantAtItsGate = async ({ onTestFinished: afterwards }: TestContext) => {
  const assistant = await anAssistant(stack);
  const api = await stack.startApi();
  afterwards(api.close);
  const chat = (body: object, options: object = {}) =>
    request<ChatBody>(`${api.url}/api/v1/chat`, { bearer: assistant.apiKey, body, ...options });
  return { assistant, api, chat };
};

/** How many turns of this session are stored with their reply. */
const storedOf = async ({ session_id: sessionId }: Record<string, unknown>): Promise<unknown> =>
  (await stack.service.mongo.collection('conversations').findOne({ sessionId }))?.['seq'] ?? 0;

test('an assistant that sends more than can be answered is refused, and its neighbour gets every answer', async () => {
  const greedy = await anAssistant(stack);
  const neighbour = await anAssistant(stack);
  await stack.service.assistants.setChannel(neighbour.assistantId, { connected: true, token: null });
  const { statuses } = sendWithoutPause(greedy.apiKey, GREEDY_CALLERS);
  await eventually(() => expect(statuses.get('503')).toBeGreaterThan(0));
  const answeredBefore = statuses.get('200') ?? 0;

  const seen: unknown[] = [];
  for (let count = 0; count < ROUNDS; count += 1) {
    seen.push((await neighbour.chat(aTurn())).status);
    seen.push((await neighbour.chat(aTurn(), RESPOND_ASYNC)).status);
    const channel = `${stack.url}/api/v1/channels/webhook/${neighbour.assistantId}`;
    seen.push((await request(channel, { body: aTurn() })).status);
    const stream = await openStream(`${stack.url}/api/v1/chat`, { body: aTurn(), bearer: neighbour.apiKey });
    seen.push((await stream.ended).at(-1)?.event);
  }

  expect(seen).toEqual(Array.from({ length: ROUNDS }, () => [200, 202, 200, 'message']).flat());
  await eventually(() => expect(statuses.get('200')).toBeGreaterThan(answeredBefore));
  expect([...statuses.keys()].sort()).toEqual(['200', '503']);
});

test('callers that are refused, or send their bodies slowly, take no places from callers who are new', async () => {
  const [greedy, slow] = [await anAssistant(stack), await anAssistant(stack)];
  const { statuses } = sendWithoutPause(greedy.apiKey, GREEDY_CALLERS);
  await eventually(() => expect(statuses.get('503')).toBeGreaterThan(0));
  const head = `POST /api/v1/chat HTTP/1.1\r\nHost: slow\r\nAuthorization: Bearer ${slow.apiKey}\r\nContent-Type: application/json\r\n`;
  let arrived = 0;
  const sockets = Array.from({ length: SLOW_CALLERS }, () => {
    const socket = connect(Number(new URL(stack.url).port), '127.0.0.1').on('error', () => undefined);
    socket.once('data', () => (arrived += 1)).write(`${head}Expect: 100-continue\r\nContent-Length: 9\r\n\r\n`);
    return socket;
  });
  onTestFinished(() => sockets.forEach((socket) => void socket.destroy()));
  await eventually(() => expect(arrived).toBe(SLOW_CALLERS));
  const newOnesAreServed = async (): Promise<void> => {
    const some = await Promise.all(Array.from({ length: 5 }, () => anAssistant(stack)));
    const answers = await Promise.all(some.map(({ chat }) => chat(aTurn())));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
  };

  await eventually(newOnesAreServed);
  const refused = sendWithoutPause(randomUUID(), SLOW_CALLERS);
  await eventually(() => expect(refused.statuses.get('429')).toBeGreaterThan(100));
  await eventually(newOnesAreServed);
});

test('visitors who are refused take no places from callers who are new', async () => {
  const greedy = await anAssistant(stack);
  const some = await Promise.all(Array.from({ length: 10 }, () => anAssistant(stack)));
  const { statuses } = sendWithoutPause(greedy.apiKey, GREEDY_CALLERS);
  await eventually(() => expect(statuses.get('503')).toBeGreaterThan(0));
  const refused = sendWithoutPause('', SLOW_CALLERS, '/api/v1/web/nobody/messages');
  await eventually(() => expect(refused.statuses.get('429')).toBeGreaterThan(SLOW_CALLERS));

  const served = await Promise.all(some.map(({ chat }) => chat(aTurn())));
  expect(served.map(({ status }) => status)).toEqual(some.map(() => 200));
});

// Each has a gate of its own, and mostly waits to be refused, so they wait together.
test.concurrent('a caller who leaves while it waits has sent nothing, and a later one is served', async (context) => {
  const { expect } = context;
  const { assistant, api, chat } = await anAssistantAtItsGate(context);
  const letGo = await fillGate(assistant, api.url, context);
  const [left, stayed] = [aTurn({ message: `left ${randomUUID()}` }), aTurn({ message: `stayed ${randomUUID()}` })];
  const caller = new AbortController();
  const gone = fetch(`${api.url}/api/v1/chat`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${assistant.apiKey}`, 'Content-Type': 'application/json' },
    body: JSON.stringify(left),
    signal: caller.signal,
  }).catch(() => 'left');
  const refused = await chat(stayed);
  caller.abort();

  expect(problemOf(refused)).toBe('503 unavailable');
  expect(refused.headers.get('Retry-After')).toBe('1');
  await gone;
  letGo();
  await eventually(async () => expect((await chat(stayed)).status).toBe(200));
  expect(await storedOf(left)).toBe(0);
  expect(await storedOf(stayed)).toBe(1);
});

test.concurrent('a message and its retry that wait at the same time are one turn', async (context) => {
  const { expect } = context;
  const { assistant, api, chat } = await anAssistantAtItsGate(context);
  const letGo = await fillGate(assistant, api.url, context);
  const turn = aTurn({ message: `once ${randomUUID()}` });
  const rest = { headers: { 'Idempotency-Key': randomUUID() } };
  const send = (): Promise<Answer<ChatBody>> => chat(turn, rest);

  const first = Promise.all([send(), send()]);
  letGo();
  await first;
  const answers = await eventually(async () => {
    const both = await Promise.all([send(), send()]);
    expect(both.map(({ status }) => status)).toEqual([200, 200]);
    return both;
  });

  expect(
    new Set([...answers, ...(await first)].flatMap(({ status, body }) => (status === 200 ? [body.messageId] : []))),
  ).toHaveProperty('size', 1);
  expect(await storedOf(turn)).toBe(1);
});

test.concurrent('turns that wait when the process stops are answered or refused, and none is lost', async (context) => {
  const { expect } = context;
  const { assistant, api } = await anAssistantAtItsGate(context);
  const letGo = await fillGate(assistant, api.url, context);
  const turns = Array.from({ length: 10 }, () => aTurn({ message: `waits ${randomUUID()}` }));
  const waiting = turns.map((body) => request(`${api.url}/api/v1/chat`, { bearer: assistant.apiKey, body }));

  await request(`${api.url}/healthz`);
  const stopping = api.close();
  letGo();
  const answers = await Promise.all(waiting);
  await stopping;

  for (const [nth, body] of turns.entries()) {
    // 500: MongoDB was too busy to say whether it is stored, so it is sent again.
    const isUnknown = answers[nth]?.status === 500;
    const sent = isUnknown ? request(`${stack.url}/api/v1/chat`, { bearer: assistant.apiKey, body }) : answers[nth];
    const { status = 0 } = (await sent) ?? {};
    expect([200, 503]).toContain(status);
    expect(await storedOf(body)).toBe(status === 200 ? 1 : 0);
  }
});
