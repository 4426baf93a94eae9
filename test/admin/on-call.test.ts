import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { expect, onTestFinished, test } from 'vitest';
import { freePort } from '../../scripts/services.ts';
import { runAdmin } from '../support/admin.ts';
import { anAssistant, aTurn, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { openReceiver } from '../kit/receiver.ts';
import { longTest } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({
  replyWorkers: 0,
  deliveryWorkers: 0,
  env: { REPLY_TIMEOUT_MS: '200' },
  timing: { alertEveryMs: 200, alertEndsAfterMs: 300, workerBeatMs: 200 },
});

type Queue = {
  name: string;
  jobs: { waiting: number } | null;
  waitingSince: string | null;
  workers: { silent: boolean; pid: number; heardAt: string }[];
  perMinute: number | null;
  minutes: { at: string; ended: number; p95: number | null }[];
};
type Page = {
  queues: Queue[];
  problems: { queue: string | null; problem: string; remedy: string }[];
  alerts: { kind: string; target: string; remedy: string; details: Record<string, unknown> }[];
};
type Work = {
  kind: string;
  id: string;
  assistantId: string;
  conversationId: string | null;
  state: string;
  why: string;
  next: string;
  holder: { pid: number | null; until: string | null } | null;
  job: { queue: string; page: string } | null;
};

/** As if this worker had been stopped, or killed, so long ago. */
const silence = async (queue: string, forMs: number, host = 'elsewhere'): Promise<void> => {
  const workers = stack.service.mongo.collection('workers');
  await workers.updateOne(
    { _id: `frozen:${queue}` as never },
    {
      $set: {
        worker: 'frozen',
        queue,
        host,
        pid: 7,
        startedAt: new Date(Date.now() - forMs),
        at: new Date(Date.now() - forMs),
        minutes: [],
      },
    },
    { upsert: true },
  );
};

test('a frozen worker is silent on the page, in the doctor, in metrics and in an alert with queue, number and remedy', async () => {
  const owner = await anOperator(stack);
  const worker = await stack.startReplyWorker();
  await silence('turns', 75_000);

  const page = await eventually(async () => {
    const { body } = await owner.get<Page>('/queues');
    expect(body.alerts.map(({ kind }) => kind)).toContain('worker_silent');
    return body;
  });
  const { stdout } = await runAdmin(stack.env, ['doctor']);
  const metrics = await (await fetch(`${stack.url}/metrics`)).text();

  const turns = page.queues.find(({ name }) => name === 'turns');
  expect(turns?.workers.map(({ silent, pid }) => [silent, pid])).toEqual([
    [true, 7],
    [false, process.pid],
  ]);
  const problem = expect.stringMatching(
    /^1 of 2 workers of the queue turns are silent, last heard: elsewhere, process 7, 7\d s ago\.$/,
  );
  expect(page.problems).toContainEqual({ queue: 'turns', problem, remedy: expect.stringContaining('restart') });
  expect(stdout).toContain('1 of 2 workers of the queue turns are silent');
  expect(stdout).toMatch(/^turns +1, 1 silent/m);
  expect(metrics).toContain('parley_queue_workers{queue="turns",state="heard"} 1');
  expect(metrics).toContain('parley_queue_workers{queue="turns",state="silent"} 1');
  expect(page.alerts).toContainEqual(
    expect.objectContaining({
      kind: 'worker_silent',
      target: 'turns',
      remedy: expect.stringContaining('Restart'),
      details: { silent: 1, workers: 1, lastHeard: expect.any(String) },
    }),
  );

  await silence('turns', 20 * 60_000);
  await eventually(async () => {
    const { body } = await owner.get<Page>('/queues');
    expect(body.alerts.map(({ kind }) => kind)).not.toContain('worker_silent');
  });
  // It was killed, and a worker that started at its host later has replaced it.
  await silence('turns', 75_000, hostname());
  await eventually(async () => {
    const { body } = await owner.get<Page>('/queues');
    expect(body.queues.find(({ name }) => name === 'turns')?.workers.map(({ pid }) => pid)).toEqual([process.pid]);
  });

  await worker.close();
  await eventually(async () => {
    const { body } = await owner.get<Page>('/queues');
    expect(body.queues.find(({ name }) => name === 'turns')?.workers).toEqual([]);
  });
});

test('a worker that lives is listed although more than a thousand have died within the hour', async () => {
  const owner = await anOperator(stack);
  const worker = await stack.startReplyWorker();
  const at = new Date(Date.now() - 30 * 60_000);
  const dead = Array.from({ length: 1_000 }, (_, nth) => {
    return {
      _id: `dead-${nth}:sources` as never,
      worker: `dead-${nth}`,
      queue: 'sources',
      host: 'loop',
      pid: nth,
      startedAt: at,
      at,
      minutes: [],
    };
  });
  const workers = stack.service.mongo.collection('workers');
  onTestFinished(async () => {
    await workers.deleteMany({ host: 'loop' });
    await worker.close();
  });
  await workers.insertMany(dead);

  const { body } = await owner.get<Page>('/queues');

  expect(body.queues.find(({ name }) => name === 'turns')?.workers.map(({ pid }) => pid)).toEqual([process.pid]);
});

longTest(
  'a worker that is frozen by SIGSTOP is silent within 75 seconds, and is heard again when it goes on',
  async () => {
    const owner = await anOperator(stack);
    const child = spawn(process.execPath, ['workers/reply/main.ts'], {
      env: { PATH: process.env['PATH'] ?? '', ...stack.env, SEMANTIC: 'off', WORKER_HEALTH_PORT: '0' },
      stdio: 'ignore',
    });
    onTestFinished(() => void child.kill('SIGKILL'));
    const silentOf = async (): Promise<boolean | undefined> => {
      const { body } = await owner.get<Page>('/queues');
      const turns = body.queues.find(({ name }) => name === 'turns');
      return turns?.workers.find(({ pid }) => pid === child.pid)?.silent;
    };
    await eventually(async () => expect(await silentOf()).toBe(false));

    child.kill('SIGSTOP');
    await eventually(async () => expect(await silentOf()).toBe(true), 75_000);
    child.kill('SIGCONT');

    await eventually(async () => expect(await silentOf()).toBe(false));
  },
);

test('what workers ended in a minute is told, also after Redis has lost everything', async () => {
  const owner = await anOperator(stack);
  const minute = Math.floor(Date.now() / 60_000) * 60_000;
  const counts = [0, 9, 0, 0, 0, 0, 1, 0, 0, 0, 0];
  const workers = stack.service.mongo.collection('workers');
  await silence('deliveries', 1_000);
  await workers.updateOne(
    { _id: 'frozen:deliveries' as never },
    { $set: { minutes: [60, 2].map((ago) => ({ at: new Date(minute - ago * 60_000), counts })) } },
  );
  const { redis } = stack.service;
  await redis.del(...(await redis.keys(`*${stack.env['REDIS_PREFIX']}*`)));

  const { body } = await owner.get<Page>('/queues');

  expect(body.queues.find(({ name }) => name === 'deliveries')).toMatchObject({
    perMinute: 2,
    p95: 10,
    minutes: [
      { at: new Date(minute - 60 * 60_000).toISOString(), ended: 10 },
      { at: new Date(minute - 2 * 60_000).toISOString(), ended: 10, p95: 10 },
    ],
  });
});

test('work is found by each of its ids: where it is, why, who has it and what happens next', async () => {
  const owner = await anOperator(stack);
  const { assistantId, apiKey } = await anAssistant(stack);
  const { endpoint } = await stack.service.endpoints.addEndpoint(assistantId, { url: 'http://127.0.0.1:9999/hook' });
  const session_id = `crm ${randomUUID()}`;
  const send = (message: string) =>
    request<{ turnId: string; conversationId: string }>(`${stack.url}/api/v1/chat`, {
      bearer: apiKey,
      body: aTurn({ session_id, message }),
      headers: { Prefer: 'respond-async' },
    });
  const { turnId, conversationId } = (await send('One')).body;
  const { turnId: second } = (await send('Two')).body;
  const find = async (search: string): Promise<Work[]> => {
    const { status, body } = await owner.get<{ work: Work[] }>(`/work?search=${encodeURIComponent(search)}`);
    expect(status).toBe(200);
    return body.work;
  };

  const bySession = await find(session_id);
  expect(bySession.map(({ kind, id }) => [kind, id]).slice(0, 3)).toEqual([
    ['conversation', conversationId],
    ['turn', turnId],
    ['turn', second],
  ]);
  expect(await find(conversationId)).toEqual(bySession);
  for (const short of [conversationId.slice(0, 13), `${conversationId.slice(0, 13)}-…`])
    expect(await find(short)).toEqual(bySession);
  const head = await eventually(async () => {
    const [found] = await find(turnId);
    expect(found?.job).toMatchObject({ queue: 'turns' });
    return found;
  });
  expect(head).toMatchObject({
    kind: 'turn',
    state: 'waits',
    why: expect.stringContaining('its job waits'),
    holder: null,
  });
  const cookie = { Cookie: owner.cookie() ?? '' };
  expect((await fetch(`${stack.url}${head?.job?.page}`, { headers: cookie })).status).toBe(200);
  expect(await find(second)).toMatchObject([{ state: 'waits', why: expect.stringContaining('1 are before it') }]);

  const [created] = bySession.filter(({ kind }) => kind === 'delivery');
  const eventId = created?.id.split(':')[0] ?? '';
  expect(await find(eventId)).toMatchObject([{ kind: 'delivery', id: created?.id, state: 'waits', conversationId }]);
  expect(await find(created?.id ?? '')).toMatchObject([
    { next: expect.stringContaining('A delivery worker takes it') },
  ]);
  const { sourceId } = await stack.service.sources.add(assistantId, { kind: 'page', url: 'http://127.0.0.1:9/' });
  expect(await find(sourceId)).toMatchObject([{ kind: 'source', id: sourceId, assistantId }]);
  expect(await find(randomUUID())).toEqual([]);

  const key = conversationId.replace('-', '').slice(0, 12);
  const whole = await stack.service.mongo.collection<{ _id: string }>('conversations').findOne({ _id: { $gte: key } });
  const turn = { key: whole?._id ?? '', turnId };
  const lease = await stack.service.leases.acquire(turn);
  expect(await find(turnId)).toMatchObject([
    { state: 'is being answered', holder: { until: expect.any(String) }, next: expect.stringContaining('another one') },
  ]);
  stack.service.leases.release(turn, lease?.token ?? '', true);

  await stack.service.endpoints.updateEndpoint(endpoint.endpointId, { ratePerSecond: 2 });
  expect(await find(created?.id ?? '')).toMatchObject([{ why: expect.stringContaining('at most 2 events a second') }]);
  await stack.service.endpoints.setEnabled(endpoint.endpointId, false);
  expect(await find(created?.id ?? '')).toMatchObject([{ why: expect.stringContaining('is off') }]);
});

test('an event whose endpoint cannot be reached says since when, and when it is tried again', async () => {
  const owner = await anOperator(stack);
  const { assistantId, apiKey } = await anAssistant(stack);
  const url = `http://127.0.0.1:${await freePort()}/hook`;
  await stack.service.endpoints.addEndpoint(assistantId, { url });
  const worker = await stack.startDeliveryWorker();
  onTestFinished(() => worker.close());
  const send = () =>
    request<{ conversationId: string }>(`${stack.url}/api/v1/chat`, {
      bearer: apiKey,
      body: aTurn(),
      headers: { Prefer: 'respond-async' },
    });

  const sent = [await send(), await send(), await send(), await send()];

  const waits = expect.objectContaining({
    kind: 'delivery',
    state: 'waits',
    why: expect.stringContaining('was delivered since 20'),
    next: expect.stringContaining('every 30 s'),
  });
  await eventually(async () => {
    const found = sent.map(({ body }) => owner.get<{ work: Work[] }>(`/work?search=${body.conversationId}`));
    expect((await Promise.all(found)).flatMap(({ body }) => body.work)).toContainEqual(waits);
  });
});

test('ended work says how it ended, and nobody but owners may look', async () => {
  const owner = await anOperator(stack);
  const agent = await anOperator(stack, 'agent');
  const receiver = await openReceiver();
  const { assistantId, apiKey } = await anAssistant(stack);
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const workers = [await stack.startReplyWorker(), await stack.startDeliveryWorker()];
  const headers = { Prefer: 'respond-async' };
  await request(`${stack.url}/api/v1/chat`, { bearer: apiKey, body: aTurn(), headers });
  await receiver.waitFor((all) => all.length >= 2);
  const [first] = receiver.received;
  const { event_id: eventId, payload } = first!.json as { event_id: string; payload: { conversation_id: string } };
  const id = payload.conversation_id;

  await eventually(async () => {
    const { body: found } = await owner.get<{ work: Work[] }>(`/work?search=${eventId}`);
    expect(found.work).toMatchObject([{ kind: 'delivery', state: 'delivered', next: 'Nothing.' }]);
  });
  const whole = await eventually(async () => {
    const { body } = await owner.get<{ work: Work[] }>(`/work?search=${id}`);
    expect(body.work.length).toBe(1);
    return body;
  });
  expect(whole.work).toMatchObject([
    { kind: 'conversation', state: 'open', why: 'Turns that wait: 0. Events to be sent: 0.' },
  ]);
  expect((await agent.get('/queues')).status).toBe(403);
  expect((await agent.get(`/work?search=${eventId}`)).status).toBe(403);
  await receiver.close();
  await Promise.all(workers.map((one) => one.close()));
});
