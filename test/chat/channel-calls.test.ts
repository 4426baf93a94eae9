import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { createChannelCalls } from '../../src/assistants/channel.ts';
import { anAssistant, aTurn, type ChatBody, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { atPace } from '../support/pace.ts';
import { problemOf } from '../support/problem.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack();

type Call = {
  at: string;
  status: number;
  ms: number;
  error?: string;
  sessionId?: string;
  conversationId?: string;
};

type Channel = { secretAddress: { createdAt: string } | null };

const aChannel = async (limitPerMinute = 100) => {
  const owner = await anOperator(stack);
  const { assistantId } = await anAssistant(stack);
  const path = `/assistants/${assistantId}/channel`;
  await owner.call('PATCH', path, { connected: true, token: 'verify-me', limitPerMinute });
  return {
    owner,
    assistantId,
    change: (change: object) => owner.call('PATCH', path, change),
    call: (body: unknown, bearer: string | null = 'verify-me', headers: Record<string, string> = {}) =>
      request<ChatBody>(`${stack.url}/api/v1/channels/webhook/${assistantId}`, { body, bearer, headers }),
    calls: async () => (await owner.get<{ calls: Call[] }>(`${path}/calls`)).body.calls,
  };
};

test('a secret address takes the place of the token, is shown once, and can be rotated and removed', async () => {
  const { owner, assistantId, change, call, calls } = await aChannel(1_000);
  const path = `/assistants/${assistantId}/channel`;
  const make = () => owner.post<{ secretPath: string; channel: Channel }>(`${path}/secret-address`);
  const post = (secretPath: string, body: unknown = aTurn()) =>
    request<ChatBody>(`${stack.url}${secretPath}`, { body, bearer: null });
  const refused = (secretPath: string) =>
    eventually(async () => expect(problemOf(await post(secretPath))).toBe('401 invalid_verify_token'), atPace(5_000));
  const never = await post(`/api/v1/channels/webhook/${assistantId}/vp_nothing`);

  const first = (await make()).body;
  const answered = await eventually(async () => {
    const answer = await post(first.secretPath, aTurn({ session_id: 'visitor-1' }));
    expect(answer.status).toBe(200);
    return answer;
  });
  const wrong = await post(`${first.secretPath}x`);
  const bare = [await call(aTurn(), null), await call(aTurn({ session_id: 'visitor-1', message: 'And then?' }))];
  const second = (await make()).body;
  await refused(first.secretPath);
  const limited = [await post(second.secretPath), await call(aTurn())].map(({ headers }) =>
    Number(headers.get('x-ratelimit-remaining')),
  );
  await owner.call('DELETE', `${path}/secret-address`);
  await refused(second.secretPath);
  const third = (await make()).body;
  await change({ connected: false });
  const gone = await owner.post(`${path}/secret-address`);
  await change({ connected: true, token: 'verify-me' });
  await refused(third.secretPath);

  expect(first.secretPath).toMatch(new RegExp(`^/api/v1/channels/webhook/${assistantId}/vp_\\w{43}$`));
  expect(first.channel.secretAddress).toEqual({ createdAt: expect.any(String) });
  expect([never, wrong, bare[0]].map((one) => one && problemOf(one))).toEqual(
    Array.from({ length: 3 }, () => '401 invalid_verify_token'),
  );
  expect(bare[1]?.body.conversationId).toBe(answered.body.conversationId);
  expect(limited[1]).toBe((limited[0] ?? 0) - 1);
  expect(problemOf(gone)).toBe('409 conflict');
  expect((await owner.get<Channel>(path)).body.secretAddress).toBeNull();
  const trail = (await owner.get(`/audit?target=${assistantId}`)).body;
  expect(JSON.stringify(trail)).toContain('channel.rotate_address');
  const stored = await stack.service.mongo.collection('assistants').find({}).toArray();
  const told = JSON.stringify([trail, await calls(), stored, stack.logs]);
  for (const { secretPath } of [first, second, third]) expect(told).not.toContain(secretPath.split('/').at(-1));
});

test('each call of a channel is listed, newest first, with its result but without text or token', async () => {
  const channel = await aChannel(3);

  const { body: answered } = await channel.call(aTurn({ session_id: 'visitor-1', message: 'zebra crossing' }));
  await channel.call(aTurn({ message: 'zebra again' }), 'wrong-token');
  await channel.call({ session_id: 'visitor-2', message: '' });
  await channel.call('{"zebra":');
  await channel.call(aTurn({ message: 'zebra' }));
  await channel.change({ connected: false });
  await eventually(async () => {
    const { assistants } = stack.service;
    expect((await assistants.findAssistant(channel.assistantId))?.channel.connected).toBe(false);
  });
  await channel.call(aTurn({ message: 'zebra' }));
  const calls = await eventually(async () => {
    const listed = await channel.calls();
    expect(listed[0]).toMatchObject({ status: 404, error: 'not_found' });
    return listed;
  });

  const oldestFirst = calls.toReversed();
  expect(oldestFirst).toEqual([
    {
      at: expect.any(String),
      ms: expect.any(Number),
      status: 200,
      sessionId: 'visitor-1',
      conversationId: answered.conversationId,
    },
    { at: expect.any(String), ms: expect.any(Number), status: 401, error: 'invalid_verify_token' },
    { at: expect.any(String), ms: expect.any(Number), status: 422, error: 'validation_failed' },
    { at: expect.any(String), ms: expect.any(Number), status: 422, error: 'invalid_json' },
    { at: expect.any(String), ms: expect.any(Number), status: 429, error: 'rate_limited' },
    { at: expect.any(String), ms: expect.any(Number), status: 404, error: 'not_found' },
  ]);
  expect(calls.map(({ at }) => at)).toEqual(calls.map(({ at }) => at).toSorted((a, b) => (a < b ? 1 : -1)));
  const keys = await stack.service.redis.keys('*channel-calls*');
  const stored = await Promise.all(keys.map((key) => stack.service.redis.lrange(key, 0, -1)));
  expect(stored.flat().length).toBeGreaterThanOrEqual(calls.length);
  expect(JSON.stringify([calls, stored])).not.toMatch(/zebra|verify-me|wrong-token/);
});

test('a streamed and an accepted call are listed with their conversation too', async () => {
  const channel = await aChannel();

  const response = await fetch(`${stack.url}/api/v1/channels/webhook/${channel.assistantId}`, {
    method: 'POST',
    headers: {
      'Content-Type': 'application/json',
      Authorization: 'Bearer verify-me',
      Accept: 'text/event-stream',
    },
    body: JSON.stringify(aTurn({ session_id: 'streamed' })),
  });
  const conversationId = /"conversationId":"([^"]+)"/.exec(await response.text())?.[1];

  await eventually(async () =>
    expect(await channel.calls()).toEqual([
      expect.objectContaining({ status: 200, sessionId: 'streamed', conversationId }),
    ]),
  );
});

test('the last 20 calls are kept for a while, and an unknown assistant has no list', async () => {
  const channel = await aChannel();
  const nobody = randomUUID();

  for (let nth = 0; nth < 25; nth += 1) await channel.call({ session_id: `${nth}` });
  await request(`${stack.url}/api/v1/channels/webhook/${nobody}`, { body: aTurn() });
  const calls = await eventually(async () => {
    const listed = await channel.calls();
    expect(listed).toHaveLength(20);
    return listed;
  });

  const { redis } = stack.service;
  const [key = ''] = await redis.keys(`*channel-calls:${channel.assistantId}`);
  expect(await redis.llen(key)).toBe(20);
  expect(await redis.ttl(key)).toBeGreaterThan(6 * 86_400);
  expect(await redis.keys(`*${nobody}*`)).toEqual([]);
  expect(calls.every(({ error }) => error === 'validation_failed')).toBe(true);
  expect(problemOf(await channel.owner.get(`/assistants/${nobody}/channel/calls`))).toBe('404 not_found');
});

test('erasing a conversation removes its session from the list and no other', async () => {
  const channel = await aChannel();
  const { body: first } = await channel.call(aTurn({ session_id: 'visitor-1' }));
  await channel.call(aTurn({ session_id: 'visitor-2' }));
  await eventually(async () => expect(await channel.calls()).toHaveLength(2));
  const { apiKey } = await stack.service.assistants.createApiKey({
    assistantId: channel.assistantId,
    name: 'k',
    limitPerMinute: 60,
  });

  const path = `${stack.url}/api/v1/conversations/${first.conversationId}`;
  expect((await request(path, { method: 'DELETE', bearer: apiKey })).status).toBe(204);

  await eventually(async () =>
    expect((await channel.calls()).map(({ sessionId }) => sessionId)).toEqual(['visitor-2']),
  );
});

test('a call that is recorded long after its session was erased leaves no trace, and a later call of the session does', async () => {
  const { redis } = stack.service;
  const prefix = `${stack.env['REDIS_PREFIX']}-late`;
  const [own, other] = [createChannelCalls(redis, prefix), createChannelCalls(redis, prefix)];
  const assistantId = randomUUID();
  const aCall = (at: number, sessionId: string) => ({ at: new Date(at).toISOString(), status: 404, ms: 1, sessionId });
  const begunAt = Date.now() - 10_000;
  own.record(assistantId, aCall(begunAt, 'visitor'));
  own.forget(assistantId, 'visitor');
  await eventually(async () => expect(await redis.keys(`${prefix}:channel-forgotten:*`)).toHaveLength(1));

  other.record(assistantId, aCall(begunAt, 'visitor'));
  other.record(assistantId, aCall(begunAt, 'neighbour'));
  other.record(assistantId, aCall(Date.now() + 60_000, 'visitor'));
  const calls = await other.list(assistantId);

  expect(calls.map(({ sessionId }) => sessionId)).toEqual(['visitor', 'neighbour']);
  expect(calls[0]?.at).toBe(new Date(Math.max(...calls.map(({ at }) => Date.parse(at)))).toISOString());
  expect((await redis.keys(`${prefix}*`)).join()).not.toContain('visitor');
});
