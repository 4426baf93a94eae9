import { once } from 'node:events';
import { connect } from 'node:net';
import { expect, test } from 'vitest';
import { anAssistant, aTurn } from '../support/builders.ts';
import { problemOf } from '../support/problem.ts';
import { sendRaw } from '../kit/raw-http.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack();

test.each([
  ['an unknown protocol', 'GET / FOO/9\r\n\r\n'],
  ['bytes that are no text', Buffer.from([0, 255, 1, 2, 13, 10, 13, 10])],
  ['an unknown method', 'BREW /pot HTTP/1.1\r\nHost: x\r\n\r\n'],
  ['a TLS hello on a plain port', Buffer.from('16030100c8010000c40303', 'hex')],
  ['a header without a colon', 'GET /healthz HTTP/1.1\r\nHost: x\r\nrubbish\r\n\r\n'],
  [
    'two lengths that differ',
    'POST /api/v1/chat HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}',
  ],
  [
    'a length beside chunks',
    'POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
  ],
  ['a length that is no number', 'POST /api/v1/chat HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n'],
])('%s is answered with 400 as JSON', async (_name, bytes) => {
  expect(problemOf(await sendRaw(stack.url, bytes))).toBe('400 malformed_request');
});

test('a chunk of a malformed size is answered with 400, stores nothing and does not harm the service', async () => {
  const { apiKey, assistantId, chat } = await anAssistant(stack);
  const head = `POST /api/v1/chat HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${apiKey}\r\n`;

  const answer = await sendRaw(
    stack.url,
    `${head}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n`,
  );

  expect(problemOf(answer)).toBe('400 malformed_request');
  expect((await stack.service.conversations.list({ assistantId })).conversations).toEqual([]);
  expect((await chat(aTurn())).status).toBe(200);
});

test('headers larger than 16 KiB are answered with 431 as JSON', async () => {
  const answer = await sendRaw(stack.url, `GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: ${'a'.repeat(20_000)}\r\n\r\n`);

  expect(problemOf(answer)).toBe('431 headers_too_large');
});

test('a path longer than 16 KiB is answered with 431 as JSON', async () => {
  const answer = await sendRaw(stack.url, `GET /${'a'.repeat(20_000)} HTTP/1.1\r\n\r\n`);

  expect(problemOf(answer)).toBe('431 headers_too_large');
});

test('a request with a hundred headers is answered, and one with more gets 431 as JSON', async () => {
  const requestWith = (headers: number): string => {
    const lines = Array.from({ length: headers - 1 }, (_, nth) => `X-${nth}: a`);
    return `GET /healthz HTTP/1.1\r\nConnection: close\r\n${lines.join('\r\n')}\r\n\r\n`;
  };

  expect(await sendRaw(stack.url, requestWith(100))).toMatchObject({ status: 200 });
  expect(problemOf(await sendRaw(stack.url, requestWith(101)))).toBe('431 headers_too_large');
  expect(problemOf(await sendRaw(stack.url, requestWith(1_000)))).toBe('431 headers_too_large');
});

test('chunk extensions without end are answered with 413 as JSON', async () => {
  const { apiKey } = await anAssistant(stack);
  const head = `POST /api/v1/chat HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${apiKey}\r\nTransfer-Encoding: chunked`;

  const answer = await sendRaw(stack.url, `${head}\r\n\r\n2;${'a'.repeat(20_000)}\r\n{}\r\n0\r\n\r\n`);

  expect(problemOf(answer)).toBe('413 payload_too_large');
});

test('CONNECT is answered with 404 as JSON', async () => {
  const answer = await sendRaw(stack.url, 'CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n');

  expect(problemOf(answer)).toBe('404 not_found');
});

test('a connection that is reset after CONNECT ends alone', async () => {
  const { hostname, port } = new URL(stack.url);
  const socket = connect(Number(port), hostname);
  socket.write('CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n');
  await once(socket, 'data');

  socket.resetAndDestroy();

  // An error that nobody hears would end the process, and here the test run.
  expect(await sendRaw(stack.url, 'GET /healthz HTTP/1.0\r\n\r\n')).toMatchObject({ status: 200 });
});

test('an interrupted request is not logged as an error and stores nothing', async () => {
  const { apiKey, assistantId, chat } = await anAssistant(stack);
  const head = `POST /api/v1/chat HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${apiKey}\r\nContent-Type: application/json`;

  await sendRaw(stack.url, `${head}\r\nContent-Length: 100\r\n\r\n{"session_id":`, 300).catch(() => undefined);

  expect((await chat(aTurn())).status).toBe(200);
  expect((await stack.service.conversations.list({ assistantId })).conversations).toHaveLength(1);
  expect(stack.logs.filter(({ level }) => Number(level) >= 50)).toEqual([]);
});

test.each([
  ['without a host', 'GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n'],
  ['of HTTP/1.0', 'GET /healthz HTTP/1.0\r\n\r\n'],
  ['with an absolute URL', 'GET http://elsewhere.example/healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'],
  ['with an unknown expectation', 'GET /healthz HTTP/1.1\r\nHost: x\r\nExpect: tea\r\nConnection: close\r\n\r\n'],
  [
    'that asks for another protocol',
    'GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n',
  ],
])('a request %s is answered like any other', async (_name, bytes) => {
  const answer = await sendRaw(stack.url, bytes);

  expect(answer).toMatchObject({ status: 200, body: { status: 'ok' } });
});
