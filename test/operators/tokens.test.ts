import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { anAssistant, aTurn, type ErrorBody, request } from '../support/builders.ts';
import { anOperator } from '../support/operator-client.ts';
import { collectionIn, profileStatements } from '../support/profile.ts';
import { problemOf } from '../support/problem.ts';
import { useOpened, useStack } from '../support/stack.ts';

const stack = useStack({ apis: 2, deliveryWorkers: 0, env: { TRUST_PROXY: '1' } });

type Made = { secret: string; token: { tokenId: string; lastFour: string } };
type Given = { name?: string; scope?: string; assistantIds?: string[] | null };

const owner = useOpened(() => anOperator(stack));

const aToken = async (given: Given = {}) => {
  const made = await owner.post<Made>('/tokens', { name: 'a program', scope: 'manage', ...given });
  expect(made.status).toBe(201);
  return made.body;
};

/** Calls the API at `url` with a token, without a cookie or an `Origin` header. */
const withToken =
  (bearer: string, { url = stack.url, headers = {} }: { url?: string; headers?: Record<string, string> } = {}) =>
  <Body = Record<string, unknown>>(method: string, path: string, body?: unknown) =>
    request<Body>(`${url}/operator/v1${path}`, { method, bearer, headers, ...(body !== undefined && { body }) });

test('a token is shown once, stored as a hash, listed by its last four characters and never logged', async () => {
  const { secret, token } = await aToken({ name: 'sync', scope: 'read' });
  await withToken(secret)('GET', '/assistants');
  await withToken(`${secret.slice(0, -1)}!`)('GET', '/assistants');

  const listed = await owner.get<{ tokens: Made['token'][] }>('/tokens');
  const stored = await stack.service.mongo
    .collection<{ _id: string; hash: string }>('operatorTokens')
    .findOne({ _id: token.tokenId });
  const { lines } = await stack.service.audit.list({ target: token.tokenId, limit: 5 });

  expect(secret).toMatch(/^op_[0-9A-Za-z]{43}$/);
  expect(listed.body.tokens).toContainEqual(
    expect.objectContaining({ name: 'sync', scope: 'read', assistantIds: null, lastFour: secret.slice(-4) }),
  );
  expect(stored?.hash).toMatch(/^[\w-]{43}$/);
  expect(lines).toMatchObject([
    { action: 'token.create', actor: 'operator', details: { name: 'sync', scope: 'read' } },
  ]);
  expect(JSON.stringify([listed.body, stored, lines, stack.logs])).not.toContain(secret.slice(3));
});

test('a manage token makes changes without Origin or cookie, and the audit log has its name', async () => {
  const { secret, token } = await aToken({ name: 'deploy' });
  const call = withToken(secret, { headers: { Origin: 'https://elsewhere.example', 'Sec-Fetch-Site': 'cross-site' } });

  const made = await call<{ assistantId: string }>('POST', '/assistants', { name: 'By a program' });
  const read = await call('GET', `/assistants/${made.body.assistantId}`);
  const { lines } = await stack.service.audit.list({ target: made.body.assistantId, limit: 5 });

  expect([made.status, read.status, made.headers.getSetCookie()]).toEqual([201, 200, []]);
  expect(lines).toMatchObject([
    { action: 'assistant.create', actor: 'token', email: 'deploy', operatorId: token.tokenId },
  ]);
});

test('a read token reads everything and changes nothing', async () => {
  const { assistantId } = await anAssistant(stack);
  const call = withToken((await aToken({ scope: 'read' })).secret);

  const reads = await Promise.all(
    ['/assistants', `/assistants/${assistantId}/keys`, '/operators', '/audit'].map((path) => call('GET', path)),
  );
  const changes = await Promise.all([
    call('PATCH', `/assistants/${assistantId}`, { name: 'Changed' }),
    call('POST', `/assistants/${assistantId}/keys`, { name: 'k' }),
    call('PATCH', `/operators/${owner.operatorId}`, { disabled: true }),
  ]);

  expect(reads.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  expect(changes.map(problemOf)).toEqual(['403 forbidden', '403 forbidden', '403 forbidden']);
  expect((await stack.service.assistants.getAssistant(assistantId)).name).not.toBe('Changed');
});

test('a limited token gets 404 for other assistants and what belongs to them', async () => {
  const [mine, theirs] = [await anAssistant(stack), await anAssistant(stack)];
  const { endpoint } = await stack.service.endpoints.addEndpoint(theirs.assistantId, { url: 'http://127.0.0.1:9/h' });
  const deliveryId = await stack.service.deliveries.queueTest(endpoint);
  const said = await theirs.chat(aTurn());
  const { body: history } = await theirs.history(said.body.conversationId);
  const call = withToken((await aToken({ assistantIds: [mine.assistantId] })).secret);
  const unknown = randomUUID();

  const listed = await call<{ assistants: { assistantId: string }[] }>('GET', '/assistants');
  const own = await call('PATCH', `/keys/${mine.keyId}`, { name: 'renamed' });
  const others = [
    ['GET', `/assistants/${theirs.assistantId}`],
    ['GET', `/assistants/${theirs.assistantId}/knowledge`],
    ['PATCH', `/keys/${theirs.keyId}`],
    ['POST', `/keys/${theirs.keyId}/revoke`],
    ['GET', `/endpoints/${endpoint.endpointId}`],
    ['DELETE', `/endpoints/${endpoint.endpointId}`],
    ['GET', `/deliveries/${deliveryId}`],
    ['GET', `/conversations/${said.body.conversationId}`],
    ['POST', `/conversations/${said.body.conversationId}/resolve`],
    ['GET', `/turns/${String(history.messages[0]?.turnId)}`],
    ['GET', `/assistants/${unknown}`],
    ['GET', `/keys-of-nobody`],
  ] as const;
  const answers = await Promise.all(others.map(([method, path]) => call(method, path)));
  const whole = [
    await call('POST', '/assistants', { name: 'Another' }),
    await call('GET', '/operators'),
    await call('GET', '/audit'),
  ];

  expect(listed.body.assistants.map(({ assistantId }) => assistantId)).toEqual([mine.assistantId]);
  expect(own.status).toBe(200);
  expect(answers.map(problemOf)).toEqual(others.map(() => '404 not_found'));
  expect(whole.map(problemOf)).toEqual(['403 forbidden', '403 forbidden', '403 forbidden']);
  expect(await stack.service.endpoints.listEndpoints(theirs.assistantId)).toHaveLength(1);
});

test('no token can create tokens, invite, create links, sign out or change a role', async () => {
  const { secret, token } = await aToken();
  const call = withToken(secret);

  const refused = await Promise.all([
    call('GET', '/tokens'),
    call('POST', '/tokens', { name: 'another' }),
    call('POST', `/tokens/${token.tokenId}/revoke`),
    call('POST', '/operators', { email: 'new@example.com' }),
    call('POST', `/operators/${owner.operatorId}/link`),
    call('PATCH', `/operators/${owner.operatorId}`, { role: 'owner' }),
    call('GET', '/session'),
    call('DELETE', '/sessions'),
  ]);

  expect(refused.map(problemOf)).toEqual(refused.map(() => '403 forbidden'));
});

test('a revoked token is refused by every process at once, and agents cannot create tokens', async () => {
  const { secret, token } = await aToken();
  const processes = stack.urls.map((url) => withToken(secret, { url }));
  const agent = await anOperator(stack, 'agent');

  const before = await Promise.all(processes.map((call) => call('GET', '/assistants')));
  const revoked = await owner.post(`/tokens/${token.tokenId}/revoke`);
  const after = await Promise.all(processes.map((call) => call('GET', '/assistants')));

  expect(before.map(({ status }) => status)).toEqual([200, 200]);
  expect(revoked.body).toMatchObject({ tokenId: token.tokenId, revokedAt: expect.any(String) });
  expect(after.map(problemOf)).toEqual(['401 not_signed_in', '401 not_signed_in']);
  expect(problemOf(await agent.post('/tokens', { name: 'x' }))).toBe('403 forbidden');
});

test.each([
  ['disabled', [{ disabled: true }, { disabled: false }]],
  ['no longer an owner', [{ role: 'agent' }, { role: 'owner' }]],
])('a token stops working permanently when its creator is %s', async (_name, changes) => {
  const maker = await anOperator(stack);
  const made = await maker.post<Made>('/tokens', { name: 'of one who leaves', scope: 'read' });
  const call = withToken(made.body.secret);
  const statuses: number[] = [];

  for (const change of [{}, ...changes]) {
    await owner.call('PATCH', `/operators/${maker.operatorId}`, change);
    statuses.push((await call('GET', '/assistants')).status);
  }
  const { body } = await owner.get<{ tokens: Record<string, unknown>[] }>('/tokens');

  expect(statuses).toEqual([200, 401, 401]);
  expect(body.tokens).toContainEqual(
    expect.objectContaining({ tokenId: made.body.token.tokenId, revokedAt: expect.any(String) }),
  );
});

test('wrong tokens are limited per client network, and a valid token is not', async () => {
  const { secret } = await aToken({ scope: 'read' });
  const headers = { 'X-Forwarded-For': '2001:db8:77::1' };
  const wrong = withToken(`op_${'x'.repeat(43)}`, { headers });

  const answers = await Promise.all(Array.from({ length: 61 }, () => wrong<ErrorBody>('GET', '/assistants')));
  const right = await withToken(secret, { headers })('GET', '/assistants');

  expect(answers.filter(({ status }) => status === 401)).toHaveLength(60);
  expect(problemOf(answers.find(({ status }) => status === 429) ?? answers[0]!)).toBe('429 rate_limited');
  expect(right.status).toBe(200);
});

test('a token resolves as the named operator or the first owner, and an operator only as itself', async () => {
  const { chat } = await anAssistant(stack);
  const call = withToken((await aToken()).secret);
  const { conversationId } = (await chat(aTurn())).body;
  const other = (await chat(aTurn())).body.conversationId;
  const { operatorId: somebody } = await stack.service.operators.createOperator({
    email: `${randomUUID()}@example.com`,
    role: 'agent',
    assistantIds: [],
    password: randomUUID(),
  });

  const nobody = await call('POST', `/conversations/${conversationId}/resolve`, { operatorId: randomUUID() });
  const named = await call('POST', `/conversations/${conversationId}/resolve`, { operatorId: somebody });
  const first = await call('POST', `/conversations/${other}/resolve`);
  const asAnother = await owner.post(`/conversations/${other}/resolve`, { operatorId: somebody });

  const owners = await stack.service.operators.findFirstOwner();
  expect([named.body, first.body]).toMatchObject([{ resolvedBy: somebody }, { resolvedBy: owners?.operatorId }]);
  for (const refused of [nobody, asAnother]) expect(problemOf(refused)).toBe('422 validation_failed operatorId');
});

test.each([
  ['keys', 'apiKeys', async () => `/assistants/${(await anAssistant(stack)).assistantId}/keys`, {}],
  ['tokens', 'operatorTokens', async () => '/tokens', { scope: 'read', assistantIds: null }],
])('there are never more than 1,000 %s, however many are made at once', async (what, collection, pathOf, more) => {
  const path = await pathOf();
  const first = await owner.post<Record<string, { keyId?: string }>>(path, { name: 'first', ...more });
  const rows = stack.service.mongo.collection<{ _id: string }>(collection);
  const { _id, ...row } = (await rows.find({ name: 'first' }).toArray())[0]!;
  const others = await rows.countDocuments('assistantId' in row ? { assistantId: row['assistantId'] } : {});
  const copies = Array.from({ length: 995 - others }, () => ({ ...row, _id: randomUUID(), hash: randomUUID() }));
  await rows.insertMany(copies.map((one) => ({ ...one, name: 'many' })));

  const made = await Promise.all(Array.from({ length: 12 }, (_, nth) => owner.post(path, { name: `${nth}`, ...more })));
  const { body } = await owner.get<Record<string, object[]>>(path);
  await rows.deleteMany({ name: 'many' });

  expect([first.status, _id !== undefined]).toEqual([201, true]);
  expect(body[what]?.length).toBeLessThanOrEqual(1_000);
  expect(body[what]).toHaveLength(995 + made.filter(({ status }) => status === 201).length);
  expect(problemOf(made.find(({ status }) => status !== 201)!)).toBe('422 validation_failed name');
});

test('a long list of keys is read in parts', async () => {
  const { assistantId, keyId } = await anAssistant(stack);
  const rows = stack.service.mongo.collection<{ _id: string }>('apiKeys');
  const key = await rows.findOne({ _id: keyId });
  await rows.insertMany(Array.from({ length: 300 }, () => ({ ...key, _id: randomUUID(), hash: randomUUID() })));
  const listed: object[] = [];

  const sent = await profileStatements(stack, async () => {
    listed.push(...(await owner.get<{ keys: object[] }>(`/assistants/${assistantId}/keys`)).body.keys);
  });

  expect(listed).toHaveLength(301);
  const read = sent.filter((one) => collectionIn(one) === 'apiKeys').map(({ nreturned = 0 }) => nreturned);
  expect(Math.max(...read)).toBe(100);
});
