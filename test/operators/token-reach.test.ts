import { beforeAll, expect, test } from 'vitest';
import type { Operation } from '../../src/operators/operation.ts';
import { OPERATIONS } from '../../src/api/operator-routes.ts';
import { aTurn, type ChatBody, request } from '../support/builders.ts';
import { anInhabited, type Inhabited, pathIn } from '../support/inhabited.ts';
import { anOperator } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0 });

let owner: Awaited<ReturnType<typeof anOperator>>;
let mine: Inhabited;
let theirs: Inhabited;
beforeAll(async () => {
  owner = await anOperator(stack);
  [mine, theirs] = [await anInhabited(stack, owner), await anInhabited(stack, owner)];
});

const aCaller = async (scope: 'read' | 'manage', assistantIds: string[] | null) => {
  const { body } = await owner.post<{ secret: string }>('/tokens', { name: 'a program', scope, assistantIds });
  return <Body = ChatBody>(method: string, path: string, sent?: unknown) =>
    request<Body>(`${stack.url}/operator/v1${path}`, {
      method,
      bearer: body.secret,
      ...(sent !== undefined && { body: sent }),
    });
};

const forTokens = OPERATIONS.filter(({ audience }) => audience !== 'anyone');
const nameOf = ({ method, path }: Operation): string => `${method.toUpperCase()} ${path}`;
/** Everything that belongs to an assistant, as owners read it. */
const stateOf = async ({ ids, assistantId }: Inhabited) => {
  const paths = [
    `/conversations/${ids.conversation}`,
    `/assistants/${assistantId}`,
    `/endpoints/${ids.endpoint}`,
  ].concat(
    [
      'keys',
      'knowledge',
      'endpoints',
      'deliveries',
      'channel',
      'conversations',
      'tags',
      'canned-replies',
      'sources',
      'question-sets',
    ].map((page) => `/assistants/${assistantId}/${page}`),
  );
  return Promise.all(paths.map(async (path) => (await owner.get(path)).body));
};

/** The status of an answer. For an error, the status with the error code. */
const outcomeOf = (answer: Awaited<ReturnType<typeof request>>): string =>
  answer.status < 300 ? String(answer.status) : problemOf(answer);

const withBody = (one: Operation): unknown => (one.body === undefined ? undefined : {});

test('no operation gives a limited token access to another assistant', async () => {
  const before = await stateOf(theirs);
  const call = await aCaller('manage', [mine.assistantId]);

  const told: Record<string, string> = {};
  for (const one of forTokens) {
    if (one.resource === 'filtered') continue;
    told[nameOf(one)] = outcomeOf(
      await call(one.method.toUpperCase(), pathIn(one, theirs, owner.operatorId), withBody(one)),
    );
  }

  const expected = (one: Operation) => (one.peopleOnly || one.resource === null ? '403 forbidden' : '404 not_found');
  expect(told).toEqual(
    Object.fromEntries(
      forTokens.filter(({ resource }) => resource !== 'filtered').map((one) => [nameOf(one), expected(one)]),
    ),
  );
  expect(await stateOf(theirs)).toEqual(before);
});

test('an event that waits is looked for only with access to its assistant', async () => {
  const { conversationId } = (await theirs.chat(aTurn())).body;
  const row = await stack.service.mongo.collection('conversations').findOne({ conversationId });
  const eventId = (row?.outbox as { eventId: string }[] | undefined)?.[0]?.eventId ?? '';
  expect(eventId).not.toBe('');
  const path = `/deliveries/${eventId}:${theirs.ids.endpoint}`;
  const limited = await aCaller('read', [mine.ids.assistant]);
  const { mongo } = stack.service;

  await mongo.db?.command({ profile: 2 });
  const refused = await limited('GET', path);
  await mongo.db?.command({ profile: 0 });

  expect(problemOf(refused)).toBe('404 not_found');
  const looked = await mongo
    .collection('system.profile')
    .find({ op: 'query', ns: /conversations$/ })
    .toArray();
  expect(JSON.stringify(looked)).not.toContain(eventId);
  const own = await aCaller('read', [theirs.ids.assistant]);
  expect((await own('GET', path)).status).toBe(200);
});

test('ids of another assistant in a call for its own assistant find and change nothing', async () => {
  const before = await stateOf(theirs);
  const call = await aCaller('manage', [mine.assistantId]);
  const own = `/assistants/${mine.assistantId}`;
  const { conversation, endpoint } = theirs.ids;
  const entry = { question: 'Stolen?', answer: 'Stolen.' };

  const lists = await Promise.all([
    call<{ assistants: { assistantId: string }[] }>('GET', '/assistants').then(({ body }) =>
      body.assistants.filter(({ assistantId }) => assistantId !== mine.assistantId),
    ),
    ...[`search=${conversation}`, 'sessionId=nobody'].map(async (query) => {
      const { body } = await call<{ conversations: unknown[] }>('GET', `${own}/conversations?${query}`);
      return body.conversations;
    }),
    ...[`endpointId=${endpoint}`, `conversationId=${conversation}`].map(async (query) => {
      const { body } = await call<{ deliveries: unknown[] }>('GET', `${own}/deliveries?${query}`);
      return body.deliveries;
    }),
  ]);
  const replaced = await call('PUT', `${own}/knowledge/${theirs.entryId}`, entry);
  await call('DELETE', `${own}/knowledge/${theirs.entryId}`);
  const source = `${own}/sources/${theirs.sourceId}`;
  const onSource = await Promise.all([
    call('GET', source),
    call('GET', `${source}/pages`),
    call('PATCH', source, { name: 'Stolen' }),
    call('POST', `${source}/refresh`),
    call('DELETE', source),
  ]);

  const set = `${own}/question-sets/${theirs.setId}`;
  const run = `${own}/evaluations/${theirs.evaluationId}`;
  const asked = { question: 'Stolen?', expected: { kind: 'none' } };
  const evaluated = await Promise.all([
    call('GET', set),
    call('POST', `${set}/cases`, asked),
    call('PUT', `${set}/cases/${theirs.caseId}`, asked),
    call('DELETE', `${set}/cases/${theirs.caseId}`),
    call('DELETE', set),
    call('POST', `${own}/evaluations`, { setId: theirs.setId }),
    call('GET', run),
    call('GET', `${run}/results`),
    call('POST', `${run}/stop`),
  ]);

  expect(lists).toEqual([[], [], [], [], []]);
  expect([replaced, ...onSource, ...evaluated].map(problemOf)).toEqual(Array(15).fill('404 not_found'));
  expect(await stateOf(theirs)).toEqual(before);
});

const REACHES: [string, () => string[] | null][] = [
  ['every assistant', () => null],
  ['some', () => [theirs.assistantId]],
];

test.each(sized({ everyday: REACHES.slice(0, 1), long: REACHES }))(
  'with read over %s, every change is refused and nothing changes',
  async (_name, assistantIds) => {
    const before = await stateOf(theirs);
    const call = await aCaller('read', assistantIds());
    const changes = forTokens.filter(({ method }) => method !== 'get');

    const told: Record<string, string> = {};
    for (const one of changes)
      told[nameOf(one)] = outcomeOf(
        await call(one.method.toUpperCase(), pathIn(one, theirs, owner.operatorId), withBody(one)),
      );

    expect(told).toEqual(Object.fromEntries(changes.map((one) => [nameOf(one), '403 forbidden'])));
    expect(await stateOf(theirs)).toEqual(before);
  },
);

test('with a token and a cookie, only the token counts', async () => {
  const { body } = await owner.post<{ secret: string }>('/tokens', { name: 'r', scope: 'read' });
  const beside = (bearer: string) => ({ Authorization: `Bearer ${bearer}` });
  const path = `/assistants/${mine.assistantId}`;

  const reading = await owner.call('PATCH', path, { name: 'Changed' }, beside(body.secret));
  const wrong = await owner.call('GET', path, undefined, beside(`op_${'x'.repeat(43)}`));
  const other = await owner.call('GET', path, undefined, beside('of-a-proxy'));

  expect([problemOf(reading), problemOf(wrong), other.status]).toEqual(['403 forbidden', '401 not_signed_in', 200]);
});

test('a Bearer value does not skip the origin check of a sign-in', async () => {
  const elsewhere = {
    Origin: 'https://elsewhere.example',
    'Sec-Fetch-Site': 'cross-site',
    Authorization: 'Bearer op_x',
  };
  const bodies = {
    '/session': { email: owner.email, password: 'correct horse battery' },
    '/links/read': { token: 'x' },
    '/links/use': { token: 'x', password: 'correct horse battery' },
  };

  const told = await Promise.all(
    Object.entries(bodies).map(([path, sent]) =>
      request(`${stack.url}/operator/v1${path}`, { body: sent, headers: elsewhere }).then(problemOf),
    ),
  );
  const board = await fetch(`${stack.url}/operator/queues`, { method: 'POST', headers: elsewhere });

  expect(told).toEqual(['403 forbidden', '403 forbidden', '403 forbidden']);
  expect(board.status).toBe(403);
});
