import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type RedisCluster, startRedisCluster } from '../../scripts/services.ts';
import { conversationKeyOf } from '../../src/platform/process/ids.ts';
import { runAdmin } from '../support/admin.ts';
import { anAssistant, aTurn, request, type TestAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { contentOf, openReceiver, type Received } from '../kit/receiver.ts';
import { openStack, type Stack } from '../support/stack.ts';

// With this prefix, each of three partitions is on another master.
const PARTITIONS = ['{p-0}', '{p-1}', '{p-2}'];
let cluster: RedisCluster;
let stack: Stack;
beforeAll(async () => {
  cluster = await startRedisCluster();
  const env = { REDIS_URL: cluster.url, REDIS_PREFIX: 'p', PARTITIONS: String(PARTITIONS.length) };
  stack = await openStack({ env });
});
afterAll(async () => {
  await stack?.close();
  await cluster?.dispose();
});

/** One session for each partition, in the order of the partitions. */
const sessionsOf = async ({ assistantId }: TestAssistant): Promise<string[]> => {
  const { sessionKey } = (await stack.service.assistants.findAssistant(assistantId))!;
  const found = new Map<number, string>();
  while (found.size < PARTITIONS.length) {
    const sessionId = randomUUID();
    found.set(
      stack.service.partitions.indexOf(conversationKeyOf({ sessionKey, sessionId, playground: false })),
      sessionId,
    );
  }
  return PARTITIONS.map((_, index) => found.get(index)!);
};

/** Sends a message that names its session, so that its event can be recognized. Returns the status. */
const say = async ({ chat }: TestAssistant, session_id: string, text: string | number): Promise<number> =>
  (await chat({ session_id, message: `${session_id}#${text}` })).status;

/** The texts of a session, in the order of their events. */
const announced = (received: Received[], session: string): string[] =>
  received.flatMap((event) => {
    const [from, text] = contentOf(event)?.split('#') ?? [];
    return from === session && text !== undefined ? [text] : [];
  });

test('sessions of all partitions get replies and events in order, on all masters of a Redis Cluster', async () => {
  const assistant = await anAssistant(stack);
  const receiver = await openReceiver();
  await stack.service.endpoints.addEndpoint(assistant.assistantId, { url: receiver.url });
  const sessions = await sessionsOf(assistant);
  const masters = await Promise.all(PARTITIONS.map((tag) => cluster.findMaster(tag)));
  expect(new Set(masters).size).toBe(3);

  for (const message of ['one', 'two', 'three']) {
    const sent = sessions.map((session) => say(assistant, session, message));
    expect(await Promise.all(sent)).toEqual([200, 200, 200]);
  }
  await receiver.waitFor((all) => sessions.every((one) => announced(all, one).length >= 3));
  for (const one of sessions) expect(announced(receiver.received, one)).toEqual(['one', 'two', 'three']);
  await receiver.close();
});

test('the calls of several channels are kept, although their lists are on several masters', async () => {
  const assistants = await Promise.all(Array.from({ length: 4 }, () => anAssistant(stack)));
  const call = async ({ assistantId }: TestAssistant): Promise<number> => {
    await stack.service.assistants.setChannel(assistantId, { connected: true, token: 'verify-me' });
    const path = `/api/v1/channels/webhook/${assistantId}`;
    return (await request(`${stack.url}${path}`, { body: aTurn(), bearer: 'verify-me' })).status;
  };

  expect(await Promise.all(assistants.map(call))).toEqual([200, 200, 200, 200]);

  const { redis } = stack.service;
  await eventually(async () => {
    const kept = assistants.map(({ assistantId }) => redis.llen(`p:channel-calls:${assistantId}`));
    expect(await Promise.all(kept)).toEqual([1, 1, 1, 1]);
  });
});

test('the doctor reads all masters, and says that they need more partitions', async () => {
  const { stdout } = await runAdmin({ ...stack.env, PARTITIONS: '1' }, ['doctor', '--json']);

  const report = JSON.parse(stdout) as { redis: unknown; problems: string[] };
  expect(report.redis).toMatchObject({ reachable: true, masters: 3, maxmemoryPolicy: 'noeviction' });
  expect(report.problems).toContain('PARTITIONS is 1, so some of the 3 masters of Redis get no queue.');
});

/** An assistant whose rate limit is counted on this node. */
const anAssistantLimitedOn = async (node: unknown): Promise<TestAssistant> => {
  const assistant = await anAssistant(stack);
  const isThere = (await cluster.findMaster(`p:limit:key:${assistant.keyId}`)) === node;
  return isThere ? assistant : anAssistantLimitedOn(node);
};

test('when a master dies, other partitions answer at once, and its replica takes over without loss or repetition', async () => {
  const master = await cluster.findMaster(PARTITIONS[0]!);
  const assistant = await anAssistantLimitedOn(master);
  const receiver = await openReceiver();
  await stack.service.endpoints.addEndpoint(assistant.assistantId, { url: receiver.url });
  const [hit, ...others] = (await sessionsOf(assistant)) as [string, ...string[]];
  for (const session of [hit, ...others]) expect(await say(assistant, session, 0)).toBe(200);

  await master?.kill();
  const unanswered = eventually(async () => expect(await say(assistant, hit, 1)).toBe(200));
  let turn = 0;
  let promoted: unknown;
  do {
    turn += 1;
    const sent = others.map((session) => say(assistant, session, turn));
    expect(await Promise.all(sent)).toEqual([200, 200]);
    await sleep(100); // the pace of these visitors
    promoted = await cluster.findMaster(PARTITIONS[0]!);
  } while (promoted === undefined);
  await unanswered;
  expect(promoted).not.toBe(master);
  expect(await say(assistant, hit, 2)).toBe(200);

  const said = (last: number): string[] => Array.from({ length: last + 1 }, (_, nth) => String(nth));
  await receiver.waitFor((all) => announced(all, hit).length >= 3);
  for (const one of others) await receiver.waitFor((all) => announced(all, one).length > turn);
  expect(announced(receiver.received, hit)).toEqual(said(2));
  for (const one of others) expect(announced(receiver.received, one)).toEqual(said(turn));
  await receiver.close();
});
