import { randomUUID } from 'node:crypto';
import { IncomingMessage, ServerResponse } from 'node:http';
import { connect, Socket } from 'node:net';
import type { Response } from 'express';
import { expect, onTestFinished, test } from 'vitest';
import { limitEachAssistant } from '../../src/platform/http/request-slots.ts';
import { anAssistant, aTurn } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { watchNeighbour } from '../support/neighbour.ts';
import { aScriptedEngine } from '../support/scripted-engine.ts';
import { useStack } from '../support/stack.ts';
import { collect } from '../support/heap.ts';

const { engine, hold } = aScriptedEngine();
const stack = useStack({ engine, deliveryWorkers: 0 });
const MB = 1024 * 1024;
/** How many requests and messages of an assistant are worked on at once. */
const AT_ONCE = { request: 4, message: 16 };
/** How long a request may wait for its turn. */
const WAIT_MS = 10_000;

/** What is in use: values, and the bytes outside of the heap. */
const memoryMb = () => {
  collect();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return { all: (heapUsed + arrayBuffers) / MB, bytes: arrayBuffers / MB };
};

/** An assistant whose requests wait, until the test ends or it calls `goOn`. */
const aBusyAssistant = async (atOnce = AT_ONCE) => {
  const { assistantId, apiKey } = await anAssistant(stack, { knowledge: [] });
  const works: Response[] = [];
  for (const kind of ['request', 'message'] as const) {
    for (let nth = 0; nth < atOnce[kind]; nth += 1) {
      const res = new ServerResponse(new IncomingMessage(new Socket()));
      const work = Object.assign(res, { locals: {} }) as unknown as Response;
      await limitEachAssistant(assistantId, work, { kind });
      works.push(work);
    }
  }
  const goOn = (): void => works.forEach((res) => void res.emit('close'));
  onTestFinished(goOn);
  return { apiKey, goOn };
};

/** Sends a request on a connection of its own. Resolves when it is sent. */
const send = async (apiKey: string, path: string, body: Buffer, { chunked = false } = {}) => {
  const socket = connect(Number(new URL(stack.url).port), '127.0.0.1').on('error', () => undefined);
  onTestFinished(() => void socket.destroy());
  let answer = '';
  socket.on('data', (part: Buffer) => {
    answer += part.toString('latin1');
  });
  const head = [
    `POST ${path} HTTP/1.1`,
    'Host: x',
    `Authorization: Bearer ${apiKey}`,
    'Content-Type: application/json',
  ];
  const [length, before, after] = chunked
    ? ['Transfer-Encoding: chunked', `${body.length.toString(16)}\r\n`, '\r\n0\r\n\r\n']
    : [`Content-Length: ${body.length}`, '', ''];
  socket.write(`${head.join('\r\n')}\r\n${length}\r\n\r\n${before}`);
  socket.write(body);
  await new Promise<void>((resolve) => socket.write(after, () => resolve()));
  return { socket, status: () => answer.slice(9, 12) };
};

const sendMany = (count: number, ...sent: Parameters<typeof send>) =>
  Promise.all(Array.from({ length: count }, () => send(...sent)));

const countOf = (all: Awaited<ReturnType<typeof send>>[], status: string): number =>
  all.filter((one) => one.status() === status).length;

test('turns that wait for their reply do not keep the bytes of their bodies', async () => {
  const { assistantId, apiKey, chat } = await anAssistant(stack);
  const message = randomUUID();
  const release = hold(message);
  onTestFinished(release);
  const bodyOf = () => Buffer.from(JSON.stringify({ ...aTurn({ message }), padding: 'x'.repeat(65_000) }));
  await chat(aTurn());
  const before = memoryMb().bytes;

  for (let nth = 0; nth < 80; nth += 1) await send(apiKey, '/api/v1/chat', bodyOf());
  const count = () => stack.service.mongo.collection('conversations').countDocuments({ assistantId });
  await eventually(async () => expect(await count()).toBe(81));

  await eventually(() => expect(memoryMb().bytes - before).toBeLessThan(2), WAIT_MS / 2);
});

/** As JSON 60 kB, and more than ten times as many bytes when it was parsed. */
const PADDING = Array.from({ length: 20_000 }, () => []);
const WAITING = 40;

test.each([
  ['of the chat API', '/api/v1/chat', { ...aTurn({ message: '' }), padding: PADDING }],
  ['of OpenAI’s protocol', '/v1/chat/completions', { messages: [], padding: PADDING }],
  ['of MCP', '/mcp', { jsonrpc: '2.0', id: 1, method: 'x', padding: PADDING }],
])('requests %s that wait for their turn take only the memory of their bytes', async (_of, path, json) => {
  const neighbour = await anAssistant(stack);
  const { apiKey } = await aBusyAssistant();
  await neighbour.chat(aTurn());
  const before = memoryMb().all;

  // When the neighbour was served, the service has read them.
  const { statuses } = await watchNeighbour(
    () => neighbour.chat(aTurn()),
    () => sendMany(WAITING, apiKey, path, Buffer.from(JSON.stringify(json))),
    { atLeast: 40 },
  );

  expect(statuses).toEqual([200]);
  expect(memoryMb().all - before).toBeLessThan(WAITING * 0.25);
});

test.each([
  ['a message that never ends', 'POST', '/api/v1/chat'],
  ['a request that waits, and whose body nobody reads', 'GET', ''],
])('%s costs little, however many pieces it comes in', async (_what, method, at) => {
  const { apiKey, chat } = await anAssistant(stack);
  const { body } = await chat(aTurn());
  const path = at || `/api/v1/conversations/${body.conversationId}?after_seq=99&wait=25`;
  const lines = ['Host: x', `Authorization: Bearer ${apiKey}`, 'Content-Type: application/json'];
  const head = [`${method} ${path} HTTP/1.1`, ...lines, 'Transfer-Encoding: chunked', '', ''].join('\r\n');
  const before = memoryMb().all;

  const { statuses } = await watchNeighbour(
    () => chat(aTurn()),
    () =>
      Promise.all(
        Array.from({ length: 100 }, async () => {
          const socket = connect(Number(new URL(stack.url).port), '127.0.0.1').on('error', () => undefined);
          onTestFinished(() => void socket.destroy());
          await new Promise((resolve) => socket.write(head + '1\r\na\r\n'.repeat(900), resolve));
        }),
      ),
    { atLeast: 40 },
  );

  expect(statuses).toEqual([200]);
  expect(memoryMb().all - before).toBeLessThan(12);
});

test('requests whose callers have left before their bodies are read take no memory any more', async () => {
  const neighbour = await anAssistant(stack);
  const { apiKey } = await anAssistant(stack, { knowledge: [] });
  const lines = ['Host: x', `Authorization: Bearer ${apiKey}`, 'Content-Type: application/json', 'Content-Length: 9'];
  const fill = Array.from({ length: 90 }, (_, nth) => `X-${nth}: ${'x'.repeat(150)}`);
  const head = ['POST /api/v1/chat HTTP/1.1', ...lines, ...fill, '', '{'].join('\r\n');
  const askAndLeave = async (): Promise<void> => {
    const socket = connect(Number(new URL(stack.url).port), '127.0.0.1').on('error', () => undefined);
    await new Promise((resolve) => socket.write(head, resolve));
    socket.resetAndDestroy();
  };
  for (let nth = 0; nth < 20; nth += 1) await askAndLeave();
  await neighbour.chat(aTurn());
  const before = memoryMb().all;

  for (let nth = 0; nth < 400; nth += 1) await askAndLeave();

  await neighbour.chat(aTurn());
  await eventually(() => expect(memoryMb().all - before).toBeLessThan(3), WAIT_MS);
});

test('requests whose callers leave while they wait for their turn take no memory any more', async () => {
  const neighbour = await anAssistant(stack);
  const { apiKey } = await aBusyAssistant();
  await neighbour.chat(aTurn());
  const before = memoryMb().all;
  const body = Buffer.from(JSON.stringify(aTurn({ message: 'x'.repeat(65_000) })));
  const sent = await sendMany(200, apiKey, '/api/v1/chat', body);
  await eventually(async () => {
    await neighbour.chat(aTurn());
    expect(memoryMb().all - before).toBeGreaterThan(12);
  });

  for (const { socket } of sent) socket.destroy();

  await eventually(() => expect(memoryMb().all - before).toBeLessThan(6), WAIT_MS / 3);
});

test('bodies that wait for their turn share the bytes of those that arrive', async () => {
  const neighbour = await anAssistant(stack);
  const { apiKey } = await aBusyAssistant();
  const body = Buffer.alloc(256 * 1024, ' ');

  const sent = await sendMany(160, apiKey, '/v1/chat/completions', body);

  // One holder has half of the 64 MB, so some are refused before the others have waited for too long.
  await eventually(() => expect(countOf(sent, '503')).toBeGreaterThan(0), WAIT_MS / 2);
  const { status } = await neighbour.chat(aTurn());
  expect(status).toBe(200);
});

test('messages of other assistants that wait for their turn hold up no large message', async () => {
  const neighbour = await anAssistant(stack);
  const busy = await Promise.all(Array.from({ length: 6 }, () => aBusyAssistant({ ...AT_ONCE, message: 0 })));
  const few = Buffer.from('{}');
  const waiting = await Promise.all(
    busy.map(({ apiKey }) => sendMany(16, apiKey, '/v1/chat/completions', few, { chunked: true })),
  );
  for (let nth = 0; nth < 4; nth += 1) await neighbour.chat(aTurn()); // meanwhile the service has read them
  const messages = [
    { role: 'user', content: 'x'.repeat(100_000) },
    { role: 'user', content: 'hello' },
  ];

  const { status } = await neighbour.call('/v1/chat/completions', { body: { user: 'a', messages } });

  expect([status, countOf(waiting.flat(), '')]).toEqual([200, 6 * 16]);
  for (const { goOn } of busy) goOn();
  await eventually(() => expect(countOf(waiting.flat(), '422')).toBe(6 * 16));
});
