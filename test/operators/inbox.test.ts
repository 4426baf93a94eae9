import { randomUUID } from 'node:crypto';
import { mongo } from 'mongoose';
import { expect, test } from 'vitest';
import { createInboxList } from '../../src/inbox/inbox.ts';
import type { Operator } from '../../src/operators/operator.ts';
import { anAssistant, aTurn } from '../support/builders.ts';
import { anOperator, openOperatorClient, type OperatorClient } from '../support/operator-client.ts';
import { watchPool } from '../support/pool.ts';
import { profileStatements } from '../support/profile.ts';
import { problemOf } from '../support/problem.ts';
import { useOpened, useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0 });
const owner = useOpened(() => anOperator(stack));

type Row = {
  conversationId: string;
  status: string;
  assigneeId: string | null;
  waitingSince: string | null;
  snoozedUntil: string | null;
  updatedAt: string;
  seq: number;
  readSeq: number | null;
  last: { role: string; content: string; pending: boolean } | null;
};
type Page = { conversations: Row[]; nextCursor: string | null };

/** An assistant whose visitors can be named, and an owner who sees its inbox. */
const anInbox = async () => {
  const { assistantId, chat } = await anAssistant(stack);
  const say = async (session_id: string, message = 'What are your opening hours?'): Promise<string> =>
    (await chat(aTurn({ session_id, message }))).body.conversationId;
  const page = async (query = '', client: OperatorClient = owner): Promise<Page> =>
    (await client.get<Page>(`/inbox?assistantId=${assistantId}${query}`)).body;
  const ids = async (query = '', client?: OperatorClient) =>
    (await page(query, client)).conversations.map(({ conversationId }) => conversationId);
  const row = async (conversationId: string): Promise<Row> => {
    const found = (await page(`&search=${conversationId}`)).conversations[0];
    if (!found) throw new Error('the conversation is not in the inbox');
    return found;
  };
  return { assistantId, owner, say, page, ids, row };
};

const inMinutes = (minutes: number): string => new Date(Date.now() + minutes * 60_000).toISOString();

test('a row has what the visitor or an operator said last, cut by code points, and the assistants are merged, latest change first', async () => {
  const [one, other] = [await anInbox(), await anInbox()];
  const agent = await anOperator(stack, 'agent');
  const assistantIds = [one.assistantId, other.assistantId];
  await one.owner.call('PATCH', `/operators/${agent.operatorId}`, { assistantIds });

  const first = await one.say('first');
  const second = await other.say('second');
  const third = await one.say('third');
  await other.owner.post(`/conversations/${second}/replies`, { content: '😀'.repeat(200) });
  const all = (await agent.get<Page>('/inbox')).body.conversations;
  const paged: string[] = [];
  for (let cursor = ''; ; ) {
    const { body } = await agent.get<Page>(`/inbox?limit=1${cursor}`);
    paged.push(...body.conversations.map(({ conversationId }) => conversationId));
    if (body.nextCursor === null) break;
    cursor = `&cursor=${body.nextCursor}`;
  }

  expect(all.map(({ conversationId }) => conversationId)).toEqual([second, third, first]);
  expect(paged).toEqual([second, third, first]);
  expect(all[0]).toMatchObject({ seq: 2, last: { role: 'operator', content: '😀'.repeat(160), pending: false } });
  expect(all[1]).toMatchObject({
    assistantId: one.assistantId,
    sessionId: 'third',
    readSeq: null,
    assigneeId: null,
    waitingSince: null,
    snoozedUntil: null,
    takeBy: null,
    last: { role: 'user', content: 'What are your opening hours?', pending: false },
  });
});

test('a conversation waits from the first message that needs a person until somebody answers or ends it', async () => {
  const { owner, say, row } = await anInbox();
  const id = await say('waiting');
  const post = (name: string, body?: unknown) => owner.post(`/conversations/${id}/${name}`, body);
  const waiting = async () => (await row(id)).waitingSince;

  const before = await waiting();
  await post('escalate', {});
  const since = await waiting();
  await say('waiting', 'Are you there?');
  const still = await waiting();
  await post('replies', { content: 'Yes.' });
  const answered = await waiting();
  await say('waiting', 'I have a question.');
  const again = await waiting();
  await post('hand-back');
  const handedBack = await waiting();
  await post('escalate', {});
  await post('resolve');
  const resolved = await waiting();

  expect([before, answered, handedBack, resolved]).toEqual([null, null, null, null]);
  expect(since).not.toBeNull();
  expect(still).toBe(since);
  expect(Date.parse(again ?? '')).toBeGreaterThan(Date.parse(since ?? ''));
});

test('a handoff by the assistant waits from the message that caused it', async () => {
  const { owner, say, row } = await anInbox();

  const id = await say('asks', 'I want to talk to a human');
  const found = await row(id);
  const { body } = await owner.get<{ messages: { role: string; createdAt: string }[] }>(`/conversations/${id}`);

  expect(found.status).toBe('escalated');
  expect(found.waitingSince).toBe(body.messages[0]?.createdAt);
});

test('an assignee is an operator who may use the assistant, and counts as nobody after that', async () => {
  const { assistantId, owner, say, ids, row } = await anInbox();
  const agent = await anOperator(stack, 'agent');
  const stranger = await anOperator(stack, 'agent');
  await owner.call('PATCH', `/operators/${stranger.operatorId}`, { assistantIds: [] });
  const id = await say('assigned');
  const other = await say('free');
  const assign = (operatorId: string | null) => owner.post(`/conversations/${id}/assign`, { operatorId });
  const update = (body: object) => owner.call('PATCH', `/operators/${agent.operatorId}`, body);

  const agents = await owner.get<{ agents: { operatorId: string }[] }>(`/assistants/${assistantId}/agents`);
  const { updatedAt } = await row(id);
  const assigned = await assign(agent.operatorId);
  const found = [
    await ids('&assignee=me', agent),
    await ids(`&assignee=${agent.operatorId}`),
    await ids('&assignee=none'),
  ];
  const after = await row(id);
  const refused = [await assign(stranger.operatorId), await assign(randomUUID()), await assign('me')];

  expect(agents.body.agents).toContainEqual({ operatorId: agent.operatorId, email: agent.email, role: 'agent' });
  expect(agents.body.agents).not.toContainEqual(expect.objectContaining({ operatorId: stranger.operatorId }));
  expect([assigned.status, assigned.body]).toEqual([200, { conversationId: id, assigneeId: agent.operatorId }]);
  expect(found).toEqual([[id], [id], [other]]);
  expect(after).toMatchObject({ assigneeId: agent.operatorId, updatedAt });
  expect(new Set(refused.map(problemOf))).toEqual(new Set(['422 validation_failed operatorId']));

  const states: unknown[] = [];
  for (const body of [{ assistantIds: [] }, { assistantIds: null }, { disabled: true }]) {
    await update(body);
    const read = await owner.get<{ assigneeId: string | null }>(`/conversations/${id}`);
    states.push([(await row(id)).assigneeId, read.body.assigneeId, (await ids('&assignee=none')).includes(id)]);
    states.push((await ids(`&assignee=${agent.operatorId}`)).length);
  }
  const kept = [agent.operatorId, agent.operatorId, false];
  expect(states).toEqual([[null, null, true], 0, kept, 1, [null, null, true], 0]);
  expect(problemOf(await assign(agent.operatorId))).toBe('422 validation_failed operatorId');
});

test('of two operators who take a conversation at once, one has it, and taking it twice changes nothing', async () => {
  const { owner, say, row } = await anInbox();
  const agent = await anOperator(stack, 'agent');
  const id = await say('taken');
  const take = (client: typeof owner) => client.post(`/conversations/${id}/assign`, { operatorId: client.operatorId });

  const both = await Promise.all([take(owner), take(agent)]);
  const has = (await row(id)).assigneeId;
  await take(agent);
  await take(agent);

  expect(both.map(({ status }) => status)).toEqual([200, 200]);
  expect([owner.operatorId, agent.operatorId]).toContain(has);
  expect((await row(id)).assigneeId).toBe(agent.operatorId);
  await agent.post(`/conversations/${id}/assign`, { operatorId: null });
  expect((await row(id)).assigneeId).toBeNull();
});

test('a snooze ends with a visitor’s message, not with an operator’s, and can be ended', async () => {
  const { owner, say, ids, row } = await anInbox();
  const id = await say('snoozed');
  const other = await say('awake');
  const until = inMinutes(60);
  const snooze = (value: unknown) => owner.post(`/conversations/${id}/snooze`, { until: value });
  const lists = async () => [await ids('&snoozed=true'), (await ids('&snoozed=false')).toSorted()];

  const snoozed = await snooze(until);
  await owner.post(`/conversations/${id}/replies`, { content: 'Later.' });
  const during = await lists();
  const found = (await row(id)).snoozedUntil;
  await say('snoozed', 'Hello again');
  const afterwards = await lists();
  const ended = (await row(id)).snoozedUntil;
  await snooze(until);
  const again = await lists();
  const cleared = await snooze(null);

  expect(snoozed.body).toEqual({ conversationId: id, snoozedUntil: until });
  expect([found, ended]).toEqual([until, null]);
  expect(during).toEqual([[id], [other]]);
  expect(afterwards).toEqual([[], [id, other].toSorted()]);
  expect(again).toEqual([[id], [other]]);
  expect([cleared.body, await lists()]).toEqual([
    { conversationId: id, snoozedUntil: null },
    [[], [id, other].toSorted()],
  ]);
});

test.each([inMinutes(-1), inMinutes(60 * 24 * 400), 'tomorrow', '', 0, undefined])(
  'a snooze until %s is refused',
  async (until) => {
    const { owner, say } = await anInbox();
    const id = await say('refused');

    expect(problemOf(await owner.post(`/conversations/${id}/snooze`, { until }))).toBe('422 validation_failed until');
  },
);

test('waiting conversations are counted up to 100: escalated, not snoozed, and only of one’s own assistants', async () => {
  const { say } = await anInbox();
  const mine = await anInbox();
  const agent = await anOperator(stack, 'agent');
  await owner.call('PATCH', `/operators/${agent.operatorId}`, { assistantIds: [mine.assistantId] });
  const count = async () => (await agent.get<{ count: number }>('/inbox/waiting')).body.count;
  await say('other', 'I want to speak to a human please');
  expect(await count()).toBe(0);

  await mine.say('open');
  const first = await mine.say('first', 'I want to speak to a human please');
  await mine.say('second', 'I want to speak to a human please');
  expect(await count()).toBe(2);
  await owner.post(`/conversations/${first}/snooze`, { until: inMinutes(10) });
  expect(await count()).toBe(1);

  const conversations = stack.service.mongo.collection('conversations');
  const { _id, ...one } = (await conversations.findOne({ assistantId: mine.assistantId, sessionId: 'second' })) ?? {};
  const copies = Array.from({ length: 120 }, (_, nth) => ({ ...one, _id: `${String(_id)} ${nth}` }));
  await conversations.insertMany(copies as never[]);
  expect(await count()).toBe(100);
  await conversations.deleteMany({ _id: { $in: copies.map((copy) => copy._id) } as never });
});

test('a read position is each operator’s own, never goes back and never passes the last message', async () => {
  const { owner, say, page } = await anInbox();
  const agent = await anOperator(stack, 'agent');
  const id = await say('read');
  await say('read', 'Thanks');
  const read = (seq: unknown) => owner.post(`/conversations/${id}/read`, { seq });

  const steps = [(await read(1)).body, (await read(0)).body, (await read(999_999)).body];
  await Promise.all([read(1), read(2), read(0)]);

  expect(steps.map(({ readSeq }) => readSeq)).toEqual([1, 1, 2]);
  expect((await page()).conversations[0]).toMatchObject({ readSeq: 2, seq: 2 });
  expect((await page('', agent)).conversations[0]).toMatchObject({ readSeq: null });
  expect((await owner.get(`/conversations/${id}`)).body).toMatchObject({ readSeq: 2 });
  for (const seq of [-1, 1.5, '1', null, 1e12]) expect(problemOf(await read(seq))).toBe('422 validation_failed seq');
});

test('a search that takes too long is refused with 422', async () => {
  const nobody = async () => ({ find: () => null, of: () => [] });
  const list = createInboxList(stack.service.conversations, nobody, async () => {
    throw new mongo.MongoServerError({ message: 'too long', code: 50, codeName: 'MaxTimeMSExpired' });
  });

  const failure = await list({ assistantIds: [randomUUID()], search: 'a', limit: 10 }).catch((cause: unknown) => cause);

  expect(failure).toMatchObject({ code: 'validation_failed', details: [{ field: 'search' }] });
});

test('a list over assistants that all have their own agents makes few finds at once', async () => {
  const { assistantId, say } = await anInbox();
  const id = await say(`visitor-${randomUUID()}`);
  const own = async () => ({ find: () => null, of: (one: string) => [{ operatorId: `agent of ${one}` } as Operator] });
  const list = createInboxList(stack.service.conversations, own, async () => []);
  const assistantIds = [...Array.from({ length: 300 }, () => randomUUID()), assistantId];
  const stopWatching = watchPool(stack.service.mongo);

  const { conversations } = await list({ assistantIds, assignee: 'none', limit: 10 });

  const most = stopWatching();
  expect(conversations.map(({ conversationId }) => conversationId)).toEqual([id]);
  expect(most).toBeGreaterThanOrEqual(2);
  expect(most).toBeLessThanOrEqual(8); // the service itself may use some connections meanwhile
});

test('a conversation is found by a session id that is a uuid, by its id and by that of a turn', async () => {
  const { say, ids } = await anInbox();
  const session = randomUUID();
  const id = await say(session);

  expect(await ids(`&search=${session}`)).toEqual([id]);
  const { waiting, recent } = (await stack.service.conversations.findById(id))!;
  const [turn] = [...waiting, ...recent];

  expect(await ids(`&search=${id}`)).toEqual([id]);
  expect(await ids(`&search=${turn?.turnId}`)).toEqual([id]);
  expect(await ids(`&search=${randomUUID()}`)).toEqual([]);
});

test('filters may be combined, and unknown values are refused or find nothing', async () => {
  const { owner, say, ids } = await anInbox();
  const german = await say('german', 'Wann habt ihr geöffnet? Ich möchte das gerne wissen.');
  const english = await say('english');
  await owner.post(`/conversations/${english}/tags`, { tag: 'vip' });
  await owner.post(`/conversations/${german}/resolve`);
  await stack.service.mongo.collection('conversations').updateOne(
    { conversationId: english },
    {
      $set: {
        attributes: [
          { name: 'plan', value: 'pro' },
          { name: 'age', value: 7 },
        ],
      },
    },
  );

  expect(await ids('&language=de')).toEqual([german]);
  expect(await ids('&language=de&status=open')).toEqual([]);
  expect(await ids('&tag=vip&status=open&channel=api&assignee=none&snoozed=false')).toEqual([english]);
  expect(await ids('&channel=web')).toEqual([]);
  expect(await ids('&attribute=plan:pro')).toEqual([english]);
  expect(await ids('&attribute=age:7')).toEqual([english]);
  expect(await ids('&attribute=age:pro')).toEqual([]);
  expect(await ids('&search=ENGL')).toEqual([english]);
  expect((await owner.get(`/conversations/${english}`)).body).toMatchObject({ attributes: { plan: 'pro', age: 7 } });
  for (const query of [
    'status=gone',
    'channel=playground',
    'assignee=you',
    'snoozed=yes',
    'attribute=$ne',
    'limit=0',
    'cursor=x',
  ])
    expect(problemOf(await owner.get(`/inbox?${query}`))).toBe(`422 validation_failed ${query.split('=')[0]}`);
});

test('an agent without assistants has an empty inbox, also when searching', async () => {
  const { owner, say, page } = await anInbox();
  await say('somebody');
  const agent = await anOperator(stack, 'agent');
  await owner.call('PATCH', `/operators/${agent.operatorId}`, { assistantIds: [] });

  for (const query of ['', '?search=somebody', '?assignee=none', '?assignee=me', '?snoozed=false'])
    expect((await agent.get<Page>(`/inbox${query}`)).body).toEqual({ conversations: [], nextCursor: null });
  expect((await page()).conversations).toHaveLength(1);
});

test('an erased conversation leaves the inbox, and its read positions are deleted', async () => {
  const { assistantId, owner, say, ids } = await anInbox();
  const id = await say('erased');
  await owner.post(`/conversations/${id}/read`, { seq: 1 });
  const stored = await stack.service.conversations.findById(id);
  if (!stored) throw new Error('the conversation is gone');

  await (await stack.service.conversations.erase(stored)).purged;

  expect(await ids()).toEqual([]);
  const positions = stack.service.mongo.collection<{ _id: string }>('readPositions');
  expect(await positions.countDocuments({ _id: { $regex: `^${id}` } })).toBe(0);
  for (const [name, body] of [
    ['assign', { operatorId: null }],
    ['snooze', { until: null }],
    ['read', { seq: 1 }],
  ] as const)
    expect(problemOf(await owner.post(`/conversations/${id}/${name}`, body))).toBe('404 not_found');
  expect((await owner.get(`/assistants/${assistantId}/conversations`)).body).toMatchObject({ conversations: [] });
});

test('the audit trail has assignments and snoozes, and no read positions', async () => {
  const { owner, say } = await anInbox();
  const id = await say('audited');
  const until = inMinutes(5);

  await owner.post(`/conversations/${id}/assign`, { operatorId: owner.operatorId });
  await owner.post(`/conversations/${id}/snooze`, { until });
  await owner.post(`/conversations/${id}/read`, { seq: 1 });
  const trail = await owner.get<{ lines: unknown[] }>(`/audit?target=${id}`);

  expect(trail.body.lines).toMatchObject([
    { action: 'conversation.snooze', details: { until } },
    { action: 'conversation.assign', details: { assignee: owner.operatorId } },
  ]);
});

/** A rest is four times as long as the read, and no longer than this. */
const REST_MOST_MS = 500;

test.each([
  ['people with the same assistants', '/inbox/waiting', 'aggregate', 4, 2],
  ['sessions a person has', '/inbox?snoozed=false', 'find', 1, 4],
])('however many %s, %s is read once at a time, with rests', async (_what, path, command, people, times) => {
  const { assistantId, say } = await anInbox();
  const agents = await Promise.all(Array.from({ length: people }, () => anOperator(stack, 'agent')));
  for (const { operatorId } of agents)
    await owner.call('PATCH', `/operators/${operatorId}`, { assistantIds: [assistantId] });
  const conversationId = await say('one');
  await owner.post(`/conversations/${conversationId}/escalate`, {});
  await owner.post(`/conversations/${conversationId}/snooze`, { until: inMinutes(60) });
  const conversations = stack.service.mongo.collection('conversations');
  const one = await conversations.findOne({ conversationId });
  const others = Array.from({ length: 3_000 }, (_, nth) => ({ ...one, _id: `z${nth} ${assistantId}` as never }));
  await conversations.insertMany(others.map((row) => ({ ...row, conversationId: randomUUID(), outbox: [] })));
  const sessions = await Promise.all(
    Array.from({ length: 4 }, async (_, nth) => {
      const client = openOperatorClient(stack.url);
      await client.signIn(agents[nth % people]?.email ?? '');
      return client;
    }),
  );

  const statements = await profileStatements(stack, async () => {
    const answers = await Promise.all(sessions.map((session) => session.get(path)));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  });

  const reads = statements.filter((statement) => {
    const text = JSON.stringify(statement.command);
    return (
      statement.command[command] === 'conversations' && text.includes(assistantId) && text.includes('snoozedUntil')
    );
  });
  const byStart = reads
    .map(({ ts, millis }) => ({ from: ts.getTime() - millis, to: ts.getTime(), rest: Math.min(millis, REST_MOST_MS) }))
    .toSorted((one, other) => one.from - other.from);
  expect(byStart).toHaveLength(times); // who asks while a count waits gets it too
  const isTooSoon = ({ from }: { from: number }, nth: number): boolean => {
    const before = byStart[nth - 1];
    return before !== undefined && from < before.to + before.rest;
  };
  expect(byStart.filter(isTooSoon)).toEqual([]);
  await conversations.deleteMany({ assistantId });
});
