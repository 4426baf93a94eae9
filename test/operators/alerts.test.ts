import { randomUUID } from 'node:crypto';
import { createServer, type Server } from 'node:net';
import { setTimeout } from 'node:timers/promises';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { verifyWebhook } from '../../packages/client/src/verify-webhook.ts';
import type { AlertKind } from '../../src/alerts/alert.ts';
import type { alertOperations } from '../../src/insights/http/overview.ts';
import { anAssistant, aTurn, request, type TestAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator, type OperatorClient } from '../support/operator-client.ts';
import type { AnswerOf } from '../kit/operations.ts';
import { projectAtOnce } from '../support/projection.ts';
import { openProvider } from '../kit/provider.ts';
import { openReceiver, type Receiver } from '../kit/receiver.ts';
import { openStack, type Stack } from '../support/stack.ts';

const SECRET = 'whsec_of_the_operations_team';
const QUICK = {
  sweepEveryMs: 300,
  alertEveryMs: 100,
  alertEndsAfterMs: 200,
  alertReturnsWithinMs: 0, // queues that are stuck in one test are stuck in another
  alertEndpointFailingMs: 300,
  alertEventsLateMs: 600,
  alertQueueStuckMs: 600,
  alertSweepsStoppedMs: 900,
};

type Alerts = AnswerOf<typeof alertOperations.list>;
type Alert = Alerts['alerts'][number];
type Told = { event: string; alerts: Alert[] };

/** A mail server that keeps what it is sent, and does not refuse. */
const openMailbox = async (
  refuses: (mail: string) => boolean = () => false,
): Promise<{ url: string; mails: string[]; server: Server }> => {
  const mails: string[] = [];
  const server = createServer((socket) => {
    let mail: string | null = null;
    socket.on('error', () => undefined);
    socket.write('220 mail.example ready\r\n');
    socket.on('data', (chunk) => {
      for (const line of chunk.toString().split('\r\n')) {
        if (mail !== null) {
          if (line === '.') {
            const whole = mail.replaceAll('=\n', ''); // long lines are folded
            if (!refuses(whole)) mails.push(whole);
            mail = null;
            socket.write(refuses(whole) ? '554 spam\r\n' : '250 kept\r\n');
          } else mail += `${line}\n`;
        } else if (/^DATA/i.test(line)) {
          mail = '';
          socket.write('354 go on\r\n');
        } else if (/^QUIT/i.test(line)) socket.end('221 bye\r\n');
        else if (line !== '') socket.write('250 mail.example\r\n');
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as { port: number };
  return { url: `smtp://127.0.0.1:${port}`, mails, server };
};

let operations: Receiver;
let mailbox: Awaited<ReturnType<typeof openMailbox>>;
let stack: Stack;
let owner: OperatorClient;
let refusing = false;

beforeAll(async () => {
  operations = await openReceiver({ respond: () => ({ status: refusing ? 500 : 200 }) });
  mailbox = await openMailbox();
  stack = await openStack({
    apis: 2,
    replyWorkers: 0,
    deliveryWorkers: 0,
    timing: QUICK,
    env: {
      ALERT_WEBHOOK_URL: operations.url,
      ALERT_WEBHOOK_SECRET: SECRET,
      ALERT_SMTP_URL: mailbox.url,
      ALERT_EMAIL_FROM: 'parley@example.com',
      ALERT_EMAIL_TO: 'ops@example.com',
      PUBLIC_URL: 'https://parley.example.com',
    },
  });
  owner = await anOperator(stack);
});
afterAll(async () => {
  await stack.close();
  await operations.close();
  mailbox.server.close();
});

const list = async (query = '') => (await owner.get<Alerts>(`/alerts${query}`)).body;
const alertOf = async (kind: AlertKind, target: string): Promise<Alert | undefined> =>
  (await list('?limit=200')).alerts.find((one) => one.kind === kind && one.target === target);
const begun = (kind: AlertKind, target: string): Promise<Alert> =>
  eventually(async () => {
    const alert = await alertOf(kind, target);
    expect(alert).toMatchObject({ state: 'open', endedAt: null });
    return alert as Alert;
  });
const ended = (kind: AlertKind, target: string): Promise<unknown> =>
  eventually(async () =>
    expect(await alertOf(kind, target)).toMatchObject({ state: 'ended', endedAt: expect.any(String) }),
  );

const told = (): Told[] => operations.received.map(({ json }) => json as Told);
const toldOf = ({ alertId }: Alert): string[] =>
  told().flatMap(({ alerts }) => alerts.filter((one) => one.alertId === alertId).map(({ state }) => state));

const anEndpoint = async (respond: () => { status: number }) => {
  const assistant = await anAssistant(stack);
  const receiver = await openReceiver({ respond });
  const { endpoint } = await stack.service.endpoints.addEndpoint(assistant.assistantId, { url: receiver.url });
  return { assistant, receiver, endpointId: endpoint.endpointId };
};
const send = ({ apiKey: bearer }: TestAssistant, headers: Record<string, string> = {}) =>
  request(`${stack.url}/api/v1/chat`, { bearer, headers, body: aTurn({ session_id: randomUUID() }) });
const ASYNC = { Prefer: 'respond-async' };

test('an endpoint that is paused raises one alert, told once by webhook and by email, and its end too', async () => {
  const { assistant, receiver, endpointId } = await anEndpoint(() => ({ status: 410 }));
  const [worker, other] = [await stack.startDeliveryWorker(), await stack.startDeliveryWorker()];

  await send(assistant, ASYNC);
  const alert = await begun('endpoint_paused', endpointId);

  expect(alert).toMatchObject({ assistantId: assistant.assistantId, details: { reason: 'gone' }, acknowledged: null });
  const { status, body } = await owner.post<Alert>(`/alerts/${alert.alertId}/acknowledge`);
  expect([status, body.acknowledged?.by]).toEqual([200, expect.stringMatching(/^owner-/)]);
  await owner.call('PATCH', `/endpoints/${endpointId}`, { enabled: false });
  await ended('endpoint_paused', endpointId);
  await eventually(() => expect(toldOf(alert)).toEqual(['open', 'ended']));
  const [first] = operations.received;
  const signature = String(first?.headers['x-factory-signature']);
  expect(first?.json).toMatchObject({ event: 'alerts.changed', event_id: first?.headers['x-factory-event-id'] });
  expect(verifyWebhook(first?.body ?? Buffer.alloc(0), signature, SECRET)).toMatchObject({ ok: true });
  await eventually(() => {
    const about = mailbox.mails.flatMap((mail) => mail.split('\n').filter((line) => line.endsWith(`${endpointId})`)));
    const paused = `An endpoint is paused (endpoint_paused, ${endpointId})`;
    expect(about.filter((line) => line.includes('paused'))).toEqual([`Began: ${paused}`, `Ended: ${paused}`]);
    expect(mailbox.mails[0]).toContain('https://parley.example.com/operator/alerts');
    expect(mailbox.mails.some((mail) => mail.includes('resume it when the receiver is back'))).toBe(true);
  });
  await Promise.all([worker.close(), other.close(), receiver.close()]);
});

test('an alert of a kind that only a later release knows hides and delays no others', async () => {
  const collection = stack.service.mongo.collection('alerts');
  const [beganAt, seenAt] = [new Date(), new Date(Date.now() + 60_000)];
  const alertAt = (kind: string, began: Date) => {
    const own = { _id: randomUUID() as never, kind, key: `${kind}:x`, target: 'x', assistantId: null, details: {} };
    return { ...own, beganAt: began, seenAt, endedAt: null, open: true, acknowledged: null, untold: ['webhook'] };
  };
  onTestFinished(async () => void (await collection.deleteMany({ target: 'x' })));

  await collection.insertMany([alertAt('of_later', new Date(0)), alertAt('redis_full', beganAt)]);

  const { status, body } = await owner.get<Alerts>('/alerts?state=open&limit=200');
  expect([status, body.alerts.filter(({ target }) => target === 'x').map(({ kind }) => kind)]).toEqual([
    200,
    ['redis_full'],
  ]);
  await eventually(() =>
    expect(told().flatMap(({ alerts }) => alerts.map(({ kind, target }) => `${kind} ${target}`))).toContain(
      'redis_full x',
    ),
  );
});

test('an endpoint that fails, and events that wait, raise alerts that end', async () => {
  let status = 500;
  const { assistant, receiver, endpointId } = await anEndpoint(() => ({ status }));
  await send(assistant, ASYNC);

  expect((await begun('events_late', endpointId)).state).toBe('open');
  const worker = await stack.startDeliveryWorker();
  await ended('events_late', endpointId);
  await begun('endpoint_failing', endpointId);
  const failingSince = async () =>
    (await owner.get<{ failingSince: string | null }>(`/endpoints/${endpointId}`)).body.failingSince;
  expect(Date.parse((await failingSince()) ?? '')).toBeGreaterThan(Date.now() - 600_000);

  status = 200;
  await send(assistant, ASYNC);
  await ended('endpoint_failing', endpointId);
  expect(await failingSince()).toBeNull();
  await Promise.all([worker.close(), receiver.close()]);
});

test('a queue that does not move, and workers that are gone, raise alerts that end', async () => {
  const gone = await stack.startReplyWorker();
  await gone.close();

  await send(await anAssistant(stack), ASYNC);
  expect(await begun('queue_stuck', 'turns')).toMatchObject({
    state: 'open',
    remedy: expect.stringContaining('workers'),
  });
  expect((await begun('queue_stuck', 'turns')).details['waiting']).toBeGreaterThanOrEqual(1);
  await begun('sweeps_stopped', 'workers');

  const worker = await stack.startReplyWorker();
  await ended('queue_stuck', 'turns');
  await ended('sweeps_stopped', 'workers');
  await worker.close();
});

test('a visitor who waits past the time raises an alert until somebody takes the conversation', async () => {
  const worker = await stack.startReplyWorker();
  const assistant = await anAssistant(stack);
  const { assistantId } = assistant;
  await owner.call('PATCH', `/assistants/${assistantId}`, { takeWithinMinutes: 10, ifNotTaken: 'remind' });
  const { body } = await assistant.chat({ session_id: randomUUID(), message: 'I want to speak to a human please' });
  const { conversationId } = body;
  const over = { $set: { takeBy: new Date(Date.now() - 1_000) } };
  await stack.service.mongo.collection('conversations').updateOne({ conversationId }, over);

  expect((await begun('person_waits', assistantId)).state).toBe('open');

  await owner.post(`/conversations/${conversationId}/replies`, { content: 'It is me.' });
  await ended('person_waits', assistantId);
  await worker.close();
});

test('a provider that fails raises an alert', async () => {
  const stopProjecting = await projectAtOnce(stack);
  const worker = await stack.startReplyWorker();
  const assistant = await anAssistant(stack);
  const provider = await openProvider();
  const settings = { kind: 'openai' as const, baseUrl: provider.baseUrl, model: 'test-model', apiKey: 'sk-secret' };
  await stack.service.assistants.setEngine(assistant.assistantId, settings);
  await provider.close();

  for (let nth = 0; nth < 3; nth += 1) await send(assistant);

  expect((await begun('provider_failing', assistant.assistantId)).details).toMatchObject({
    failed: 3,
    replies: 3,
  });
  await worker.close();
  await stopProjecting();
});

test('a quota and a budget raise alerts at 80 and at 100 %, which end when the limit is raised', async () => {
  const worker = await stack.startReplyWorker();
  const { assistantId, keyId, chat } = await anAssistant(stack, { input: { tokensPerDay: 1_000 } });
  const provider = await openProvider();
  const settings = { kind: 'openai' as const, baseUrl: provider.baseUrl, model: 'test-model', maxTokens: 100 };
  await stack.service.assistants.setEngine(assistantId, settings);
  await owner.call('PATCH', `/keys/${keyId}`, { turnsPerMonth: 5 });
  const sendOne = () => chat(aTurn());

  for (let nth = 0; nth < 4; nth += 1) await sendOne();
  expect((await begun('quota_near', keyId)).details).toMatchObject({ used: 4, limit: 5, key: 'test' });
  expect(await alertOf('quota_reached', keyId)).toBeUndefined();
  await sendOne();
  await begun('quota_reached', keyId);
  await owner.call('PATCH', `/keys/${keyId}`, { turnsPerMonth: 100 });
  await ended('quota_near', keyId);
  await ended('quota_reached', keyId);

  await eventually(async () => {
    await sendOne();
    expect(await alertOf('budget_reached', assistantId)).toMatchObject({ assistantId, state: 'open' });
  });
  await begun('budget_near', assistantId);
  await owner.call('PATCH', `/assistants/${assistantId}`, { tokensPerDay: null });
  await ended('budget_reached', assistantId);
  const { alerts } = await list('?limit=200');
  const raised = alerts.filter(({ target }) => target === keyId || target === assistantId).map(({ kind }) => kind);
  expect(raised.toSorted()).toEqual(['budget_near', 'budget_reached', 'quota_near', 'quota_reached']);
  await Promise.all([worker.close(), provider.close()]);
});

test('a certificate that ends within two weeks raises an alert, and a new one ends it', async () => {
  const { receiver, endpointId } = await anEndpoint(() => ({ status: 200 }));
  const { endpoints } = stack.service;
  const stored = async () =>
    (await endpoints.readForSending(endpointId)) as NonNullable<Awaited<ReturnType<typeof endpoints.readForSending>>>;
  const inDays = (days: number) => ({ delivered: true, certificateUntil: new Date(Date.now() + days * 86_400_000) });

  await endpoints.noteHealth(await stored(), inDays(12));
  expect((await begun('certificate_expires', endpointId)).state).toBe('open');
  await endpoints.noteHealth(await stored(), inDays(90));
  await ended('certificate_expires', endpointId);
  await receiver.close();
});

test('a channel that fails delays neither the alerts nor the other channel, and is told later', async () => {
  refusing = true;
  const { assistant, receiver, endpointId } = await anEndpoint(() => ({ status: 410 }));
  const worker = await stack.startDeliveryWorker();
  await send(assistant, ASYNC);

  const alert = await begun('endpoint_paused', endpointId);
  await eventually(() => expect(mailbox.mails.some((mail) => mail.includes(endpointId))).toBe(true));
  await eventually(() => expect(toldOf(alert).length).toBeGreaterThan(0));
  const before = toldOf(alert).length;
  refusing = false;

  await eventually(() => expect(toldOf(alert).length).toBe(before + 1));
  expect((await list('?state=open')).open).toBeGreaterThan(0);
  await Promise.all([worker.close(), receiver.close()]);
});

/** Alerts that a stack of its own tells to a receiver. `env`: also elsewhere. `of`: what the nth alert is about. */
const aTeller = async (
  respond: (told: Told, own: Stack) => { status: number; delayMs?: number },
  { env = {}, of = () => ({}) }: { env?: Record<string, string>; of?: (nth: number) => object } = {},
) => {
  const receiver = await openReceiver({ respond: ({ json }) => respond(json as Told, own) });
  const own: Stack = await openStack({
    replyWorkers: 0,
    deliveryWorkers: 0,
    timing: QUICK,
    env: { ALERT_WEBHOOK_URL: receiver.url, ALERT_WEBHOOK_SECRET: SECRET, ...env },
  });
  onTestFinished(async () => {
    await own.close();
    await receiver.close();
  });
  const untold = Array.from({ length: 250 }, (_, nth) => ({
    _id: randomUUID() as never,
    key: `endpoint_paused:${nth}`,
    kind: 'endpoint_paused',
    target: String(nth),
    assistantId: 'a',
    details: {},
    beganAt: new Date(nth),
    seenAt: new Date(),
    endedAt: new Date(),
    acknowledged: null,
    untold: ['webhook', ...(env['ALERT_SMTP_URL'] ? ['email'] : [])],
    ...of(nth),
  }));
  await own.service.mongo.collection('alerts').insertMany(untold);
  const countUntold = () => own.service.mongo.collection('alerts').countDocuments({ untold: { $exists: true } });
  return { receiver, countUntold };
};

test('a process that has lost the lease tells no more', async () => {
  let stolen: Promise<unknown> | undefined;
  const until = new Date(Date.now() + 60_000);
  const { receiver, countUntold } = await aTeller((_, own) => {
    stolen ??= own.service.mongo
      .collection('alertWatch')
      .updateOne({ _id: 'leader' as never }, { $set: { lease: { token: 'another', until } } });
    return { status: 200, delayMs: 1_000 };
  });

  await eventually(async () => expect(await countUntold()).toBe(150));
  await setTimeout(2_000);

  expect([await countUntold(), receiver.received.length]).toEqual([150, 1]);
});

test('a receiver that refuses large messages is told in smaller ones', async () => {
  const { countUntold } = await aTeller(({ alerts }) => ({ status: alerts.length > 30 ? 413 : 200 }));

  await eventually(async () => expect(await countUntold()).toBe(0));
});

test('alerts whose texts a filter refuses are told without them, on each channel, and the others whole', async () => {
  const NAMES = [3, 4, 120];
  const NAME = '${jndi:ldap://x/a}';
  const spamless = await openMailbox((mail) => mail.includes(NAME));
  onTestFinished(() => void spamless.server.close());
  const { receiver, countUntold } = await aTeller(
    (told) => ({ status: JSON.stringify(told).includes(NAME) ? 403 : 200 }),
    {
      env: {
        ALERT_SMTP_URL: spamless.url,
        ALERT_EMAIL_FROM: 'parley@example.com',
        ALERT_EMAIL_TO: 'ops@example.com',
      },
      of: (nth) => ({ details: { key: NAMES.includes(nth) ? NAME : 'a key' } }),
    },
  );

  await eventually(async () => expect(await countUntold()).toBe(0));

  const accepted = receiver.received.flatMap(({ json }) =>
    JSON.stringify(json).includes(NAME) ? [] : (json as Told).alerts,
  );
  expect(accepted).toHaveLength(250);
  expect(accepted.filter(({ details }) => !('key' in details)).map(({ target }) => Number(target))).toEqual(NAMES);
  const mailed = spamless.mails.join('').matchAll(/\(endpoint_paused, (\d+)\)/g);
  expect(new Set([...mailed].map(([, target]) => target)).size).toBe(250);
});

test('a kind of alert that is always refused silences no other, and a receiver that refuses all is told later', async () => {
  let isGone = true;
  const { receiver, countUntold } = await aTeller(
    ({ alerts }) => ({ status: isGone || alerts.some(({ kind }) => kind === 'quota_near') ? 404 : 200 }),
    { of: (nth) => (nth === 0 ? { kind: 'quota_near' } : {}) },
  );

  await eventually(() => expect(receiver.received.length).toBeGreaterThan(12));
  expect(await countUntold()).toBe(250);
  isGone = false;

  await eventually(async () => expect(await countUntold()).toBe(0));
});

/** A mail server that answers the first line with lines that never end. It tells each connection. */
const openDrippingMailServer = async (connected: () => void) => {
  const server = createServer((socket) => {
    socket.on('error', () => undefined).write('220 mail.example ready\r\n');
    socket.once('data', () => {
      const timer = setInterval(() => socket.write('250-mail.example\r\n'), 50);
      socket.on('close', () => clearInterval(timer));
      connected();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as { port: number };
  const env = {
    ALERT_SMTP_URL: `smtp://127.0.0.1:${port}`,
    ALERT_EMAIL_FROM: 'parley@example.com',
    ALERT_EMAIL_TO: 'ops@example.com',
  };
  return { env, server };
};

test('a mail server whose answer does not end holds up no stop', async () => {
  const answering = Promise.withResolvers<void>();
  const { env, server } = await openDrippingMailServer(answering.resolve);
  const own = await openStack({ replyWorkers: 0, deliveryWorkers: 0, timing: QUICK, env });
  await own.service.aside.alerts.noteSweep(); // no worker follows, so that an alert begins
  await answering.promise;

  await expect(own.close()).resolves.toBeUndefined();
  server.close();
});

test('a mail server whose answer does not end is cut off and asked again', async () => {
  let connections = 0;
  const { env, server } = await openDrippingMailServer(() => {
    connections += 1;
  });
  const timing = { ...QUICK, alertMailMs: 500 };
  const own = await openStack({ replyWorkers: 0, deliveryWorkers: 0, timing, env });
  await own.service.aside.alerts.noteSweep(); // no worker follows, so that an alert begins

  await eventually(() => expect(connections).toBeGreaterThan(1));

  await own.close();
  await new Promise<void>((resolve) => {
    server.close(() => resolve()); // once all connections have ended
  });
});
