import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, test } from 'vitest';
import { type Answer, anAssistant, aTurn, type ChatBody, request } from '../support/builders.ts';
import { anOperator, type OperatorClient } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';
import { apiDocument } from '../support/validate-response.ts';

const stack = useStack({ deliveryWorkers: 0 });

type Side = { agent: Awaited<ReturnType<typeof anOperator>> } & Try;
type Me = { assistants: { assistantId: string }[] };
type Try = { assistantId: string; conversationId: string };
type CannedReply = { cannedReplyId: string };
type Note = { noteId: string };

let owner: Awaited<ReturnType<typeof anOperator>>;
let mine: Side;
let theirs: Side;

const limit = (operatorId: string, assistantIds: string[] | null): Promise<Answer<Record<string, unknown>>> =>
  owner.call('PATCH', `/operators/${operatorId}`, { assistantIds });

const aSide = async (): Promise<Side> => {
  const { assistantId, apiKey } = await anAssistant(stack);
  const body = aTurn({ session_id: `visitor-${randomUUID()}` });
  const said = await request<ChatBody>(`${stack.url}/api/v1/chat`, { body, bearer: apiKey });
  const agent = await anOperator(stack, 'agent');
  expect((await limit(agent.operatorId, [assistantId])).status).toBe(200);
  return { agent, assistantId, conversationId: said.body.conversationId };
};

beforeAll(async () => {
  owner = await anOperator(stack);
  mine = await aSide();
  theirs = await aSide();
});

const post =
  (name: string, body?: unknown) =>
  (client: OperatorClient, { conversationId }: Try) =>
    client.post(`/conversations/${conversationId}/${name}`, body);

const aCannedReply = async ({ assistantId }: Try): Promise<string> => {
  const path = `/assistants/${assistantId}/canned-replies`;
  const { body } = await owner.post<CannedReply>(path, { title: 'A', content: 'B' });
  return `/canned-replies/${body.cannedReplyId ?? randomUUID()}`;
};

const OPERATIONS: [id: string, call: (client: OperatorClient, one: Try) => Promise<Answer<unknown>>][] = [
  ['listInbox', (client, { assistantId }) => client.get(`/assistants/${assistantId}/conversations`)],
  ['listAgents', (client, { assistantId }) => client.get(`/assistants/${assistantId}/agents`)],
  ['assignConversation', post('assign', { operatorId: null })],
  ['addNote', post('notes', { content: 'Seen' })],
  [
    'deleteNote',
    async (client, { conversationId }) => {
      const { notes } = stack.service.inboxRecords;
      const { noteId } = await notes.add(conversationId, { operatorId: owner.operatorId, content: 'x' });
      const own = await client.post<Note>(`/conversations/${conversationId}/notes`, { content: 'mine' });
      await notes.remove(conversationId, noteId);
      return client.call('DELETE', `/conversations/${conversationId}/notes/${own.body.noteId ?? noteId}`);
    },
  ],
  ['listConversationEvents', (client, { conversationId }) => client.get(`/conversations/${conversationId}/events`)],
  ['exportConversation', (client, { conversationId }) => client.get(`/conversations/${conversationId}/export`)],
  ['listTags', (client, { assistantId }) => client.get(`/assistants/${assistantId}/tags`)],
  ['listCannedReplies', (client, { assistantId }) => client.get(`/assistants/${assistantId}/canned-replies`)],
  [
    'addCannedReply',
    (client, { assistantId }) => client.post(`/assistants/${assistantId}/canned-replies`, { title: 'A', content: 'B' }),
  ],
  ['updateCannedReply', async (client, one) => client.call('PATCH', await aCannedReply(one), { title: 'C' })],
  ['removeCannedReply', async (client, one) => client.call('DELETE', await aCannedReply(one))],
  ['snoozeConversation', post('snooze', { until: null })],
  ['markConversationRead', post('read', { seq: 1 })],
  ['readConversation', (client, { conversationId }) => client.get(`/conversations/${conversationId}`)],
  ['replyToVisitor', post('replies', { content: 'Hello' })],
  ['handToPerson', post('escalate', {})],
  ['handBackConversation', post('hand-back')],
  ['resolveConversation', post('resolve')],
  ['reopenConversation', post('reopen')],
  ['tagConversation', post('tags', { tag: 'vip' })],
  [
    'untagConversation',
    (client, { conversationId }) => client.call('DELETE', `/conversations/${conversationId}/tags/vip`),
  ],
  ['announcePresence', post('presence', { state: 'reading' })],
  [
    'playgroundTurn',
    (client, { assistantId }) =>
      client.post(`/assistants/${assistantId}/playground`, {
        sessionId: 'try',
        message: 'What are your opening hours?',
      }),
  ],
];

/** Operations on an assistant, which have no conversation. */
const OF_ASSISTANTS = ['listInbox', 'listAgents', 'listTags', 'playgroundTurn'];
const ofCannedReplies = (id: string): boolean => id.includes('CannedRepl');

const stored = (conversationId: string) => stack.service.mongo.collection('conversations').findOne({ conversationId });

describe('an agent with one assistant', () => {
  test.each(OPERATIONS)('%s: another agent’s assistant is answered like an unknown one', async (_id, call) => {
    const before = await stored(theirs.conversationId);
    const unknown = await call(mine.agent, { assistantId: randomUUID(), conversationId: randomUUID() });

    const others = await call(mine.agent, theirs);
    const after = await stored(theirs.conversationId);
    const own = await call(mine.agent, mine);
    const byOther = await call(theirs.agent, mine);
    const byOwner = await call(owner, mine);

    expect([unknown, others, byOther].map((answer) => problemOf(answer as never))).toEqual([
      '404 not_found',
      '404 not_found',
      '404 not_found',
    ]);
    expect(after).toEqual(before);
    expect([own.status, byOwner.status].map((status) => Math.floor(status / 100))).toEqual([2, 2]);
  });

  test('a malformed body gets the same answer for an unknown assistant and for one of another agent', async () => {
    const paths = [
      `/assistants/${theirs.assistantId}/playground`,
      `/assistants/${theirs.assistantId}/conversations?limit=0`,
      ...['replies', 'escalate', 'tags', 'assign', 'snooze', 'read', 'notes'].map(
        (name) => `/conversations/${theirs.conversationId}/${name}`,
      ),
    ];

    for (const path of paths) {
      const answer = path.includes('?') ? await mine.agent.get(path) : await mine.agent.post(path, { content: 7 });
      expect([path, problemOf(answer)]).toEqual([path, '404 not_found']);
    }
  });

  test('the inbox has only the agent’s assistants, and another assistant is answered like an unknown one', async () => {
    type Page = { conversations: { conversationId: string }[] };
    const all = await mine.agent.get<Page>('/inbox');
    const ofOwner = await owner.get<Page>('/inbox?limit=100');
    const others = await mine.agent.get(`/inbox?assistantId=${theirs.assistantId}`);
    const unknown = await mine.agent.get(`/inbox?assistantId=${randomUUID()}`);
    const own = await mine.agent.get<Page>(`/inbox?assistantId=${mine.assistantId}`);

    const idsOf = (page: Page) => page.conversations.map(({ conversationId }) => conversationId);
    expect(idsOf(all.body)).toEqual([mine.conversationId]);
    expect(idsOf(own.body)).toEqual([mine.conversationId]);
    expect(idsOf(ofOwner.body)).toEqual(expect.arrayContaining([mine.conversationId, theirs.conversationId]));
    expect([problemOf(others), problemOf(unknown)]).toEqual(['404 not_found', '404 not_found']);
  });

  test('the session and the sign-in list only the agent’s assistants, and all assistants for an owner', async () => {
    const me = await mine.agent.get<Me>('/session');
    const looked = await mine.agent.get<{ session: Me }>('/session/current');
    const signedIn = await mine.agent.signIn(mine.agent.email);
    const ofOwner = await owner.get<Me>('/session');

    const own = [expect.objectContaining({ assistantId: mine.assistantId })];
    expect(me.body.assistants).toEqual(own);
    expect(looked.body.session.assistants).toEqual(own);
    expect((signedIn.body as Me).assistants).toEqual(own);
    const all = ofOwner.body.assistants.map(({ assistantId }) => assistantId);
    expect(all).toEqual(expect.arrayContaining([mine.assistantId, theirs.assistantId]));
  });
});

test('the list covers every agent operation with an assistant or a conversation', () => {
  const ofAgents = apiDocument().operations.filter(
    ({ path, operation }) =>
      path.startsWith('/operator/v1') && path.includes('{id}') && !JSON.stringify(operation).includes('"For owners."'),
  );

  expect(ofAgents.map(({ operation }) => operation.operationId).toSorted()).toEqual(
    OPERATIONS.map(([id]) => id).toSorted(),
  );
  for (const { operation } of ofAgents) expect(Object.keys(operation.responses)).toContain('404');
});

const OF_CONVERSATIONS = OPERATIONS.filter(([id]) => !OF_ASSISTANTS.includes(id) && !ofCannedReplies(id));
const SOME = ['readConversation', 'replyToVisitor', 'addNote', 'exportConversation'];

test.each(sized({ everyday: OF_CONVERSATIONS.filter(([id]) => SOME.includes(id)), long: OF_CONVERSATIONS }))(
  '%s: a playground conversation is in no inbox, and only the operator who started it can read it',
  async (id, call) => {
    const turn = { sessionId: randomUUID(), message: 'What are your opening hours?' };
    const path = `/assistants/${mine.assistantId}/playground`;
    const ofOwner = (await owner.post<ChatBody>(path, turn)).body.conversationId;
    const ofAgent = (await mine.agent.post<ChatBody>(path, turn)).body.conversationId;
    const before = [await stored(ofOwner), await stored(ofAgent)];

    for (const [conversationId, own, other] of [
      [ofOwner, owner, mine.agent],
      [ofAgent, mine.agent, owner],
    ] as const) {
      const one = { assistantId: mine.assistantId, conversationId };
      expect(problemOf((await call(other, one)) as never)).toBe('404 not_found');
      const answer = await call(own, one);
      expect(answer.status).toBe(id === 'readConversation' ? 200 : 404);
    }
    await limit(mine.agent.operatorId, []);
    const taken = await call(mine.agent, { assistantId: mine.assistantId, conversationId: ofAgent });
    await limit(mine.agent.operatorId, [mine.assistantId]);

    expect(problemOf(taken as never)).toBe('404 not_found');
    expect([await stored(ofOwner), await stored(ofAgent)]).toEqual(before);
  },
);

describe('the assistants of an agent', () => {
  const inboxOf = async (client: OperatorClient, assistantId: string): Promise<number> =>
    (await client.get(`/assistants/${assistantId}/conversations`)).status;
  const sees = async (client: OperatorClient): Promise<number[]> =>
    Promise.all([inboxOf(client, mine.assistantId), inboxOf(client, theirs.assistantId)]);
  const listed = async (client: OperatorClient): Promise<number> =>
    (await client.get<Me>('/session')).body.assistants.length;

  test('change at once in an open session, down to none and back to all', async () => {
    const agent = await anOperator(stack, 'agent');
    const everything = await listed(agent);

    const steps = [await sees(agent)];
    for (const ids of [[theirs.assistantId], [mine.assistantId, theirs.assistantId, mine.assistantId], [], null]) {
      await limit(agent.operatorId, ids);
      steps.push(await sees(agent));
      expect(await listed(agent)).toBe(ids === null ? everything : new Set(ids).size);
    }

    expect(steps).toEqual([
      [200, 200],
      [404, 200],
      [200, 200],
      [404, 404],
      [200, 200],
    ]);
  });

  test('are all assistants if none were chosen, also for an agent stored before the choice existed', async () => {
    const agent = await anOperator(stack, 'agent');
    const operators = stack.service.mongo.collection<{ _id: string }>('operators');
    await operators.updateOne({ _id: agent.operatorId }, { $unset: { assistantIds: true } });

    const { body } = await owner.get<{ operators: { operatorId: string; assistantIds: string[] | null }[] }>(
      '/operators',
    );

    expect(await sees(agent)).toEqual([200, 200]);
    expect(body.operators.find(({ operatorId }) => operatorId === agent.operatorId)?.assistantIds).toBeNull();
  });

  test('are chosen with the invitation', async () => {
    const email = `invited-${randomUUID()}@example.com`;

    const invited = await owner.post<{ operator: { operatorId: string } }>('/operators', {
      email,
      assistantIds: [mine.assistantId],
    });

    const { operatorId } = invited.body.operator;
    expect([invited.status, invited.body]).toMatchObject([201, { operator: { assistantIds: [mine.assistantId] } }]);
    const trail = await owner.get(`/audit?target=${operatorId}`);
    expect(trail.body).toMatchObject({
      lines: [{ action: 'operator.invite', details: { assistants: mine.assistantId } }],
    });
  });

  test.each([
    ['an unknown assistant', () => [mine.assistantId, randomUUID()]],
    ['a text that is not an id', () => ['shop']],
    ['too many assistants', () => Array.from({ length: 501 }, () => mine.assistantId)],
  ])('cannot be %s, by invitation or change, and stay as they were', async (_name, ids) => {
    const email = `refused-${randomUUID()}@example.com`;

    const changed = await limit(mine.agent.operatorId, ids());
    const invited = await owner.post('/operators', { email, assistantIds: ids() });

    for (const answer of [changed, invited]) expect(problemOf(answer)).toMatch(/^422 validation_failed assistantIds/);
    expect(await stack.service.operators.findByEmail(email)).toBeNull();
    expect(await sees(mine.agent)).toEqual([200, 404]);
  });

  test('are not limited for an owner, and an agent who becomes an owner has all assistants', async () => {
    const agent = await anOperator(stack, 'agent');
    await limit(agent.operatorId, [mine.assistantId]);

    const limited = await limit(owner.operatorId, [mine.assistantId]);
    const email = `owner-${randomUUID()}@example.com`;
    const invited = await owner.post('/operators', { email, role: 'owner', assistantIds: [] });
    const promoted = await owner.call('PATCH', `/operators/${agent.operatorId}`, { role: 'owner' });

    for (const answer of [limited, invited]) expect(problemOf(answer)).toBe('422 validation_failed assistantIds');
    expect(promoted.body).toMatchObject({ role: 'owner', assistantIds: null });
    expect(await sees(agent)).toEqual([200, 200]);
  });
});
