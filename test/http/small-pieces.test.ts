import { randomUUID } from 'node:crypto';
import { connect } from 'node:net';
import { expect, test } from 'vitest';
import { anAssistant, aTurn } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { useOpened, useStack } from '../support/stack.ts';

const stack = useStack();
const assistant = useOpened(() => anAssistant(stack));

const headOf = (path: string, headers: string[] = []) =>
  [`POST ${path} HTTP/1.1`, 'Host: x', 'Content-Type: application/json', ...headers, '', ''].join('\r\n');
const inPieces = (text: string, size: number) =>
  (text.match(new RegExp(`.{1,${size}}`, 'g')) ?? []).map((one) => `${one.length.toString(16)}\r\n${one}\r\n`).join('');
const CHUNKED = 'Transfer-Encoding: chunked';

/** Opens a connection. What it was answered, how much it could send, and whether it has ended. */
const open = () => {
  const { hostname, port } = new URL(stack.url);
  const socket = connect(Number(port), hostname);
  let answers = '';
  socket.on('data', (part: Buffer) => {
    answers += part.toString();
  });
  socket.on('error', () => undefined);
  return { socket, text: () => answers, answers: () => answers.match(/(?<=HTTP\/1\.1 )\d+/g) ?? [] };
};

test.each([
  ['a body that nobody reads', () => headOf('/nowhere', [CHUNKED]), ['404', '413']],
  ['a body without a key', () => headOf('/api/v1/chat', [CHUNKED]), ['401', '413']],
  ['a sign-in', () => headOf('/operator/v1/session', [CHUNKED]), ['413']],
  ['a message', () => headOf('/api/v1/chat', [CHUNKED, `Authorization: Bearer ${assistant.apiKey}`]), ['413']],
])('%s in pieces of one byte ends with its connection', async (_what, head, possible) => {
  const { socket, answers, text } = open();
  let pieces = 0;
  const write = (): void => {
    if (socket.destroyed) return;
    pieces += 5_000;
    socket.write('1\r\na\r\n'.repeat(5_000), () => setImmediate(write));
  };
  socket.write(head(), write);

  await eventually(() => expect(socket.destroyed).toBe(true));

  expect(possible).toContain(answers()[0]);
  expect(answers()[0] !== '413' || text().includes('The request body comes in too many small pieces.')).toBe(true);
  expect(pieces).toBeLessThan(2_000_000);
});

test('a body in some small pieces, and a large one in usual pieces, are read', async () => {
  const message = JSON.stringify(aTurn({ session_id: randomUUID(), message: 'When are you open?' }));
  const long = JSON.stringify(aTurn({ session_id: randomUUID(), message: 'When? '.repeat(1_300) }));
  const { socket, answers } = open();
  const head = headOf('/api/v1/chat', [CHUNKED, `Authorization: Bearer ${assistant.apiKey}`]);

  socket.write(`${head}${inPieces(message, 1)}0\r\n\r\n`);
  await eventually(() => expect(answers()).toEqual(['200']));
  socket.write(`${head}${inPieces(long, 10)}0\r\n\r\n`);
  await eventually(() => expect(answers()).toEqual(['200', '200']));

  socket.destroy();
});

test('bodies that nobody reads may together have as many pieces as one', async () => {
  const { socket, answers } = open();
  const request = `${headOf('/healthz', [CHUNKED]).replace('POST', 'GET')}${'1\r\na\r\n'.repeat(900)}0\r\n\r\n`;

  socket.write(request);
  await eventually(() => expect(answers()).toEqual(['200']));
  socket.write(request);
  await eventually(() => expect(socket.destroyed).toBe(true));

  expect(answers()).toEqual(['200', '413']);
});
