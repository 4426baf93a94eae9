import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { TIMING } from '../../src/platform/process/time-limits.ts';
import { createTurnLeases } from '../../src/turns/leases.ts';
import { anAssistant, type ErrorBody } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { openReceiver } from '../kit/receiver.ts';
import { profileStatements } from '../support/profile.ts';
import { aScriptedEngine } from '../support/scripted-engine.ts';
import { sized } from '../support/size.ts';
import { openStack, useStack } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';

const { engine, hold, asked } = aScriptedEngine();

const stack = useStack({ engine, replyWorkers: 2, deliveryWorkers: 2 });

const readHead = async (sessionId: string) => {
  const row = await stack.service.mongo.collection('conversations').findOne({ sessionId });
  const turn = row?.waiting[0] as { turnId: string } | undefined;
  if (!row || !turn) throw new Error('no turn is waiting');
  return { key: String(row._id), turnId: turn.turnId };
};

const redisKey = (name: string, turnId: string) => `{${stack.env.REDIS_PREFIX}-0}:${name}:${turnId}`;

test('a turn answered by two workers at once is stored once, with one reply for its caller', async () => {
  const { chat, history } = await anAssistant(stack);
  for (let round = 0; round < sized({ everyday: 3, long: 10 }); round += 1) {
    const session_id = randomUUID();
    const message = `twice ${randomUUID()}`;
    const release = hold(message);
    const pending = chat({ session_id, message });
    const ref = await eventually(() => readHead(session_id));
    await eventually(() => expect(asked.filter((one) => one === message)).toHaveLength(1));

    // The first worker loses its lease, as after a long stop of its process. Another worker answers the turn.
    const lease = redisKey('lease', ref.turnId);
    const first = await stack.service.redis.get(lease);
    await eventually(async () => {
      // The first worker may have acquired it again.
      if ((await stack.service.redis.get(lease)) === first) {
        await stack.service.redis.del(lease);
        stack.service.turnQueue.enqueue(ref);
      }
      expect(asked.filter((one) => one === message)).toHaveLength(2);
    });
    release();
    const { body } = await pending;
    await chat({ session_id, message: 'the next' });

    const { body: record } = await history(body.conversationId);
    expect(record.messages.map(({ seq, role }) => [seq, role])).toEqual([
      [1, 'user'],
      [1, 'assistant'],
      [2, 'user'],
      [2, 'assistant'],
    ]);
    expect(record.messages[1]?.messageId).toBe(body.messageId);
  }
});

test('a lease that ran out while its owner stood still is acquired again, unless another worker has it', async () => {
  const { redis, partitions } = stack.service;
  const timing = { ...TIMING, turnLeaseRenewMs: 50 };
  const leases = createTurnLeases(redis, { partitions, worker: 'still', timing });
  const turn = { key: 'k', turnId: randomUUID() };
  const acquired = await leases.acquire(turn);
  const leaseIs = (token: string | undefined) =>
    eventually(async () => expect(await redis.get(redisKey('lease', turn.turnId))).toBe(token));

  await redis.del(redisKey('lease', turn.turnId));
  await leaseIs(acquired?.token);
  await redis.set(redisKey('lease', turn.turnId), 'of another', 'PX', 200);

  expect(await leases.acquire(turn)).toBeNull();
  await leaseIs(acquired?.token);
  leases.close();
});

test('a stream woken many times on two workers sends each event once', async () => {
  const { assistantId, chat } = await anAssistant(stack);
  const receiver = await openReceiver({
    // The receiver is so slow that every wake-up arrives while a send is in flight.
    respond: () => new Promise((resolve) => setTimeout(() => resolve({}), 30)),
  });
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const sessions = Array.from({ length: 10 }, () => randomUUID());

  await Promise.all(sessions.map((session_id) => chat({ session_id, message: 'hello' })));
  const rows = await stack.service.mongo.collection('conversations').find({ assistantId }).toArray();
  for (let wake = 0; wake < 20; wake += 1) {
    for (const { _id } of rows) stack.service.deliveryQueue.wake({ _id: String(_id), assistantId });
    await new Promise(setImmediate);
  }
  await Promise.all(sessions.map((session_id) => chat({ session_id, message: 'goodbye' })));
  const received = await receiver.waitFor(
    (all) => all.filter(({ json }) => JSON.stringify(json).includes('goodbye')).length === 10,
  );

  expect(received).toHaveLength(30);
  expect(new Set(received.map(({ headers }) => headers['x-factory-event-id'])).size).toBe(30);
  await receiver.close();
});

test('a turn that was started three times without an end fails, and a retry resumes it under its old id', async () => {
  const { assistantId, chat, history } = await anAssistant(stack);
  const receiver = await openReceiver();
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const session_id = randomUUID();
  const head = `head ${randomUUID()}`;
  const message = `poison ${randomUUID()}`;
  const release = hold(head);
  const first = chat({ session_id, message: head });
  await eventually(() => readHead(session_id));
  const pending = chat({ session_id, message });
  const turn = await eventually(async () => {
    const row = await stack.service.mongo.collection('conversations').findOne({ sessionId: session_id });
    expect(row?.waiting).toHaveLength(2);
    return row?.waiting[1] as { turnId: string; messageId: string };
  });
  // Sets the state after three workers have died while they answered the turn.
  await stack.service.redis.set(redisKey('tries', turn.turnId), '3');

  release();
  const failed = (await pending) as unknown as { status: number; body: ErrorBody };
  const { body: ok } = await first;
  const between = await chat({ session_id, message: 'in between' });
  const resumed = await chat({ session_id, message });

  expect(failed).toMatchObject({ status: 500, body: { error: { code: 'internal_error' } } });
  expect(between.status).toBe(200);
  expect(resumed.body.reply).toBe(`echo: ${message}`);
  const { body: record } = await history(ok.conversationId);
  expect(record.messages.map(({ seq, role, content }) => [seq, role, content])).toEqual([
    [1, 'user', head],
    [1, 'assistant', `echo: ${head}`],
    [2, 'user', message],
    [3, 'user', 'in between'],
    [3, 'assistant', 'echo: in between'],
    [4, 'assistant', `echo: ${message}`],
  ]);
  expect(record.messages[2]).toMatchObject({ messageId: turn.messageId, turnId: turn.turnId });
  expect(record.messages[5]?.turnId).toBe(turn.turnId);
  await chat({ session_id, message: 'the end' });
  const received = await receiver.waitFor((all) => JSON.stringify(all.at(-1)?.json).includes('the end'));
  expect(received.filter(({ json }) => JSON.stringify(json).includes(message))).toHaveLength(1);
  await receiver.close();
});

test('a turn that is resumed behind another does not make the head look newer', async () => {
  const { chat } = await anAssistant(stack);
  const session_id = randomUUID();
  const [head, message, next] = ['head', 'poison', 'next'].map((word) => `${word} ${randomUUID()}`) as [
    string,
    string,
    string,
  ];
  const waiting = async (count: number) => {
    const row = await stack.service.mongo.collection('conversations').findOne({ sessionId: session_id });
    expect(row?.waiting).toHaveLength(count);
    return row as unknown as { headSince: Date; waiting: { turnId: string }[] };
  };
  const [release, releaseNext] = [hold(head), hold(next)];
  const answers = [chat({ session_id, message: head })];
  await eventually(() => waiting(1));
  answers.push(chat({ session_id, message }));
  const row = await eventually(() => waiting(2));
  await stack.service.redis.set(redisKey('tries', row.waiting[1]?.turnId ?? ''), '3');
  release();
  expect((await answers[1])?.status).toBe(500);
  answers.push(chat({ session_id, message: next }));
  const { headSince } = await eventually(() => waiting(1));

  const resumed = chat({ session_id, message });
  const after = await eventually(() => waiting(2));
  releaseNext();

  expect(after.headSince).toEqual(headSince);
  expect((await resumed).status).toBe(200);
});

test('a poisoned job is refused and does no harm', async () => {
  const { chat } = await anAssistant(stack);
  const { Queue } = await import('bullmq');
  const prefix = `{${stack.env.REDIS_PREFIX}-0}`;
  const queues = ['turns', 'deliveries'].map((name) => new Queue(name, { connection: stack.service.redis, prefix }));

  for (const queue of queues) {
    const jobs = [{ turns: 'all of them' }, { turns: [{ key: { $ne: 1 }, turnId: 7 }] }, { conversations: [1] }, null];
    for (const data of jobs) await queue.add('poison', data);
  }
  await eventually(async () => {
    expect(await queues[0]?.getFailedCount()).toBe(4);
  });

  expect((await chat({ session_id: randomUUID(), message: 'still alive?' })).status).toBe(200);
  expect((await queues[0]?.getFailed())?.every(({ attemptsMade }) => attemptsMade === 1)).toBe(true);
  await Promise.all(queues.map((queue) => queue.close()));
});

test('a job for a turn that is not there, not the head, or long answered changes nothing', async () => {
  const { chat, history } = await anAssistant(stack);
  const session_id = randomUUID();
  const { body } = await chat({ session_id, message: 'hello' });
  const { body: before } = await history(body.conversationId);
  const row = await stack.service.mongo.collection('conversations').findOne({ sessionId: session_id });
  const key = String(row?._id);

  for (const turnId of [before.messages[0]?.turnId as string, randomUUID()])
    stack.service.turnQueue.enqueue({ key, turnId });
  stack.service.turnQueue.enqueue({ key: '0'.repeat(32), turnId: randomUUID() });
  await chat({ session_id, message: 'and again' });

  const { body: after } = await history(body.conversationId);
  expect(after.messages.slice(0, 2)).toEqual(before.messages);
  expect(after.messages).toHaveLength(4);
});

test('a stray job for a turn that is not the head does not delay it later', async () => {
  const { chat } = await anAssistant(stack);
  const session_id = randomUUID();
  const head = `head ${randomUUID()}`;
  const release = hold(head);
  const first = chat({ session_id, message: head });
  await eventually(() => readHead(session_id));
  const second = chat({ session_id, message: 'behind' });
  const behind = await eventually(async () => {
    const row = await stack.service.mongo.collection('conversations').findOne({ sessionId: session_id });
    expect(row?.waiting).toHaveLength(2);
    return { key: String(row?._id), turnId: row?.waiting[1].turnId as string };
  });

  stack.service.turnQueue.enqueue(behind);
  // The turn of another session comes later in the same queue. When it is answered, the stray job has been processed.
  await chat({ session_id: randomUUID(), message: 'meanwhile' });
  const releasedAt = performance.now();
  release();
  await Promise.all([first, second]);

  expect(performance.now() - releasedAt).toBeLessThan(atPace(1_500));
});

test('a reply interrupted by a stopping worker is made by another worker and is no apology', async () => {
  const own = await openStack({ replyWorkers: 0, deliveryWorkers: 0 });
  const begun = Promise.withResolvers<void>();
  const stopped = await own.startReplyWorker({
    name: 'hanging',
    reply: ({ signal }) => {
      begun.resolve();
      return new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)));
    },
  });
  const { chat, history } = await anAssistant(own);
  const pending = chat({ session_id: randomUUID(), message: 'hello' });
  await begun.promise;

  await stopped.close();
  await own.startReplyWorker(engine);
  const { body } = await pending;

  expect(body.reply).toBe('echo: hello');
  expect((await history(body.conversationId)).body.messages).toHaveLength(2);
  await own.close();
});

test('turns that found no place in the full line of a provider are not read each time a sweep finds them', async () => {
  const own = await openStack({ replyWorkers: 0, deliveryWorkers: 0 });
  await own.startReplyWorker({
    name: 'hanging',
    reply: ({ signal }) =>
      new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error))),
  });
  const { assistantId, chat } = await anAssistant(own);
  await chat({ session_id: randomUUID(), message: 'hello' }, { headers: { Prefer: 'respond-async' } });
  const { mongo, turnQueue, queues } = own.service;
  const { _id: _, ...stored } = (await mongo.collection('conversations').findOne({ assistantId }))!;
  const heads = Array.from({ length: 1_300 }, () => ({ key: randomUUID().replaceAll('-', ''), turnId: randomUUID() }));
  await mongo.collection<{ _id: string }>('conversations').insertMany(
    heads.map(({ key, turnId }) => ({
      ...stored,
      _id: key,
      conversationId: randomUUID(),
      sessionId: key,
      headSince: new Date(Date.now() + 3_600_000), // only the test's own sweep finds it
      waiting: [{ ...stored['waiting'][0], turnId }],
    })),
  );
  const partitions = [...new Set(heads.map(({ key }) => queues.turns.of(key)))];
  const countDone = async () => {
    const counts = await Promise.all(partitions.map((queue) => queue.getCompletedCount()));
    return counts.reduce((sum, count) => sum + count, 0);
  };
  const wake = async () => {
    const before = await countDone();
    for (const head of heads) turnQueue.enqueue({ ...head, assistantId });
    await eventually(async () => expect(await countDone()).toBeGreaterThanOrEqual(before + heads.length / 16));
  };
  await wake();

  const statements = await profileStatements(own, wake);

  const read = statements.filter(({ command }) => 'waiting' in ((command['projection'] as object) ?? {}));
  expect(read.reduce((sum, { nreturned = 0 }) => sum + nreturned, 0)).toBeLessThan(100);
  await own.close();
});

test('a malformed reply on the channel is logged, and the process still answers', async () => {
  const { chat } = await anAssistant(stack);
  const channels = (await stack.service.redis.pubsub('CHANNELS', '*:replies:*')) as string[];
  const own = channels.filter((channel) => channel.includes(stack.env.REDIS_PREFIX as string));
  expect(own.length).toBeGreaterThan(0);

  for (const channel of own) {
    for (const text of ['no json', '{}', '[{"turnId":7}]']) await stack.service.redis.publish(channel, text);
  }

  expect((await chat({ session_id: randomUUID(), message: 'still there?' })).status).toBe(200);
  expect(stack.logs.some(({ msg }) => msg === 'malformed replies were published')).toBe(true);
});
