import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { MISSED_MAX } from '../../src/live/change-feed.ts';
import { inChunks } from '../../src/platform/mongo/batches.ts';
import { anAssistant, aTurn, type TestAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { createFeed } from '../kit/feed.ts';
import { followInbox, type LiveStream } from '../support/live-stream.ts';
import { anOperator } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { openStack, useStack } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';
import { longTest, sized } from '../support/size.ts';

const stack = useStack({ apis: 2, deliveryWorkers: 0 });

type Owner = Awaited<ReturnType<typeof anOperator>>;
let owner: Owner;
let mine: TestAssistant;
let others: TestAssistant;

beforeAll(async () => {
  owner = await anOperator(stack);
  [mine, others] = [await anAssistant(stack), await anAssistant(stack)];
});

const anAgent = async (assistantIds: string[]): Promise<Owner> => {
  const agent = await anOperator(stack, 'agent');
  await owner.call('PATCH', `/operators/${agent.operatorId}`, { assistantIds });
  return agent;
};

const follow = async (client: Owner, options: { at?: number; from?: string | null } = {}): Promise<LiveStream> => {
  const stream = await followInbox(stack.urls[options.at ?? 0] ?? '', client, { from: options.from ?? null });
  onTestFinished(stream.leave);
  return stream;
};

const say = async (assistant: TestAssistant, session = randomUUID()): Promise<string> =>
  (await assistant.chat(aTurn({ session_id: session }))).body.conversationId;

const rowOf = (stream: LiveStream, conversationId: string) =>
  eventually(() => {
    const row = stream.rows().get(conversationId);
    expect(row).toBeDefined();
    return row as Record<string, unknown>;
  });

/** Chats until a row comes. Changes that are read together with one of an operator come as a reset, without rows. */
const aRowOf = (assistant: TestAssistant, stream: LiveStream) =>
  eventually(async () => {
    const conversationId = await say(assistant);
    await eventually(() => {
      const came = { ended: stream.hasEnded(), events: stream.events.slice(-5) };
      expect(stream.rows().has(conversationId), JSON.stringify(came)).toBe(true);
    }, 2_000);
  });

describe('a browser that follows the inbox', () => {
  test('gets the row of a conversation within a second after each change', async () => {
    const stream = await follow(owner);
    await aRowOf(mine, stream); // the changes of operators that were made before are read

    const conversationId = await say(mine);
    const saidAt = performance.now();
    await eventually(() => expect(stream.rows().get(conversationId)).toMatchObject({ seq: 1, status: 'open' }));
    const took = performance.now() - saidAt;
    await owner.post(`/conversations/${conversationId}/escalate`, { reason: 'asked' });
    await eventually(() => expect(stream.rows().get(conversationId)).toMatchObject({ status: 'escalated' }));

    expect(took).toBeLessThan(atPace(1_000));
    expect(stream.status).toBe(200);
    expect(stream.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
    expect(stream.headers.get('x-accel-buffering')).toBe('no');
    expect(await rowOf(stream, conversationId)).toMatchObject({
      assistantId: mine.assistantId,
      escalationReason: 'asked',
    });
    expect(await rowOf(stream, conversationId)).not.toHaveProperty('readSeq');
  });

  test('at another process gets the same last rows', async () => {
    const [one, other] = [await follow(owner, { at: 0 }), await follow(owner, { at: 1 })];

    const ids = await Promise.all(Array.from({ length: sized({ everyday: 5, long: 20 }) }, () => say(mine)));
    await Promise.all(ids.map((id) => owner.post(`/conversations/${id}/tags`, { tag: 'seen' })));
    const isTagged = (stream: LiveStream) => () => {
      for (const id of ids) expect(stream.rows().get(id)).toMatchObject({ tags: [{ tag: 'seen' }] });
    };
    await eventually(isTagged(one));
    await eventually(isTagged(other));

    for (const id of ids) expect(one.rows().get(id)).toEqual(other.rows().get(id));
  });

  test('gets no conversation of the playground', async () => {
    const stream = await follow(owner);

    const tried = await owner.post<{ conversationId: string }>(`/assistants/${mine.assistantId}/playground`, {
      sessionId: randomUUID(),
      message: 'What are your opening hours?',
    });
    await rowOf(stream, await say(mine));

    expect(stream.rows().has(tried.body.conversationId)).toBe(false);
  });

  test('learns of an erasure, after which no row of the conversation follows', async () => {
    const stream = await follow(owner);
    const session = randomUUID();
    const conversationId = await say(mine, session);
    await rowOf(stream, conversationId);

    await mine.call(`/api/v1/conversations/${conversationId}`, { method: 'DELETE' });
    const again = await say(mine, session);
    await rowOf(stream, again);

    const about = stream.events.filter(({ data }) => data['conversationId'] === conversationId);
    expect(about.at(-1)).toEqual({ event: 'erased', data: { conversationId } });
    expect(again).not.toBe(conversationId);
  });
});

describe('a browser that comes back', () => {
  test.for(sized({ everyday: [1], long: [0, 1] }))(
    'gets the last state of many conversations that changed, at process %i',
    async (at) => {
      const before = await follow(owner, { at: 0 });
      await rowOf(before, await say(mine));
      const from = before.position();
      before.leave();
      const many = await manyConversations(sized({ everyday: 100, long: 1_000 }));

      const back = await follow(owner, { at, from });

      await eventually(() => expect([...back.rows().keys()]).toEqual(expect.arrayContaining(many)));
      for (const id of many) expect(back.rows().get(id)).toMatchObject({ tags: [{ tag: 'last' }] });
      expect(back.events.map(({ event }) => event)).not.toContain('reset');
    },
  );

  test('resumes after every process was restarted', async () => {
    const first = await stack.startApi();
    const before = await followInbox(first.url, owner);
    // Then this stream has passed the many changes of the tests before.
    await rowOf(before, await say(mine));
    const from = before.position();
    await first.close();
    const conversationId = await say(mine);
    const second = await stack.startApi();
    onTestFinished(second.close);

    const back = await followInbox(second.url, owner, { from });
    onTestFinished(back.leave);

    expect(await rowOf(back, conversationId)).toMatchObject({ seq: 1 });
    expect(back.events.map(({ event }) => event)).not.toContain('reset');
  });

  test.for([
    ['is unknown', '82FFFF'],
    ['is not a position', 'yesterday'],
  ])('and whose position %s gets a reset and then follows', async ([, from]) => {
    const stream = await follow(owner, { from: from as string });

    await eventually(() => expect(stream.events[0]).toEqual({ event: 'reset', data: {} }));
    await rowOf(stream, await say(mine));
  });

  test('and sends any text as its position is never answered with an error', async () => {
    const stream = await follow(owner);
    const real = stream.position() ?? '';
    const anHourAgo = (Number.parseInt(real.slice(2, 10), 16) - 3_600).toString(16).toUpperCase();
    const [kind, rest] = [`82${anHourAgo}`, real.slice(10)];
    const step = 2 * sized({ everyday: 8, long: 1 });
    const bytes = Array.from({ length: Math.ceil(rest.length / step) }, (_, nth) => nth * step);
    const hostile = [
      ...bytes.flatMap((at) => ['00', 'FF'].map((byte) => kind + rest.slice(0, at) + byte + rest.slice(at + 2))),
      ...bytes.map((at) => kind + rest.slice(0, at)),
      kind + rest + 'FF'.repeat(400),
      `82FFFFFFFF${rest}`,
      `8200000000${rest}`,
      `{"$gt":""}`,
    ];

    const statuses = new Map<string, number>();
    for (const from of hostile) {
      const one = await followInbox(stack.url, owner, { from });
      statuses.set(from, one.status);
      one.leave();
    }

    expect([...statuses].filter(([, status]) => status !== 200)).toEqual([]);
    const future = await follow(owner, { from: `82FFFFFFFF${rest}` });
    await eventually(() => expect(future.events[0]).toEqual({ event: 'reset', data: {} }));
  });

  test('and missed more changes than are sent again gets a reset', async () => {
    const before = await follow(owner);
    const from = before.position();
    before.leave();
    const stayed = await follow(owner);
    const many = await manyConversations(MISSED_MAX + 1, []);
    await eventually(() => {
      const rows = stayed.rows();
      expect(many.filter((id) => !rows.has(id))).toEqual([]);
    });

    const back = await follow(owner, { from });
    const conversationId = await say(mine);
    await rowOf(back, conversationId);

    expect(back.events[0]).toEqual({ event: 'reset', data: {} });
  });

  test('gets erasures that it missed', async () => {
    const conversationId = await say(mine);
    const before = await follow(owner);
    const from = before.position();
    before.leave();
    await mine.call(`/api/v1/conversations/${conversationId}`, { method: 'DELETE' });

    const back = await follow(owner, { at: 1, from });

    await eventually(() => expect(back.events).toContainEqual({ event: 'erased', data: { conversationId } }));
  });
});

/** Opens conversations, and then changes each once for each of these tags. */
const manyConversations = async (count: number, tags = ['first', 'last']): Promise<string[]> => {
  const { mongo } = stack.service;
  const keys = await createFeed(stack.service).openConversations(mine.assistantId, count);
  const conversations = mongo.collection<{ _id: string; conversationId: string }>('conversations');
  for (const tag of tags)
    for (const some of inChunks(keys)) {
      const set = { tags: [{ tag, color: null }] };
      await conversations.updateMany({ _id: { $in: some } }, { $set: set, $currentDate: { updatedAt: true } });
    }
  const found = await conversations.find({ _id: { $in: keys } }).toArray();
  return found.map(({ conversationId }) => conversationId);
};

describe('an agent', () => {
  test('gets no row and no erasure of another assistant, live or missed', async () => {
    const agent = await anAgent([mine.assistantId]);
    const stream = await follow(agent);
    await aRowOf(mine, stream);
    const from = stream.position();

    const theirs = await say(others);
    await others.call(`/api/v1/conversations/${theirs}`, { method: 'DELETE' });
    await say(others);
    await rowOf(stream, await say(mine));
    const back = await follow(agent, { at: 1, from });
    const last = await say(mine);
    await rowOf(back, last);

    for (const { events } of [stream, back]) {
      expect(JSON.stringify(events)).not.toContain(others.assistantId);
      expect(JSON.stringify(events)).not.toContain(theirs);
    }
  });

  test.for([
    ['loses an assistant', (id: string) => owner.call('PATCH', `/operators/${id}`, { assistantIds: [] })],
    ['is disabled', (id: string) => owner.call('PATCH', `/operators/${id}`, { disabled: true })],
  ] as const)('who %s is disconnected within a second', async ([, change]) => {
    const agent = await anAgent([mine.assistantId]);
    const stream = await follow(agent);

    await change(agent.operatorId);
    const changedAt = performance.now();
    await stream.ended;

    expect(performance.now() - changedAt).toBeLessThan(atPace(1_000));
    const next = await say(mine);
    const owners = await follow(owner);
    await rowOf(owners, await say(mine));
    expect(stream.rows().has(next)).toBe(false);
  });

  const waysOut = [
    ['signs out', (agent: Owner) => agent.call('DELETE', '/session')],
    ['signs out everywhere', (agent: Owner) => agent.call('DELETE', '/sessions')],
  ] as const;
  test.for(sized({ everyday: waysOut.slice(0, 1), long: [...waysOut] }))(
    'who %s is disconnected within a second, and cannot connect again',
    async ([, leave]) => {
      const agent = await anAgent([mine.assistantId]);
      const cookie = agent.cookie();
      const stream = await follow(agent);

      await leave(agent);
      const leftAt = performance.now();
      await stream.ended;

      expect(performance.now() - leftAt).toBeLessThan(atPace(1_000));
      expect((await followInbox(stack.url, { cookie: () => cookie })).status).toBe(401);
    },
  );
});

const changes: [string, object][] = [
  ['is disabled', { disabled: true }],
  ['loses an assistant', { assistantIds: [] }],
];
test.each(sized({ everyday: changes.slice(1), long: changes }))(
  'when an operator %s, others load their lists again, because nobody has that operator’s rows',
  async (_, change) => {
    const agent = await anAgent([mine.assistantId]);
    const conversationId = await say(mine);
    await owner.post(`/conversations/${conversationId}/assign`, { operatorId: agent.operatorId });
    const stream = await follow(owner);
    const from = stream.position();

    await owner.call('PATCH', `/operators/${agent.operatorId}`, change);

    const reset = { event: 'reset', data: {} };
    // A row of the change may come too, before or after it.
    await eventually(() => expect(stream.events).toContainEqual(reset));
    const back = await follow(owner, { at: 1, from });
    await eventually(() => expect(back.events).toContainEqual(reset));
  },
);

describe('connections', () => {
  test('are limited to ten for each operator', async () => {
    const agent = await anAgent([mine.assistantId]);
    const streams = await Promise.all(Array.from({ length: 10 }, () => follow(agent)));

    const refused = await agent.get('/live');
    streams[0]?.leave();
    await streams[0]?.ended;

    expect(problemOf(refused)).toBe('429 rate_limited');
    expect(refused.headers.get('retry-after')).toMatch(/^\d+$/);
    await eventually(async () => expect((await follow(agent)).status).toBe(200));
  });

  test('need a sign-in, and an operator token is not enough', async () => {
    const token = await owner.post<{ secret: string }>('/tokens', { name: 'robot', scope: 'read' });
    const { get } = await anOperator(stack);
    const unknown = await fetch(`${stack.url}/operator/v1/live`);
    const withToken = await fetch(`${stack.url}/operator/v1/live`, {
      headers: { Authorization: `Bearer ${token.body.secret}` },
    });
    const notAllowed = await get('/live/other');

    expect([unknown.status, withToken.status, notAllowed.status]).toEqual([401, 403, 404]);
  });

  test('do not prolong the session', async () => {
    const agent = await anAgent([mine.assistantId]);
    const { cookie } = agent;
    const response = await followInbox(stack.url, { cookie });
    response.leave();

    expect(response.headers.getSetCookie()).toEqual([]);
  });

  // `test/live/hub.process.test.ts` has the short form.
  longTest('cost nothing without a browser: the change stream is open only while one follows', async () => {
    const own = await openStack({ replyWorkers: 0, deliveryWorkers: 0 });
    onTestFinished(own.close);
    const admin = own.service.mongo.getClient().db('admin');
    const countStreams = async (): Promise<number> => {
      const cursors = await admin
        .aggregate([{ $currentOp: { idleCursors: true, localOps: true } }], { readConcern: { level: 'local' } })
        .toArray();
      return cursors.filter(
        (one) =>
          JSON.stringify(one).includes('$changeStream') && String(one['ns']).startsWith(`${own.service.mongo.name}.`),
      ).length;
    };
    const before = await countStreams();

    const streams = await Promise.all([
      followInbox(own.url, await anOperator(own)),
      followInbox(own.url, await anOperator(own)),
    ]);
    const followed = await countStreams();
    for (const { leave } of streams) leave();
    await eventually(async () => expect(await countStreams()).toBe(0));

    expect([before, followed]).toEqual([0, 1]);
  });

  test('end at once when the process drains', async () => {
    const api = await stack.startApi();
    const stream = await followInbox(api.url, owner);

    const begunAt = performance.now();
    await api.close();
    await stream.ended;

    expect(performance.now() - begunAt).toBeLessThan(atPace(1_500));
  });
});
