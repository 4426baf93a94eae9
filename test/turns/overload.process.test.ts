import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { anAssistant, aTurn, request, type TestAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { problemOf } from '../support/problem.ts';
import { sized } from '../support/size.ts';
import { openStack, type Stack, useStack } from '../support/stack.ts';

/** So few turns without a reply never stop others, however long they wait. */
const FEW = 100;
const MANY = 300;
const SLOW_FOR_S = sized({ everyday: 1, long: 3 });
const WAITERS = sized({ everyday: 30, long: 60 });
const ANSWERED_WITHIN_MS = 40_000;
const NEW_CONNECTIONS = 700;
/** At once, each in a session of its own, and some of them as large as a message can be. */
const CROWD = sized({ everyday: { sessions: 60, largest: 2 }, long: { sessions: 500, largest: 5 } });
const IDLE = sized({ everyday: 60, long: 300 });
/** Callers without a key, who send the next request as soon as the last one is answered. */
const STRANGERS = sized({ everyday: 150, long: 300 });
/** TCP repeats a dropped first packet after this time. */
const FIRST_RETRANSMISSION_MS = 1_000;

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0, timing: { checkStoreAfterMs: 500 } });

/** Accepts turns one after the other, each in its own session, so that each has its own job. */
const accept = async ({ chat }: TestAssistant, turns: number): Promise<void> => {
  for (let count = 0; count < turns; count += 1) {
    const turn = { session_id: randomUUID(), message: `question ${count}` };
    expect((await chat(turn, { headers: { Prefer: 'respond-async' } })).status).toBe(202);
  }
};

const metric = async ({ url }: Stack, series: string): Promise<number> => {
  const text = await (await fetch(`${url}/metrics`)).text();
  return Number(
    text
      .split('\n')
      .find((line) => line.startsWith(`${series} `))
      ?.split(' ')[1] ?? 0,
  );
};

const untilOldestHasWaited = (on: Stack, seconds: number): Promise<void> =>
  eventually(async () => expect(await metric(on, 'parley_queue_age_seconds{queue="turns"}')).toBeGreaterThan(seconds));

test('callers who wait long are looked up together', async () => {
  const { chat } = await anAssistant(stack);
  const { service } = stack;
  const answers = Array.from({ length: WAITERS }, (_, number) => chat(aTurn({ message: `question ${number}` })));
  await eventually(async () =>
    expect(await service.mongo.collection('conversations').countDocuments()).toBeGreaterThanOrEqual(WAITERS),
  );
  await service.mongo.db?.command({ profile: 2 });

  const count = await eventually(async () => {
    const reads = await service.mongo.collection('system.profile').find({ 'command.find': 'conversations' }).toArray();
    const ids = reads.flatMap(
      ({ command }) => (command as { filter: { _id: { $in?: string[] } } }).filter._id.$in ?? [],
    );
    expect(new Set(ids).size).toBe(WAITERS);
    return reads.length;
  });

  expect(count).toBeLessThan(WAITERS / 2);
  await service.mongo.db?.command({ profile: 0 });
  const worker = await stack.startReplyWorker();
  expect((await Promise.all(answers)).map(({ status }) => status)).toEqual(answers.map(() => 200));
  await worker.close();
});

test('a crowd of new connections is not dropped', async () => {
  const { port } = new URL(stack.url);

  // With too short a queue of the kernel, every such crowd is too slow. On a busy machine, only some are.
  await eventually(async () => {
    const startedAt = performance.now();
    const sockets = Array.from({ length: NEW_CONNECTIONS }, () => connect(Number(port), '127.0.0.1'));
    const times = await Promise.all(
      sockets.map(async (socket) => {
        await once(socket, 'connect');
        return performance.now() - startedAt;
      }),
    );
    for (const socket of sockets) socket.destroy();
    expect(Math.max(...times)).toBeLessThan(FIRST_RETRANSMISSION_MS);
  });
});

test(`${CROWD.sessions} sessions and ${CROWD.largest} of the largest messages at once are answered once each, beside ${IDLE} idle connections`, async () => {
  const { chat, assistantId } = await anAssistant(stack);
  const { port } = new URL(stack.url);
  const idle = Array.from({ length: IDLE }, () => connect(Number(port), '127.0.0.1'));
  const worker = await stack.startReplyWorker();
  const turns = [
    ...Array.from({ length: CROWD.sessions }, (_, number) => aTurn({ message: `question ${number}`, language: 'en' })),
    ...Array.from({ length: CROWD.largest }, (_, number) => aTurn({ message: `ก${'ขค'.repeat(3_999)}${number}` })),
  ];

  // On a slow machine, some are refused with 503 at first.
  await Promise.all(
    turns.map((turn) => eventually(async () => expect((await chat(turn)).status).toBe(200), ANSWERED_WITHIN_MS)),
  );

  const stored = await stack.service.mongo.collection('conversations').find({ assistantId }).toArray();
  expect(stored.map(({ seq }) => seq as number)).toEqual(turns.map(() => 1));
  for (const socket of idle) socket.destroy();
  await worker.close();
});

test('senders that are slow do not count as turns that wait', async () => {
  const { apiKey, chat } = await anAssistant(stack);
  const { port } = new URL(stack.url);
  const head = `POST /api/v1/chat HTTP/1.1\r\nHost: slow\r\nAuthorization: Bearer ${apiKey}\r\nContent-Type: application/json\r\n`;
  const sockets = Array.from({ length: 2 * FEW }, () => {
    const socket = connect(Number(port), '127.0.0.1');
    socket.write(`${head}Content-Length: 99\r\n\r\n{`);
    return socket;
  });
  const openedAt = performance.now();
  const worker = await stack.startReplyWorker();

  await eventually(() => expect(performance.now() - openedAt).toBeGreaterThan(SLOW_FOR_S * 1000));
  const answers = await Promise.all(Array.from({ length: 5 }, () => chat(aTurn())));

  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
  for (const socket of sockets) socket.destroy();
  await worker.close();
});

test('requests without a key do not count as turns that wait', async () => {
  const { chat } = await anAssistant(stack);
  const worker = await stack.startReplyWorker();
  const body = JSON.stringify(aTurn());
  const { port } = new URL(stack.url);
  const head = 'POST /api/v1/chat HTTP/1.1\r\nHost: unknown\r\nContent-Type: application/json\r\n';
  const one = `${head}Content-Length: ${body.length}\r\n\r\n${body}`;
  const sockets = Array.from({ length: STRANGERS }, () => {
    const socket = connect(Number(port), '127.0.0.1');
    socket.on('data', () => socket.write(one));
    socket.write(one);
    return socket;
  });

  const statuses = [];
  for (let count = 0; count < sized({ everyday: 4, long: 10 }); count += 1) statuses.push((await chat(aTurn())).status);

  expect(statuses).toEqual(statuses.map(() => 200));
  for (const socket of sockets) socket.destroy();
  await worker.close();
});

test('turns are refused while many wait too long, and accepted again when these are answered', async () => {
  // Of its own: the gate of the other stack knows the turns of the tests above.
  const own = await openStack({ replyWorkers: 0, deliveryWorkers: 0 });
  onTestFinished(own.close);
  const assistant = await anAssistant(own);
  const stored = () => own.service.mongo.collection('conversations').countDocuments();
  const turn = { session_id: randomUUID(), message: 'one too many' };
  const later = { session_id: randomUUID(), message: 'after the overload' };
  const told = () => own.logs.filter(({ msg }) => String(msg).startsWith('overloaded')).length;
  await accept(assistant, FEW);
  await untilOldestHasWaited(own, SLOW_FOR_S);
  await accept(assistant, 1);

  const crowd = Array.from({ length: MANY }, () => assistant.chat(aTurn(), { headers: { Prefer: 'respond-async' } }));
  expect(new Set((await Promise.all(crowd)).map(({ status }) => status))).toEqual(new Set([202, 503]));
  const accepted = await stored();
  const channel = `/api/v1/channels/webhook/${assistant.assistantId}`;
  await own.service.assistants.setChannel(assistant.assistantId, { connected: true, token: null });
  const [refused, byChannel] = await Promise.all([
    assistant.chat(turn, { headers: { Prefer: 'respond-async' } }),
    request(`${own.url}${channel}`, { body: turn }),
  ]);
  const history = await assistant.call('/api/v1/conversations');

  expect(refused.headers.get('Retry-After')).toBe('1');
  expect([refused, byChannel].map(problemOf)).toEqual(['503 unavailable', '503 unavailable']);
  expect(history.status).toBe(200);
  expect(await metric(own, 'parley_refused_requests_total{limit="overload"}')).toBeGreaterThanOrEqual(2);
  expect(told()).toBe(1); // not once for each
  expect(await stored()).toBe(accepted);

  await own.startReplyWorker();
  await eventually(async () => expect((await assistant.chat(later)).status).toBe(200));
  const pending = { 'waiting.0': { $exists: true } };
  await eventually(async () =>
    expect(await own.service.mongo.collection('conversations').countDocuments(pending)).toBe(0),
  );
  expect(await stored()).toBe(accepted + 1);
});
