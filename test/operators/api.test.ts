import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { serverNow } from '../../src/platform/process/clock.ts';
import { anEntry, aTurn, type ChatBody, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { openStream, spokenOf } from '../support/event-stream.ts';
import { anOperator, openOperatorClient, type OperatorClient } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { openReceiver } from '../kit/receiver.ts';
import { useOpened, useStack } from '../support/stack.ts';
import { apiDocument } from '../support/validate-response.ts';
import { atPace } from '../support/pace.ts';

const stack = useStack({ env: { TRUST_PROXY: '1' } });
const owner = useOpened(() => anOperator(stack));

type Id<Name extends string> = Record<Name, string>;
type NewKey = { apiKey: string; key: { keyId: string; lastFour: string; overlapUntil: string | null } };
type Secret = { secret: string; endpoint: { endpointId: string; overlapUntil: string | null } };
type Delivery = {
  deliveryId: string;
  outcome: string;
  resend: { number: number; risk: string } | null;
  test: { ok: boolean; ended: boolean; checks: { check: string; ok: boolean | null }[] } | null;
};

const anAssistantBy = async (owner: OperatorClient): Promise<string> => {
  const made = await owner.post<Id<'assistantId'>>('/assistants', { name: 'Shop', languages: ['en'] });
  const { assistantId } = made.body;
  await owner.post(`/assistants/${assistantId}/knowledge`, anEntry());
  return assistantId;
};

const aKeyBy = async (owner: OperatorClient, assistantId: string): Promise<NewKey> =>
  (await owner.post<NewKey>(`/assistants/${assistantId}/keys`, { name: 'website' })).body;

const chat = (apiKey: string, body = aTurn()) =>
  request<ChatBody>(`${stack.url}/api/v1/chat`, { body, bearer: apiKey });

const ended = (owner: OperatorClient, deliveryId: string): Promise<Delivery> =>
  eventually(async () => {
    const { body } = await owner.get<Delivery>(`/deliveries/${deliveryId}`);
    expect(['queued', 'sending']).not.toContain(body.outcome);
    return body;
  });

test('a new key answers a chat; a rotated key’s old secret and a revoked key are refused', async () => {
  const assistantId = await anAssistantBy(owner);

  const { apiKey, key } = await aKeyBy(owner, assistantId);
  const answered = await chat(apiKey);
  const { body: rotated } = await owner.post<NewKey>(`/keys/${key.keyId}/rotate`);
  await eventually(async () => expect((await chat(apiKey)).status).toBe(401), atPace(2_000));
  const again = await chat(rotated.apiKey);
  await owner.post(`/keys/${key.keyId}/revoke`);
  await eventually(async () => expect((await chat(rotated.apiKey)).status).toBe(401), atPace(2_000));
  const { body: list } = await owner.get<{ keys: object[] }>(`/assistants/${assistantId}/keys`);

  expect([answered.body.reply, again.status]).toEqual(['We are open from 9 to 5.', 200]);
  expect(rotated.key.keyId).toBe(key.keyId);
  expect(list.keys).toMatchObject([{ keyId: key.keyId, name: 'website', lastFour: rotated.apiKey.slice(-4) }]);
  for (const secret of [apiKey, rotated.apiKey]) expect(JSON.stringify([list, stack.logs])).not.toContain(secret);
});

test('a key rotated with an overlap works in every process until the overlap ends, and not a moment longer', async () => {
  const assistantId = await anAssistantBy(owner);
  const { apiKey, key } = await aKeyBy(owner, assistantId);
  const rotate = (overlapHours: number) => owner.post<NewKey>(`/keys/${key.keyId}/rotate`, { overlapHours });
  const statusOf = async (bearer: string, url = stack.url) =>
    (await request(`${url}/api/v1/conversations`, { bearer })).status;

  const tooLong = await rotate(169);
  const { body: first } = await rotate(1);
  const later = await stack.startApi();
  const both = await Promise.all([apiKey, first.apiKey].map((one) => statusOf(one, later.url)));
  const { body: second } = await rotate(3 / 3_600);
  await eventually(async () => expect(await statusOf(apiKey)).toBe(401), atPace(2_000));
  const end = Date.parse(second.key.overlapUntil ?? '');
  const accepted: number[] = [];
  await eventually(async () => {
    const [began, status] = [serverNow(), await statusOf(first.apiKey)];
    if (status === 200) accepted.push(began);
    expect(status).toBe(401);
  }, atPace(5_000));
  const { body: list } = await owner.get<{ keys: object[] }>(`/assistants/${assistantId}/keys`);
  const { body: third } = await rotate(1);
  await owner.post(`/keys/${key.keyId}/revoke`);
  const revoked = [second.apiKey, third.apiKey];
  for (const one of revoked) await eventually(async () => expect(await statusOf(one)).toBe(401), atPace(2_000));
  const { body: trail } = await owner.get<{ lines: { details: object }[] }>(`/audit?action=key.rotate&limit=1`);
  await later.close();

  expect(tooLong.status).toBe(422);
  expect(both).toEqual([200, 200]);
  expect(accepted.length).toBeGreaterThan(0);
  expect(Math.max(...accepted)).toBeLessThanOrEqual(end);
  expect(list.keys).toMatchObject([{ keyId: key.keyId, overlapUntil: null }]);
  expect(trail.lines).toMatchObject([{ details: { overlapHours: 1, lastFour: third.apiKey.slice(-4) } }]);
  for (const one of [apiKey, ...revoked]) expect(JSON.stringify([list, trail, stack.logs])).not.toContain(one);
});

test('an update changes only the given fields, and a provider’s key is never shown again', async () => {
  const assistantId = await anAssistantBy(owner);
  const one = `/assistants/${assistantId}`;

  const changed = await owner.call('PATCH', one, { holdingText: 'One moment.', dedupeWindowSeconds: 5 });
  const engine = { kind: 'openai', baseUrl: 'https://provider.example/v1', model: 'm', apiKey: 'pk-secret-secret' };
  const set = await owner.call('PUT', `${one}/engine`, engine);
  const back = await owner.call('PUT', `${one}/engine`, { kind: 'retrieval' });
  const wrong = await owner.call('PATCH', one, { dedupeWindowSeconds: 601 });
  const all = await owner.get<{ assistants: object[] }>('/assistants');

  expect(changed.body).toMatchObject({ name: 'Shop', languages: ['en'], holdingText: 'One moment.', threshold: null });
  expect(set.body).toMatchObject({ engine: { kind: 'openai', apiKey: 'configured' } });
  expect(back.body).toMatchObject({ dedupeWindowSeconds: 5, engine: { kind: 'retrieval' } });
  expect(problemOf(wrong)).toBe('422 validation_failed dedupeWindowSeconds');
  expect(all.body.assistants).toContainEqual(back.body);
  const trail = (await owner.get(`/audit?target=${assistantId}`)).body;
  expect(JSON.stringify([set.body, all.body, trail, stack.logs])).not.toMatch(/pk-secret|sealed|sessionKey/i);
});

test.each([
  'nowhere',
  'https://',
  'ftp://provider.example',
  'https://user@provider.example',
  'https://provider.example/?a=1',
])('an engine at %s is refused with the field named, and the old engine stays', async (baseUrl) => {
  const path = `/assistants/${await anAssistantBy(owner)}`;

  const refused = await owner.call('PUT', `${path}/engine`, { kind: 'openai', baseUrl, model: 'm' });
  const after = await owner.get(path);

  expect(problemOf(refused)).toBe('422 validation_failed baseUrl');
  expect(after.body).toMatchObject({ engine: { kind: 'retrieval' } });
});

test('knowledge is added, replaced, removed and imported, and invalid rows are reported', async () => {
  const assistantId = await anAssistantBy(owner);
  const path = `/assistants/${assistantId}/knowledge`;
  type Entries = { entries: { entryId: string; question: string; answer: string }[] };

  const { body: before } = await owner.get<Entries>(path);
  const id = before.entries[0]?.entryId;
  const updated = await owner.call('PUT', `${path}/${id}`, anEntry({ answer: 'From 10.' }));
  const file = 'question,answer\nDo you ship?,Yes.\nNo answer,\n';
  const dry = await owner.post(`${path}-import`, { format: 'csv', text: file, dryRun: true });
  const imported = await owner.post(`${path}-import`, { format: 'csv', text: file });
  const large = await owner.post(`${path}-import`, { format: 'csv', text: `${file}${'x'.repeat(100_000)}` });
  const removed = await owner.call('DELETE', `${path}/${id}`);
  const { body: after } = await owner.get<Entries>(path);

  expect(updated.body).toMatchObject({ entryId: id, answer: 'From 10.' });
  expect(dry.body).toEqual({ imported: 1, refused: [{ line: 3, reason: expect.any(String) }] });
  expect(imported.body).toEqual(dry.body);
  expect([large.status, removed.status]).toEqual([200, 204]);
  expect(after.entries.map(({ question }) => question)).toEqual(['Do you ship?', 'Do you ship?']);
  expect(problemOf(await owner.call('PUT', `${path}/${randomUUID()}`, anEntry()))).toBe('404 not_found');
});

test('an omitted token never opens the channel, and a token is never shown', async () => {
  const assistantId = await anAssistantBy(owner);
  const path = `/assistants/${assistantId}/channel`;

  const closed = await owner.get(path);
  const careless = await owner.call('PATCH', path, { connected: true });
  const connected = await owner.call('PATCH', path, { connected: true, token: 'verify-me', limitPerMinute: 7 });
  const kept = await owner.call('PATCH', path, { connected: true, limitPerMinute: 8 });
  const opened = await owner.call('DELETE', `${path}/token`);
  const off = await owner.call('PATCH', path, { connected: false });

  expect(closed.body).toMatchObject({ connected: false, open: false, warning: null });
  expect(problemOf(careless)).toBe('422 validation_failed token');
  expect(connected.body).toMatchObject({ connected: true, open: false, limitPerMinute: 7 });
  expect(kept.body).toMatchObject({ connected: true, open: false, limitPerMinute: 8 });
  expect(opened.body).toMatchObject({ connected: true, open: true, warning: expect.stringContaining('open') });
  expect(off.body).toMatchObject({ connected: false });
  const trail = (await owner.get(`/audit?target=${assistantId}`)).body;
  expect(JSON.stringify([connected.body, trail, stack.logs])).not.toContain('verify-me');
});

test('an endpoint is tested and rotated, and a resend shows its risk', async () => {
  const assistantId = await anAssistantBy(owner);
  const secrets: string[] = [];
  const receiver = await openReceiver({ secret: secrets });

  const list = `/assistants/${assistantId}/endpoints`;
  const { body: added } = await owner.post<Secret>(list, { url: `${receiver.url}/hook`, events: ['tag.added'] });
  secrets.push(added.secret);
  const one = `/endpoints/${added.endpoint.endpointId}`;
  const { status, body: sent } = await owner.post<Id<'deliveryId'>>(`${one}/test`);
  const tested = await ended(owner, sent.deliveryId);
  const { body: rotated } = await owner.post<Secret>(`${one}/rotate`, { overlapHours: 2 });
  const number = tested.resend?.number ?? 0;
  const resend = `/deliveries/${tested.deliveryId}/resend`;
  const refused = await owner.post(resend, { number });
  const { body: again } = await owner.post<Id<'deliveryId'>>(resend, { number, mayDouble: true });
  const twice = await owner.post<Id<'deliveryId'>>(resend, { number, mayDouble: true });
  await ended(owner, again.deliveryId);
  const { body: recent } = await owner.get<{ deliveries: Delivery[] }>(
    `/assistants/${assistantId}/deliveries?limit=10`,
  );
  const { body: listed } = await owner.get(list);

  expect(status).toBe(202);
  expect(tested).toMatchObject({ outcome: 'delivered', resend: { number: 1, risk: 'may_double' }, test: { ok: true } });
  expect(problemOf(refused)).toBe('422 validation_failed mayDouble');
  expect(twice.body).toEqual(again);
  expect(recent.deliveries.map(({ deliveryId }) => deliveryId)).toEqual([again.deliveryId, tested.deliveryId]);
  expect(receiver.received.map(({ headers }) => headers['x-factory-redelivery'])).toEqual([undefined, 'true']);
  expect(receiver.received.every(({ verdict }) => verdict?.ok)).toBe(true);
  expect(Date.parse(rotated.endpoint.overlapUntil ?? '') - Date.now()).toBeGreaterThan(7_000_000);
  for (const secret of [added.secret, rotated.secret]) {
    expect(JSON.stringify([listed, recent, tested, stack.logs])).not.toContain(secret);
  }
  const { body: trail } = await owner.get<{ lines: { action: string }[] }>(`/audit?operatorId=${owner.operatorId}`);
  expect(trail.lines.map(({ action }) => action).slice(0, 4)).toEqual([
    'delivery.resend',
    'delivery.resend',
    'endpoint.rotate',
    'endpoint.test',
  ]);

  const off = await owner.call('PATCH', one, { enabled: false, events: [] });
  const resumed = await owner.post(`${one}/resume`);
  const gone = await owner.call('DELETE', one);
  expect([off.body, resumed.status, gone.status]).toMatchObject([{ enabled: false, events: [] }, 200, 204]);
  expect(problemOf(await owner.get(one))).toBe('404 not_found');
});

test('agents may use inbox and playground only', async () => {
  const agent = await anOperator(stack, 'agent');
  const assistantId = await anAssistantBy(owner);
  const { apiKey } = await aKeyBy(owner, assistantId);
  const { body: said } = await chat(apiKey, aTurn({ session_id: 'visitor-77' }));
  const one = `/conversations/${said.conversationId}`;
  const page = `/assistants/${assistantId}/conversations`;

  const keys = await agent.get(`/assistants/${assistantId}/keys`);
  const me = await agent.get('/session');
  const found = await agent.get<{ conversations: object[] }>(`${page}?search=TOR-7`);
  const escalated = await agent.post(`${one}/escalate`, { reason: 'asked for' });
  const replied = await agent.post<{ seq: number }>(`${one}/replies`, { content: 'Hello from a person.' });
  const tagged = await agent.post(`${one}/tags`, { tag: 'vip/2', color: '#1e90ff' });
  const byTag = await agent.get<{ conversations: object[] }>(`${page}?tag=vip%2F2&status=escalated`);
  const untagged = await agent.call('DELETE', `${one}/tags/vip%2F2`);
  const back = await agent.post(`${one}/hand-back`);
  const resolved = await agent.post(`${one}/resolve`);
  const reopened = await agent.post(`${one}/reopen`);
  const read = await agent.get<{ messages: { role: string; content: string }[] }>(one);
  const newer = await agent.get(`${one}?afterSeq=${replied.body.seq}`);

  expect(problemOf(keys)).toBe('403 forbidden');
  expect(me.body).toMatchObject({ role: 'agent', assistants: expect.arrayContaining([{ assistantId, name: 'Shop' }]) });
  expect([found.body.conversations.length, byTag.body.conversations.length]).toEqual([1, 1]);
  expect(escalated.body).toMatchObject({ status: 'escalated', escalationReason: 'asked for' });
  expect(tagged.body).toMatchObject({ tags: [{ tag: 'vip/2', color: '#1e90ff' }] });
  expect([untagged.body, back.body]).toMatchObject([{ tags: [] }, { status: 'open' }]);
  expect(resolved.body).toMatchObject({ status: 'resolved', resolvedBy: agent.operatorId });
  expect(reopened.body).toMatchObject({ status: 'open', resolvedBy: null });
  expect(read.body.messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'system', 'operator', 'system']);
  expect(newer.body).toMatchObject({ seq: 4, messages: [{ role: 'system' }] });
  expect(problemOf(await agent.get(`/conversations/${randomUUID()}`))).toBe('404 not_found');
  const trail = JSON.stringify((await owner.get(`/audit?target=${said.conversationId}`)).body);
  expect(trail).toContain('conversation.reply');
  expect(trail).not.toContain('Hello from a person');
});

test('a playground turn is answered in the operator’s own session and sends no events', async () => {
  const agent = await anOperator(stack, 'agent');
  const assistantId = await anAssistantBy(owner);
  const turn = { sessionId: 'try', message: 'What are your opening hours?' };

  const mine = await agent.post<ChatBody>(`/assistants/${assistantId}/playground`, turn);
  const theirs = await owner.post<ChatBody>(`/assistants/${assistantId}/playground`, turn);
  const inbox = await owner.get<{ conversations: object[] }>(`/assistants/${assistantId}/conversations`);
  const figures = await owner.get(`/assistants/${assistantId}/overview`);

  expect(mine.body.reply).toBe('We are open from 9 to 5.');
  expect(theirs.body.conversationId).not.toBe(mine.body.conversationId);
  expect(inbox.body.conversations).toEqual([]);
  expect(figures.body).toMatchObject({
    conversations: { open: 0, escalated: 0, resolved: 0 },
    deliveries: { delivered: 0 },
    endpoints: { all: 0 },
    knowledgeEntries: 1,
  });
});

test('a playground turn can be streamed, and a refused one is a JSON error', async () => {
  const assistantId = await anAssistantBy(owner);
  const url = `${stack.url}/operator/v1/assistants/${assistantId}/playground`;
  const headers = { Origin: stack.url, 'Sec-Fetch-Site': 'same-origin', Cookie: owner.cookie() ?? '' };
  const body = { sessionId: 'try', message: 'What are your opening hours?' };

  const stream = await openStream(url, { body, headers });
  const events = await stream.ended;
  const refused = await openStream(url, { body: { sessionId: 'try', message: '' }, headers });

  expect(events.map(({ event }) => event)).toEqual(['accepted', 'delta', 'message']);
  expect(spokenOf(events)).toBe('We are open from 9 to 5.');
  expect(events.at(-1)?.data).toMatchObject({ reply: 'We are open from 9 to 5.', messageId: expect.any(String) });
  expect(stream.headers.get('x-ratelimit-remaining')).not.toBeNull();
  expect([refused.status, refused.headers.get('content-type')]).toEqual([422, 'application/json; charset=utf-8']);
});

test('every operation is documented, needs a sign-in, and refuses agents unless it is for them', async () => {
  /** Each from its own address, because failing requests of an address are limited. */
  const stranger = (nth: number) => openOperatorClient(stack.url, { 'X-Forwarded-For': `203.0.113.${nth}` });
  const agent = await anOperator(stack, 'agent');
  const operations = apiDocument().operations.filter(({ path }) => path.startsWith('/operator/v1'));
  const open = ['signIn', 'lookForSession', 'readLink', 'useLink'];

  const called = (client: OperatorClient, { method, path }: { method: string; path: string }) =>
    client.call(method.toUpperCase(), path.replace('/operator/v1', '').replaceAll(/\{\w+\}/g, randomUUID()));
  const locked = operations.filter(({ operation }) => !open.includes(operation.operationId));
  const ofOwners = locked.filter(({ operation }) => JSON.stringify(operation).includes('"For owners."'));
  for (const [nth, one] of locked.entries()) {
    expect([one.path, problemOf(await called(stranger(nth), one))]).toContain('401 not_signed_in');
  }
  for (const one of ofOwners) expect([one.path, problemOf(await called(agent, one))]).toContain('403 forbidden');

  const agents = locked.filter((one) => !ofOwners.includes(one)).map(({ operation }) => operation.operationId);
  expect(ofOwners.length).toBeGreaterThan(30);
  expect(agents.toSorted()).toEqual([
    'addCannedReply',
    'addNote',
    'announcePresence',
    'assignConversation',
    'changePassword',
    'countWaiting',
    'deleteNote',
    'exportConversation',
    'followInbox',
    'getSession',
    'handBackConversation',
    'handToPerson',
    'listAgents',
    'listCannedReplies',
    'listConversationEvents',
    'listInbox',
    'listTags',
    'markConversationRead',
    'playgroundTurn',
    'readConversation',
    'readInbox',
    'removeCannedReply',
    'reopenConversation',
    'replyToVisitor',
    'resolveConversation',
    'signOut',
    'signOutEverywhere',
    'snoozeConversation',
    'tagConversation',
    'untagConversation',
    'updateCannedReply',
  ]);
});
