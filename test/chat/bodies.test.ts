import { randomUUID } from 'node:crypto';
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { anAssistant, aTurn, request } from '../support/builders.ts';
import { problemOf } from '../support/problem.ts';
import { sendRaw } from '../kit/raw-http.ts';
import { useOpened, useStack } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';

const stack = useStack();
const LIMIT = 65_536;
const assistant = useOpened(() => anAssistant(stack, { knowledge: [] }));

const send = (body: string | Uint8Array, headers: Record<string, string> = {}) =>
  assistant.call<{ messageId?: string }>('/api/v1/chat', { body, headers });

/** A turn as JSON with exactly `bytes` bytes. An unknown field is used as padding. */
const jsonOf = (bytes: number): string => {
  const json = JSON.stringify(aTurn({ padding: '' }));
  return json.replace('"padding":""', `"padding":"${'x'.repeat(bytes - json.length)}"`);
};

const countStored = () =>
  stack.service.mongo.collection('conversations').countDocuments({ assistantId: assistant.assistantId });

const turn = JSON.stringify(aTurn());
const deep = '['.repeat(30_000) + ']'.repeat(30_000);

test.each([
  ['nothing', ''],
  ['blank', '  \n'],
  ['cut off', '{"session_id":"a"'],
  ['two objects', '{}{}'],
  ['a comma too many', '{"session_id":"a","message":"b",}'],
  ['single quotes', "{'session_id':'a'}"],
  ['an array', `[${turn}]`],
  ['a string', '"hello"'],
  ['a number', '1'],
  ['true', 'true'],
  ['null', 'null'],
  ['a form', 'session_id=a&message=b'],
  ['an array 30,000 deep', deep],
  ['a raw control character', '{"session_id":"a","message":"\u0001"}'],
  ['NaN', '{"session_id":NaN,"message":"b"}'],
])('a body that is %s is invalid_json', async (_name, body) => {
  expect(problemOf(await send(body))).toBe('422 invalid_json');
});

test.each([
  ['UTF-8 cut off', Buffer.concat([Buffer.from('{"session_id":"a","message":"'), Buffer.from([0xe2, 0x82])])],
  ['an overlong encoding', Buffer.from('{"session_id":"a","message":"\xc0\xaf"}', 'latin1')],
  ['a surrogate as bytes', Buffer.from('{"session_id":"a","message":"\xed\xa0\x80"}', 'latin1')],
  ['Latin-1', Buffer.from('{"session_id":"a","message":"caf\xe9"}', 'latin1')],
  ['UTF-16', Buffer.from(`\ufeff${turn}`, 'utf16le')],
])('%s is invalid_json', async (_name, body) => {
  expect(problemOf(await send(body))).toBe('422 invalid_json');
});

test.each([
  ['text/plain', {}],
  ['application/x-www-form-urlencoded', {}],
  ['application/vnd.api+json', {}],
  ['application/json; charset=latin1', {}],
  ['application/json; charset=utf-16', {}],
  ['json', {}],
  ['', {}],
  ['application/json', { 'Content-Encoding': 'compress' }],
  ['application/json', { 'Content-Encoding': 'gzip' }],
  ['application/json', { 'Content-Encoding': 'gzip, gzip' }],
  ['application/json', { 'Content-Encoding': '__proto__' }],
])('a valid turn as "%s" with %j is invalid_json', async (type, headers) => {
  expect(problemOf(await send(turn, { 'Content-Type': type, ...headers }))).toBe('422 invalid_json');
});

test.each([
  ['application/json; charset=utf-8', {}],
  ['application/json;charset="UTF-8"', {}],
  ['APPLICATION/JSON', {}],
  ['application/json; profile=x', {}],
  ['application/json', { 'Content-Encoding': 'identity' }],
])('a turn as %s with %j is accepted', async (type, headers) => {
  expect((await send(JSON.stringify(aTurn()), { 'Content-Type': type, ...headers })).status).toBe(200);
});

test('a compressed body is accepted, a broken one is not, and the unpacked size counts', async () => {
  const fresh = () => Buffer.from(JSON.stringify(aTurn()));
  const answers = [
    await send(gzipSync(fresh()), { 'Content-Encoding': 'gzip' }),
    await send(deflateSync(fresh()), { 'Content-Encoding': 'DEFLATE' }),
    await send(brotliCompressSync(fresh()), { 'Content-Encoding': 'br' }),
  ];
  const cut = await send(gzipSync(fresh()).subarray(0, 40), { 'Content-Encoding': 'gzip' });
  const bomb = await send(gzipSync(Buffer.alloc(20_000_000, ' ')), { 'Content-Encoding': 'gzip' });

  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
  expect(problemOf(cut)).toBe('422 invalid_json');
  expect(problemOf(bomb)).toBe('413 payload_too_large');
});

test('a byte order mark is ignored', async () => {
  expect((await send(`\ufeff${JSON.stringify(aTurn())}`)).status).toBe(200);
});

test('a body of 64 KiB is accepted, one byte more is not', async () => {
  const most = await send(jsonOf(LIMIT));
  const more = await send(jsonOf(LIMIT + 1));
  const escalation = await assistant.call(`/api/v1/conversations/${randomUUID()}/escalate`, {
    body: jsonOf(LIMIT + 1),
  });

  expect(most.status).toBe(200);
  expect(problemOf(more)).toBe('413 payload_too_large');
  expect(problemOf(escalation)).toBe('413 payload_too_large');
});

test('an endless body is refused as soon as it is too large', async () => {
  const head = `POST /api/v1/chat HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${assistant.apiKey}\r\n`;
  const chunk = `8000\r\n${' '.repeat(0x8000)}\r\n`;
  const startedAt = performance.now();

  const [chunked, announced] = await Promise.all([
    sendRaw(stack.url, `${head}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n${chunk.repeat(3)}`),
    sendRaw(stack.url, `${head}Content-Length: 10000000000\r\n\r\n{}`),
  ]);

  expect([problemOf(chunked), problemOf(announced)]).toEqual(['413 payload_too_large', '413 payload_too_large']);
  expect(performance.now() - startedAt).toBeLessThan(atPace(5_000));
});

test('of two fields of one name the last counts, and names such as __proto__ have no special meaning', async () => {
  const session = randomUUID();
  const twice = await send(`{"session_id":7,"session_id":"${session}","message":"a","message":"b"}`);
  const polluted = await send(
    `{"__proto__":{"session_id":"x","message":"y"},"constructor":{"prototype":{"message":"z"}}}`,
  );
  const carried = await send(`{"__proto__":{"admin":true},"session_id":"${session}","message":"c","toString":1}`);

  expect([twice.status, carried.status]).toEqual([200, 200]);
  expect(problemOf(polluted)).toBe('422 validation_failed session_id');
  expect(({} as { admin?: boolean }).admin).toBeUndefined();
});

test('an optional body may be empty, but not invalid', async () => {
  const { body } = await assistant.chat(aTurn());
  const path = `/api/v1/conversations/${body.conversationId}/escalate`;
  const escalate = (rest: Parameters<typeof request>[1]) => assistant.call(path, { method: 'POST', ...rest });

  const malformed = [await escalate({ body: '[]' }), await escalate({ body: 'null' }), await escalate({ body: ' ' })];
  const empty = await escalate({});

  expect(malformed.map(problemOf)).toEqual(Array(3).fill('422 invalid_json'));
  expect(empty.status).toBe(200);
});

test('refused bodies store nothing', async () => {
  const before = await countStored();

  for (const body of ['', '[]', '{}', jsonOf(LIMIT + 1), '{"session_id":"a"}']) await send(body);

  expect(await countStored()).toBe(before);
});
