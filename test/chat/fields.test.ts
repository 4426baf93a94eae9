import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { apiDocument } from '../../src/api/document.ts';
import { anAssistant, aTurn, type ErrorBody } from '../support/builders.ts';
import { problemOf } from '../support/problem.ts';
import { useOpened, useStack } from '../support/stack.ts';

const stack = useStack();
const assistant = useOpened(() => anAssistant(stack, { knowledge: [] }));

const chat = (overrides: Record<string, unknown>, headers: Record<string, string> = {}) =>
  assistant.chat(aTurn(overrides), { headers });

const EMOJI = '😀';
const BLANKS = ['', ' ', '\t\n\r', '\u00a0', '\u2003\u3000', '\u2028\u2029', '\ufeff'];
const NOT_STRINGS = [undefined, null, 7, true, [], {}, ['a'], { $ne: null }];
const LONE = ['\ud800', 'a\udc00', '\ude00\ud83d', 'a\ud83d'];

test.each(['session_id', 'message'])('%s is required and must be a string', async (field) => {
  for (const value of NOT_STRINGS) {
    const answer = await chat({ [field]: value });
    expect(problemOf(answer)).toBe(`422 validation_failed ${field}`);
    const { message, details } = (answer.body as unknown as { error: { message: string; details: unknown[] } }).error;
    expect(details).toHaveLength(1);
    expect(message).toBe(`${field} ${value === undefined ? 'is required' : 'must be a string'}`);
  }
});

test.each(['session_id', 'message'])('%s must not be blank', async (field) => {
  for (const value of BLANKS) {
    expect(problemOf(await chat({ [field]: value }))).toBe(`422 validation_failed ${field}`);
  }
});

test('a message that shows nothing is blank', async () => {
  for (const message of ['\u200b', ' \u200d\ufe0f ', '\u2060\u00ad', '\u2800', '\u0301', '\u0085']) {
    expect(problemOf(await chat({ message }))).toBe('422 validation_failed message');
  }
  expect((await chat({ message: '\u200bHi' })).status).toBe(200);
});

test.each(['session_id', 'message', 'language'])('a lone surrogate in %s is refused', async (field) => {
  for (const value of LONE) {
    expect(problemOf(await chat({ [field]: value }))).toBe(`422 validation_failed ${field}`);
  }
});

test('session_id is 1–256 code points, however many bytes those are', async () => {
  const unique = randomUUID();
  for (const value of [
    'a'.repeat(256),
    EMOJI.repeat(256),
    `${unique}${EMOJI.repeat(220)}`,
    '-',
    '0',
    `  ${unique}  `,
  ]) {
    expect((await chat({ session_id: value })).status).toBe(200);
  }
  for (const value of ['a'.repeat(257), EMOJI.repeat(257), `a${EMOJI.repeat(256)}`]) {
    expect(problemOf(await chat({ session_id: value }))).toBe('422 validation_failed session_id');
  }
});

test('session_id must not contain control characters, and is neither trimmed nor folded', async () => {
  for (const code of [0x00, 0x01, 0x09, 0x0a, 0x0d, 0x1f, 0x7f, 0x80, 0x9f]) {
    const answer = await chat({ session_id: `a${String.fromCodePoint(code)}b` });
    expect(problemOf(answer)).toBe('422 validation_failed session_id');
  }
  const sessions = ['user', 'User', ' user', 'user ', 'ü', 'u\u0308', 'user\u200b', '\u202euser', '$user.__proto__'];
  const ids = new Set<string>();
  for (const session_id of sessions) {
    const { body } = await chat({ session_id });
    ids.add(body.conversationId);
    expect((await assistant.history(body.conversationId)).body.sessionId).toBe(session_id);
  }
  expect(ids.size).toBe(sessions.length);
});

test('message is 1–8,000 code points, kept exactly', async () => {
  for (const message of ['x', 'x'.repeat(8000), EMOJI.repeat(8000), '  kept \r\n\t as it is  ', '\u0007\u001b[31m']) {
    const { status, body } = await chat({ message });
    expect(status).toBe(200);
    expect((await assistant.history(body.conversationId)).body.messages[0]?.content).toBe(message);
  }
  for (const message of ['x'.repeat(8001), EMOJI.repeat(8001), `x${EMOJI.repeat(8000)}`, 'a\0b', '\0']) {
    expect(problemOf(await chat({ message }))).toBe('422 validation_failed message');
  }
});

test.each([
  ['en', 'en'],
  ['EN-us', 'en-US'],
  ['zh-hant-tw', 'zh-Hant-TW'],
  ['iw', 'he'],
  ['sr-cyrl', 'sr-Cyrl'],
  ['de-DE-u-co-phonebk', 'de-DE-u-co-phonebk'],
  ['pt_BR', 'pt-BR'],
  ['en_US.UTF-8', 'en-US'],
  ['de_DE@euro', 'de-DE'],
  [' de ', 'de'],
])('the language %s is stored as %s', async (given, stored) => {
  const { body } = await chat({ language: given });
  const { body: record } = await assistant.history(body.conversationId);

  expect([record.language, record.messages[0]?.language]).toEqual([stored, stored]);
});

test('a language left out or null is detected', async () => {
  const message = 'Guten Tag, ich hätte gerne gewusst, wann Sie morgen geöffnet haben.';
  for (const rest of [{}, { language: null }, { language: undefined }]) {
    const { body } = await chat({ message, ...rest });
    expect((await assistant.history(body.conversationId)).body.language).toBe('de');
  }
});

test.each(['', 'english please', 'en US', 'e', '-', 'en-', 'x'.repeat(9), `en-x-${'a'.repeat(32)}`, 'en\u0000'])(
  'the language %j is refused',
  async (language) => {
    expect(problemOf(await chat({ language }))).toBe('422 validation_failed language');
  },
);

test('a language that is not a string is refused', async () => {
  for (const language of [1, true, [], ['en'], {}]) {
    expect(problemOf(await chat({ language }))).toBe('422 validation_failed language');
  }
});

test('a key that is empty, too long or not visible ASCII is refused, and one of 255 characters is accepted', async () => {
  const keyed = (key: string) => chat({}, { 'Idempotency-Key': key });

  for (const key of ['', 'with space', 'k'.repeat(256), 'caf\u00e9', 'tab\tbed']) {
    expect(problemOf(await keyed(key))).toBe('422 validation_failed Idempotency-Key');
  }
  for (const key of ['k'.repeat(255), '!"#$%&()*+,/:;<=>?@[]^_`{|}~', '$where', '__proto__']) {
    expect((await keyed(key)).status).toBe(200);
  }
});

test('a key reused with another session or message is refused and stores nothing', async () => {
  const turn = aTurn();
  const headers = { 'Idempotency-Key': randomUUID() };
  const first = await assistant.chat(turn, { headers });

  const message = await assistant.chat({ ...turn, message: 'Something else' }, { headers });
  const session = await assistant.chat({ ...turn, session_id: randomUUID() }, { headers });

  expect([message, session].map(problemOf)).toEqual(Array(2).fill('422 idempotency_key_reused'));
  expect((await assistant.history(first.body.conversationId)).body.messages).toHaveLength(2);
});

test('all wrong fields are listed, the first of them is the field, and unknown ones are ignored', async () => {
  const { body } = await assistant.call<ErrorBody & { error: { details: { field: string }[] } }>('/api/v1/chat', {
    body: { language: '?', message: ' ', session_id: 3, reply: 'unknown' },
  });

  expect(body.error.field).toBe('session_id');
  expect(body.error.details.map(({ field }) => field)).toEqual(['session_id', 'message', 'language']);
});

test('an error never quotes what was sent', async () => {
  const secret = 'Zq9-secret-value';
  const answers = [
    await chat({ session_id: [secret], message: { [secret]: secret }, language: secret }),
    await chat({ message: `${secret}\0` }),
    await chat({ [secret]: secret, session_id: `${secret}\u0007` }),
    await chat({}, { 'Idempotency-Key': `${secret} ${secret}` }),
    await assistant.call('/api/v1/chat', { body: `{"${secret}": ${secret}` }),
    await assistant.call('/api/v1/chat', { body: '{}', headers: { 'Content-Type': `text/${secret}` } }),
    await assistant.call(`/api/v1/${secret}`),
    await assistant.call(`/api/v1/conversations/${secret}`),
    await assistant.call(`/api/v1/conversations?limit=${secret}&cursor=${secret}&updated_after=${secret}`),
    await assistant.call('/api/v1/chat', { body: aTurn(), bearer: secret }),
  ];

  expect(answers.map(({ status }) => status)).toEqual([422, 422, 422, 422, 422, 422, 404, 404, 422, 401]);
  for (const { body } of answers) expect(JSON.stringify(body)).not.toContain(secret);
});

test('the query is checked field by field', async () => {
  const { body } = await chat({});
  const path = `/api/v1/conversations/${body.conversationId}`;
  const wrong: [string, string][] = [
    [`${path}?limit=0`, 'limit'],
    [`${path}?limit=1001`, 'limit'],
    [`${path}?limit=1&limit=2`, 'limit'],
    [`${path}?limit=1e2`, 'limit'],
    [`${path}?cursor=nonsense`, 'cursor'],
    [`${path}?cursor=`, 'cursor'],
    [`${path}?after_seq=-1`, 'after_seq'],
    [`${path}?after_seq=0&wait=26`, 'wait'],
    [`${path}?wait=1.5`, 'wait'],
    ['/api/v1/conversations?limit=101', 'limit'],
    ['/api/v1/conversations?session_id=', 'session_id'],
    ['/api/v1/conversations?updated_after=yesterday', 'updated_after'],
    ['/api/v1/conversations?updated_after=2026-01-01', 'updated_after'],
    ['/api/v1/conversations?cursor=AAAA', 'cursor'],
  ];

  for (const [query, field] of wrong) {
    expect([query, problemOf(await assistant.call(query))]).toEqual([query, `422 validation_failed ${field}`]);
  }
  expect((await assistant.call(`${path}?unknown=1&__proto__=2&%E0%A4%A=3`)).status).toBe(200);
});

test('an invalid number and a number out of range have different codes', async () => {
  const detailsOf = async (limit: string) => {
    const { body } = await assistant.call<ErrorBody>(`/api/v1/conversations?limit=${limit}`);
    return body.error.details;
  };
  const about = { field: 'limit', message: 'must be a whole number from 1 to 100' };

  const details = [await detailsOf('x'), await detailsOf('101')];

  expect(details).toEqual([[{ ...about, code: 'invalid_format' }], [{ ...about, code: 'invalid' }]]);
});

test('an escalation checks its reason and its score', async () => {
  const { body } = await chat({});
  const escalate = (rest: Record<string, unknown>) =>
    assistant.call(`/api/v1/conversations/${body.conversationId}/escalate`, { body: rest });

  for (const reason of [7, '', '  ', 'r'.repeat(501), 'a\0', '\ud800', [], {}]) {
    expect(problemOf(await escalate({ reason }))).toBe('422 validation_failed reason');
  }
  for (const lead_score of ['50', -1, 101, true, [], {}]) {
    expect(problemOf(await escalate({ lead_score }))).toBe('422 validation_failed lead_score');
  }
  expect((await assistant.history(body.conversationId)).body.status).toBe('open');
  expect((await escalate({ reason: EMOJI.repeat(500), lead_score: 0 })).status).toBe(200);
});

test('the description of a message refuses what the API refuses', async () => {
  // Read as plain JSON, because the document's types allow references everywhere.
  const document = apiDocument() as unknown as Record<
    'components',
    { schemas: Record<string, { properties: object }> }
  >;
  const schema = document.components.schemas['ChatRequest'] ?? { properties: {} };
  const { message, session_id } = schema.properties as Record<string, unknown>;
  const values = ['\0', '\0\0', 'a\0b', '', ' ', '\n\t', '\ufeff', 'a', ' a ', 'a\nb', '😀', '\u0007', 'a\u0085'];
  const refusedBy = (schema: unknown) => {
    const { pattern } = schema as { pattern: string };
    return values.filter((value) => !new RegExp(pattern, 'u').test(value));
  };
  const refused = async (field: string) => {
    const answers = await Promise.all(values.map((value) => assistant.chat(aTurn({ [field]: value }))));
    return values.filter((_, nth) => answers[nth]?.status === 422);
  };

  expect(refusedBy(message)).toEqual(await refused('message'));
  expect(refusedBy(session_id)).toEqual(await refused('session_id'));
});
