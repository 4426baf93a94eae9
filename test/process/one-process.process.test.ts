import { randomUUID } from 'node:crypto';
import { expect, onTestFinished, test } from 'vitest';
import type { KnowledgeInput } from '../../src/assistants/knowledge/entry.ts';
import { openAll } from '../../workers/all/all.ts';
import { anAssistant, anEntry, aTurn, type ChatBody, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { countOf, expectAllEventsEnded, expectEachOnce, startLoad } from '../support/load.ts';
import { atPace } from '../support/pace.ts';
import { type Kind, type RealProcess, startRealProcess } from '../kit/processes.ts';
import { openProvider, replyWith } from '../kit/provider.ts';
import { openReceiver, type ReceiverOptions } from '../kit/receiver.ts';
import { openRelayed } from '../support/relayed.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const STOPPED_WITHIN_MS = 10_000;
/** Of a conversation with two messages. */
const EVENTS = 3;

// The stack is for the set-up only: it has no worker, and its API gets no message.
const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });

const start = async (kind: Kind, env: Record<string, string> = {}, port?: number): Promise<RealProcess> => {
  const started = await startRealProcess(kind, { ...stack.env, ...env }, { port });
  onTestFinished(() => started.kill());
  return started;
};

/** An assistant with an endpoint, whose events a receiver checks. */
const anAnnouncedAssistant = async (
  options: Pick<ReceiverOptions, 'respond'> = {},
  knowledge: KnowledgeInput[] = [anEntry()],
) => {
  const assistant = await anAssistant(stack, { knowledge });
  const secrets: string[] = [];
  const receiver = await openReceiver({ ...options, secret: secrets });
  onTestFinished(receiver.close);
  const { secret } = await stack.service.endpoints.addEndpoint(assistant.assistantId, { url: receiver.url });
  secrets.push(secret);
  const say = (url: string, turn: Record<string, unknown>) =>
    request<ChatBody>(`${url}/api/v1/chat`, { body: turn, bearer: assistant.apiKey });
  return { ...assistant, receiver, say };
};

/** How many jobs of a queue have been done. Work that stays in the process has none. */
const countDone = (queue: string): Promise<number> =>
  stack.service.redis.zcard(`${stack.service.partitions.tags[0]}:${queue}:completed`);

type Ready = { ready: boolean; checks: Record<string, string> };
const readinessOf = async (url: string): Promise<Ready> => (await request<Ready>(`${url}/readyz`)).body;

test('one process answers a chat, delivers its events once and signed, and counts all of it', async () => {
  const { receiver, say } = await anAnnouncedAssistant();
  const { url, said } = await start('all', { LOG_LEVEL: 'info' });

  const { status, body } = await say(url, aTurn());

  expect([status, body.reply]).toEqual([200, 'We are open from 9 to 5.']);
  await receiver.waitFor((all) => all.length >= 2);
  expect(receiver.received.map(({ json }) => (json as { event: string }).event)).toEqual([
    'conversation.created',
    'message.received',
  ]);
  expect(receiver.received.map(({ verdict }) => verdict?.ok)).toEqual([true, true]);
  await eventually(async () => {
    const metrics = await (await fetch(`${url}/metrics`)).text();
    expect(metrics).toContain('parley_turns_total{outcome="answered"} 1');
    expect(metrics).toContain('parley_deliveries_total{outcome="delivered",kind="none"} 2');
    expect(metrics).toContain('parley_turn_request_seconds_count{status="200"} 1');
  });
  expect([await countDone('turns'), await countDone('deliveries')]).toEqual([0, 0]);
  const lines = said.map((line) => JSON.parse(line) as { name: string });
  expect(new Set(lines.map(({ name }) => name))).toEqual(new Set(['parley']));
});

test('a sweep that is stuck makes the one process unready until it goes on', async () => {
  let holding = false;
  const released = Promise.withResolvers<void>();
  const reads = ['find', 'aggregate'];
  const opening = await openRelayed(
    stack,
    {
      holds: ({ name, collection }) =>
        holding && collection === 'conversations' && reads.includes(name) ? released.promise : null,
    },
    { sweepEveryMs: 400, sweepStuckMs: 1_000 },
  );
  const { port } = await openAll(opening);
  const url = `http://127.0.0.1:${port}`;
  const waitUntilReady = () => eventually(async () => expect(await readinessOf(url)).toMatchObject({ ready: true }));
  await waitUntilReady();

  holding = true;

  await eventually(async () =>
    expect(await readinessOf(url)).toMatchObject({ ready: false, checks: { mongodb: 'ok', work: 'a sweep is stuck' } }),
  );
  holding = false;
  released.resolve();
  await waitUntilReady();
});

test('on SIGTERM the one process refuses new turns, answers those it has accepted, delivers, and ends with 0 in time', async () => {
  const delivered = Promise.withResolvers<void>();
  const { assistantId, receiver, say } = await anAnnouncedAssistant({
    respond: async (_request, nth) => {
      if (nth === EVENTS) await delivered.promise;
      return {};
    },
  });
  const provider = await openProvider();
  onTestFinished(provider.close);
  await stack.service.assistants.setEngine(assistantId, { kind: 'openai', baseUrl: provider.baseUrl, model: 'm' });
  const called = Promise.withResolvers<void>();
  const held = Promise.withResolvers<void>();
  provider.behave(async (wire, asked) => {
    called.resolve();
    await held.promise;
    replyWith('From nine', ' to five.')(wire, asked);
  });
  const running = await start('all', { SHUTDOWN_GRACE_MS: '1000' });
  const session_id = randomUUID();
  // The second turn becomes the head when the first one has ended, so a worker takes its job after the signal.
  const first = say(running.url, aTurn({ session_id, message: 'When are you open?' }));
  await called.promise;
  const second = say(running.url, aTurn({ session_id, message: 'And on Sundays?' }));
  await receiver.waitFor((all) => all.length === EVENTS);

  const since = performance.now();
  const stopped = running.kill('SIGTERM');
  await eventually(async () =>
    expect(await readinessOf(running.url)).toMatchObject({ ready: false, checks: { process: 'draining' } }),
  );
  const refused = await say(running.url, aTurn());
  held.resolve();
  const answers = await Promise.all([first, second]);
  delivered.resolve();
  await stopped;

  expect(refused.status).toBe(503);
  expect(answers.map(({ status, body }) => [status, body.reply])).toEqual([
    [200, 'From nine to five.'],
    [200, 'From nine to five.'],
  ]);
  expect([running.child.exitCode, running.describe()]).toEqual([0, expect.anything()]);
  expect(performance.now() - since).toBeLessThan(atPace(STOPPED_WITHIN_MS));
  const rows = await stack.service.mongo.collection('deliveries').find({ assistantId }).toArray();
  expect(rows.map(({ outcome }) => outcome)).toEqual(Array.from({ length: EVENTS }, () => 'delivered'));
});

test('after kills under load the next process answers every accepted turn once, and ends every event, none sent twice', async () => {
  const { assistantId, apiKey, receiver } = await anAnnouncedAssistant({}, []); // an unsure answer would hand over
  const { sessions, turns, kills, step } = sized({
    everyday: { sessions: 6, turns: 30, kills: 2, step: 15 },
    long: { sessions: 10, turns: 60, kills: 6, step: 60 },
  });
  // With room for one job, some of the work stays in the process, and some becomes jobs that outlive it.
  const env = { REPLY_CONCURRENCY: '1' };
  let running = await start('quickAll', env);
  const { url } = running;
  const port = Number(new URL(url).port);
  const load = startLoad(apiKey, { sessions, turns, url: () => url });

  for (let kill = 1; kill <= kills; kill += 1) {
    const before = countOf(load);
    await eventually(() => {
      if (countOf(load) - before < step) throw new Error(running.describe());
    });
    await running.kill();
    running = await start('quickAll', env, port);
  }
  await load.done;

  expect(await countDone('turns')).toBeGreaterThan(0);
  await expectEachOnce({ url, apiKey, load, turns });
  await expectAllEventsEnded(stack, { assistantId, receiver, total: sessions * (turns + 1) });
});
