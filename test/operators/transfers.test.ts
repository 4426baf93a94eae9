import { randomUUID } from 'node:crypto';
import { connect } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { newRecord } from '../../src/events/claims.ts';
import { aLongConversation, anAssistant, anEntry, aTurn, request, type TestAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { collectionIn, profileStatements } from '../support/profile.ts';
import { longTest, sized } from '../support/size.ts';
import { useOpened, useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0 });

const owner = useOpened(() => anOperator(stack));

type Line = Record<string, unknown> & { kind: string; cursor: string };
type Imported = { settings: string[]; entries: number; changed: boolean; skipped: number };

const fetchExport = (assistantId: string, query = ''): Promise<Response> =>
  fetch(`${stack.url}/operator/v1/assistants/${assistantId}/export${query}`, {
    headers: { Cookie: owner.cookie() ?? '', 'Sec-Fetch-Site': 'same-origin' },
  });
const exported = async (assistantId: string, query = ''): Promise<string> => {
  const answer = await fetchExport(assistantId, query);
  expect([answer.status, answer.headers.get('content-type')]).toEqual([200, 'application/x-ndjson']);
  return answer.text();
};
const linesOf = (text: string): Line[] =>
  text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Line);
const kindsIn = (lines: Line[], ...kinds: string[]): Line[] => lines.filter(({ kind }) => kinds.includes(kind));
const idsIn = (text: string): unknown[] =>
  kindsIn(linesOf(text), 'conversation').map(({ conversationId }) => conversationId);

const importInto = (assistantId: string, text: string) =>
  owner.call<Imported & { error: string; details: { message: string }[] }>(
    'POST',
    `/assistants/${assistantId}/import`,
    Buffer.from(text),
    { 'Content-Type': 'application/octet-stream' },
  );

/** What an import takes over. */
const stateOf = async (assistantId: string) => {
  const read = async (path: string) => (await owner.get(`/assistants/${assistantId}${path}`)).body;
  const { assistantId: _id, name, createdAt: _created, channel: _channel, ...settings } = await read('');
  const { page: _page, identity: _identity, ...looks } = await read('/web');
  const entries = (await stack.service.assistants.listKnowledge(assistantId)).map(({ entryId: _entry, ...one }) => one);
  return { name, settings, looks, entries };
};

const deliver = async ({ assistantId }: TestAssistant, conversationId: string, count: number): Promise<void> => {
  const rows = Array.from({ length: count }, (_, nth) => {
    const about = { eventId: randomUUID(), endpointId: randomUUID(), event: 'message.received' as const, body: '{}' };
    // Some of one moment, so that the id decides.
    const happenedAt = new Date(1_760_000_000_000 + Math.floor(nth / 3));
    const record = newRecord(
      { ...about, assistantId, conversationId, url: 'https://receiver.example/', happenedAt },
      { worker: 'test', retentionDays: 30 },
    );
    return { ...record, createdAt: happenedAt, outcome: 'delivered', status: 200, responseBody: 'canary' };
  });
  await stack.service.mongo.collection('deliveries').insertMany(rows as never);
};

const KNOWLEDGE = [
  anEntry({ variants: ['Hours?'], tags: ['hours'] }),
  anEntry({
    question: 'Wo seid ihr?',
    answer: 'In „Köln“.\n\n– am Dom',
    language: 'de',
    actions: [{ label: 'Map', type: 'link', payload: '/m' }],
  }),
];
const INPUT = { name: 'The original', guard: 'refuse' as const, languages: ['en', 'de'], takeWithinMinutes: 5 };

/** An assistant with two conversations of several pages of messages, notes and deliveries. */
const anInhabitedOne = async () => {
  const assistant = await anAssistant(stack, { input: INPUT, knowledge: KNOWLEDGE });
  const { assistantId } = assistant;
  await owner.call('PATCH', `/assistants/${assistantId}/web`, { greeting: 'Hi!', origins: ['https://shop.example'] });
  await owner.call('POST', `/assistants/${assistantId}/web/identity`);
  const { body: long } = await assistant.chat(aTurn({ session_id: 'long' }));
  for (let nth = 0; nth < 30; nth += 1) await assistant.chat({ session_id: 'long', message: `Are you open, ${nth}?` });
  const { body: short } = await assistant.chat(aTurn({ session_id: 'short' }));
  for (const content of ['First', 'Second'])
    await owner.post(`/conversations/${long.conversationId}/notes`, { content });
  await deliver(assistant, long.conversationId, 105);
  await deliver(assistant, short.conversationId, 2);
  return { ...assistant, long: long.conversationId, short: short.conversationId };
};

test('an export has the settings, the knowledge and the conversations, counts its lines, and tells no secret', async () => {
  const { assistantId, apiKey, long, short, history } = await anInhabitedOne();
  const { assistants } = stack.service;
  const engine = { kind: 'openai' as const, baseUrl: 'http://127.0.0.1:9/v1', model: 'm', apiKey: 'sk-canary' };
  await assistants.setEngine(assistantId, engine);
  await owner.post(`/assistants/${assistantId}/playground`, { session_id: 'mine', message: 'A trial' });

  const text = await exported(assistantId);

  const lines = linesOf(text);
  expect(lines[0]).toMatchObject({ kind: 'header', format: 1, assistantId, name: 'The original' });
  const counts = { settings: 1, entry: 2, conversation: 2, note: 2, message: 64, delivery: 107 };
  expect(lines.at(-1)).toEqual({ kind: 'end', lines: counts });
  for (const [kind, count] of Object.entries(counts))
    expect([kind, kindsIn(lines, kind).length]).toEqual([kind, count]);
  expect(kindsIn(lines, 'settings')[0]).toMatchObject({
    settings: { guard: 'refuse', languages: ['en', 'de'] },
    engine: { kind: 'openai', model: 'm' },
    web: { greeting: 'Hi!' },
  });
  expect(idsIn(text)).toEqual([long, short]);
  const { messages } = (await history(long, '?include=sources')).body;
  expect(kindsIn(lines, 'message').filter(({ conversationId }) => conversationId === long)).toMatchObject(messages);
  expect(kindsIn(lines, 'note').map(({ content }) => content)).toEqual(['First', 'Second']);
  expect(kindsIn(lines, 'delivery')[0]).toMatchObject({ conversationId: long, outcome: 'delivered', status: 200 });
  for (const secret of ['canary', 'wsec_', apiKey, 'sealed', 'hash', 'A trial']) expect(text).not.toContain(secret);
  const { body: trail } = await owner.get<{ lines: unknown[] }>(`/audit?target=${assistantId}&action=assistant.export`);
  expect(trail.lines).toHaveLength(1);
  const less = linesOf(await exported(assistantId, '?conversations=false'));
  expect(less.map(({ kind }) => kind)).toEqual(['header', 'settings', 'entry', 'entry', 'end']);
});

test('an export that is cut after any line goes on there, and both parts are the whole', async () => {
  const { assistantId } = await anInhabitedOne();
  const whole = await exported(assistantId);
  const lines = whole.split(/(?<=\n)/);

  const kinds = linesOf(whole).map(({ kind }) => kind);
  const some = sized<(at: number) => boolean>({
    everyday: (at) => kinds[at] !== kinds[at + 1] || at % 40 === 0,
    long: (at) => at < 9 || at % 4 === 0 || at > lines.length - 6,
  });
  const cuts = [...lines.keys()].filter((at) => at < lines.length - 1 && some(at));
  for (const at of cuts) {
    const { cursor } = JSON.parse(lines[at] ?? '') as Line;
    expect([at, await exported(assistantId, `?after=${cursor}`)]).toEqual([at, lines.slice(at + 1).join('')]);
  }
  const foreign = await anAssistant(stack);
  const { cursor } = linesOf(whole).at(-2) as Line;
  expect(kindsIn(linesOf(await exported(foreign.assistantId, `?after=${cursor}`)), 'message', 'delivery')).toEqual([]);
  const wrong = await owner.get(`/assistants/${assistantId}/export?after=WzFd`);
  expect(problemOf(wrong)).toBe('422 validation_failed after');
});

test('an export that goes on reads no entry again', async () => {
  const knowledge = Array.from({ length: 40 }, () => anEntry());
  const { assistantId } = await anAssistant(stack, { knowledge });
  const lines = linesOf(await exported(assistantId));

  const statements = await profileStatements(stack, () => exported(assistantId, `?after=${lines[37]?.cursor}`));

  const read = statements.filter((one) => collectionIn(one) === 'knowledge');
  expect(read.reduce((sum, { docsExamined = 0 }) => sum + docsExamined, 0)).toBe(4);
});

test('what changes between two answers is there as it is now, what began is not, and other knowledge needs a new export', async () => {
  const { assistantId, chat } = await anAssistant(stack, { knowledge: [anEntry(), anEntry()] });
  const begin = async (session_id: string) => (await chat(aTurn({ session_id }))).body.conversationId;
  const [first, second, third] = [await begin('1'), await begin('2'), await begin('3')];
  const lines = linesOf(await exported(assistantId));
  const cursorOf = (at: number): string => lines[at]?.cursor ?? '';
  const inFirst = lines.findIndex(({ kind }) => kind === 'message');

  await chat({ session_id: '2', message: 'And tomorrow?' });
  await begin('4');
  const missing = await exported(assistantId, `?after=${cursorOf(inFirst)}`);
  await chat({ session_id: '1', message: 'And tomorrow?' });
  const again = await exported(assistantId, `?after=${cursorOf(inFirst)}`);
  await owner.post(`/assistants/${assistantId}/knowledge`, { question: 'Why?', answer: 'Because.' });
  const outdated = await fetchExport(assistantId, `?after=${cursorOf(2)}`);
  const later = await fetchExport(assistantId, `?after=${cursorOf(inFirst)}`);

  expect(lines[inFirst]).toMatchObject({ conversationId: first });
  expect(idsIn(missing)).toEqual([third, second]);
  expect(linesOf(missing)[0]).toMatchObject({ kind: 'message', conversationId: first });
  expect(missing).toContain('And tomorrow?');
  // The first one is left where it was begun, and is there as a whole at its new place.
  expect(idsIn(again)).toEqual([third, second, first]);
  expect([outdated.status, later.status]).toEqual([409, 200]);
});

test('an import makes another assistant like the first, and the same again changes nothing', async () => {
  const original = await anInhabitedOne();
  const { assistantId } = await anAssistant(stack, { input: { name: 'The copy' } });
  const text = await exported(original.assistantId);

  const dry = await stateOf(assistantId);
  const made = await importInto(assistantId, text);
  const entryIds = (await stack.service.assistants.listKnowledge(assistantId)).map(({ entryId }) => entryId);
  const again = await importInto(assistantId, text);

  expect(dry.entries).not.toEqual((await stateOf(original.assistantId)).entries);
  const settings = expect.arrayContaining(['guard', 'languages', 'takeWithinMinutes', 'web.greeting', 'web.origins']);
  expect([made.status, made.body]).toEqual([200, { settings, entries: 2, changed: true, skipped: 175 }]);
  expect(again.body).toEqual({ settings: [], entries: 2, changed: false, skipped: 175 });
  const { name, ...copied } = await stateOf(assistantId);
  const { name: _name, ...wanted } = await stateOf(original.assistantId);
  expect(copied).toEqual(wanted);
  expect(name).toBe('The copy');
  expect((await stack.service.assistants.listKnowledge(assistantId)).map(({ entryId }) => entryId)).toEqual(entryIds);

  const { assistantId: empty } = await anAssistant(stack, { knowledge: [] });
  expect((await importInto(assistantId, await exported(empty))).body).toMatchObject({ entries: 0, changed: true });
  expect((await stateOf(assistantId)).entries).toEqual([]);
});

test('with drafts, an import changes the draft, and what is live stays', async () => {
  const original = await anAssistant(stack, { input: INPUT, knowledge: KNOWLEDGE });
  const { assistantId } = await anAssistant(stack, { input: { drafts: true }, knowledge: [] });
  const text = (await exported(original.assistantId)).replace('"drafts":false', '"drafts":true');

  const made = await importInto(assistantId, text);
  const again = await importInto(assistantId, text);

  expect([made.body.changed, again.body]).toMatchObject([true, { settings: [], changed: false }]);
  expect((await stateOf(assistantId)).entries).toEqual([]);
  const { body } = await owner.get<{ entries: unknown[] }>(`/assistants/${assistantId}/knowledge?draft=true`);
  expect(body.entries).toHaveLength(2);
});

const drop = (text: string, kind: string): string => text.replace(new RegExp(`^\\{"kind":"${kind}".*\\n`, 'm'), '');

test.each<[string, (text: string) => string, RegExp]>([
  ['a file of something else', () => '[1, 2]\n', /line 1 is not where/],
  ['an empty file', () => '', /not whole/],
  ['a file that was cut', (text) => drop(text, 'end'), /not whole/],
  ['a file without one of its entries', (text) => drop(text, 'entry'), /not whole/],
  ['a file without settings', (text) => drop(text, 'settings'), /not whole/],
  ['two files in one', (text) => text + text, /line 6 is not where/],
  ['another format', (text) => text.replace('"format":1', '"format":2'), /line 1 is of a format/],
  ['an unknown kind', (text) => text.replace('"kind":"entry"', '"kind":"toString"'), /line 3 is of no kind/],
  ['a wrong setting', (text) => text.replace('"guard":"flag"', '"guard":"no"'), /line 2 has a wrong field: guard must/],
  ['a wrong field of the engine', (text) => text.replace('"kind":"retrieval"', '"kind":"x"'), /line 2 .*engine/],
  ['a wrong entry', (text) => text.replace('"answer":', '"answers":'), /line 3: .*answer is required/],
  ['a line that is not JSON', (text) => text.replace('"settings":{', '"settings":{{'), /line 2 is not JSON/],
  ['a text that cannot be stored', (text) => text.replace('9 to 5', '9 to \\u0000'), /line 3: .*Unicode/],
  ['a line without an end', (text) => text.replace('9 to 5', 'x'.repeat(600_000)), /line 3 is longer/],
  [
    'a line of many values',
    (text) => text.replace('"name":', `"x":[${'1,'.repeat(3_000)}1],"name":`),
    /line 1 has more/,
  ],
])('%s is refused, and nothing changes', async (_what, change, message) => {
  const original = await anAssistant(stack, { knowledge: [anEntry(), anEntry({ question: 'Why?' })] });
  const { assistantId } = await anAssistant(stack, { input: { guard: 'off' } });
  const before = await stateOf(assistantId);

  const { status, body } = await importInto(assistantId, change(await exported(original.assistantId)));

  expect([status, body]).toMatchObject([422, { error: { field: 'file' } }]);
  expect(JSON.stringify(body)).toMatch(message);
  expect(await stateOf(assistantId)).toEqual(before);
});

test('a key in a file is not taken, and a file of more than 4 MB is for the command', async () => {
  const { assistantId } = await anAssistant(stack);
  const text = await exported(assistantId);
  const engine = '{"kind":"openai","baseUrl":"http://127.0.0.1:9/v1","model":"m","apiKey":"sk-canary"}';

  const made = await importInto(assistantId, text.replace('{"kind":"retrieval"}', engine));
  const large = await importInto(assistantId, text + '\n'.repeat(4_000_000));

  expect([made.status, large.status]).toEqual([200, 413]);
  expect((await owner.get(`/assistants/${assistantId}`)).body).toMatchObject({
    engine: { model: 'm', apiKey: 'none' },
  });
});

/** Reads some hundred kB a second. */
const readSlowly = async (answer: Response, over: AbortSignal): Promise<void> => {
  const reader = answer.body?.getReader();
  while (!over.aborted && !(await reader?.read().catch(() => ({ done: true })))?.done) await pause(100);
};

test('exports that nobody reads are bounded, and hold up neither a neighbour nor other work of their caller', async () => {
  const assistant = await anAssistant(stack);
  await aLongConversation(stack, assistant);
  const neighbour = await anAssistant(stack);
  const path = `/operator/v1/assistants/${assistant.assistantId}/export`;
  const begun: (() => void)[] = [];
  const begin = async (): Promise<void> => {
    const socket = connect(Number(new URL(stack.url).port), '127.0.0.1').on('error', () => undefined);
    onTestFinished(() => void socket.destroy());
    socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\nCookie: ${owner.cookie()}\r\n\r\n`);
    await new Promise<void>((resolve) => {
      socket.once('close', resolve).once('data', () => {
        socket.pause();
        resolve();
      });
    });
    begun.push(() => socket.destroy());
  };
  await Promise.all(Array.from({ length: 8 }, begin));

  const refused = await fetchExport(assistant.assistantId);
  const { status } = await neighbour.chat(aTurn());
  const other = await owner.get(`/assistants/${assistant.assistantId}/knowledge`);
  for (const leave of begun) leave();

  expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '1']);
  expect([status, other.status]).toEqual([200, 200]);
  await eventually(async () => expect((await fetchExport(neighbour.assistantId)).status).toBe(200));
});

longTest('tenants with many exports that are read slowly leave one to a neighbour', async () => {
  const over = new AbortController();
  onTestFinished(() => over.abort());
  const exportBy = async (assistantId: string): Promise<() => Promise<Response>> => {
    const limits = { scope: 'manage', assistantIds: [assistantId] };
    const { secret } = (await owner.post<{ secret: string }>('/tokens', { name: 'a program', ...limits })).body;
    const headers = { Authorization: `Bearer ${secret}` };
    const { signal } = over;
    return () => fetch(`${stack.url}/operator/v1/assistants/${assistantId}/export`, { headers, signal });
  };
  for (let nth = 0; nth < 5; nth += 1) {
    const tenant = await anAssistant(stack);
    await aLongConversation(stack, tenant);
    const begin = await exportBy(tenant.assistantId);
    const answers = await Promise.all(Array.from({ length: 8 }, begin));
    for (const answer of answers) if (answer.ok) void readSlowly(answer, over.signal);
  }
  const beginOwn = await exportBy((await anAssistant(stack)).assistantId);

  const { status } = await beginOwn();

  expect(status).toBe(200);
});

test('a token of another assistant is told that there is none', async () => {
  const [mine, theirs] = [await anAssistant(stack), await anAssistant(stack)];
  const body = { name: 'a program', scope: 'manage', assistantIds: [mine.assistantId] };
  const { secret: bearer } = (await owner.post<{ secret: string }>('/tokens', body)).body;
  const statusOf = async (assistantId: string) =>
    (
      await fetch(`${stack.url}/operator/v1/assistants/${assistantId}/export`, {
        headers: { Authorization: `Bearer ${bearer}` },
      })
    ).status;

  const sent = await request(`${stack.url}/operator/v1/assistants/${theirs.assistantId}/import`, {
    bearer,
    method: 'POST',
    body: '{}',
    headers: { 'Content-Type': 'application/octet-stream' },
  });

  expect([await statusOf(mine.assistantId), await statusOf(theirs.assistantId), sent.status]).toEqual([200, 404, 404]);
});
