import { randomUUID } from 'node:crypto';
import { expect, test, vi } from 'vitest';
import { describeTest } from '../../src/events/view.ts';
import { adminJson, runAdmin, useAdmin } from '../support/admin.ts';
import { aTurn, anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { openReceiver, type ReceiverOptions } from '../kit/receiver.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ timing: { sweepEveryMs: 250, endWrittenWithinMs: 1_000 } });
const env = useAdmin(stack);

type Delivery = { deliveryId: string; eventId: string; outcome: string; checklist: unknown[] };
type Doctor = { ok: boolean; problems: string[]; stuck: { pausedEndpoints: { endpointId: string }[] } };

const admin = <Value = Record<string, unknown>>(...args: string[]): Promise<Value> => adminJson<Value>(env, ...args);

/** A receiver whose endpoint was added by the admin command, with the secret that the command printed. */
const aReceiver = async (assistantId: string, events: string, options: ReceiverOptions = {}) => {
  const secrets: string[] = [];
  const receiver = await openReceiver({ secret: secrets, ...options });
  const added = ['endpoint', 'add', '--assistant', assistantId, '--url', `${receiver.url}/hook`, '--events', events];
  const made = await admin<{ endpointId: string; secret: string }>(...added);
  secrets.push(made.secret);
  return { ...made, receiver };
};

test('an endpoint gets its events, signed with the printed secret, until it is removed', async () => {
  const assistant = await anAssistant(stack);
  const { receiver, endpointId } = await aReceiver(assistant.assistantId, 'message.received');
  await eventually(async () => {
    await assistant.chat(aTurn());
    expect(receiver.received.length).toBeGreaterThan(0);
  });

  const listed = await eventually(async () => {
    const found = await admin<Delivery[]>('deliveries', 'list', '--assistant', assistant.assistantId);
    expect(found.every(({ outcome }) => outcome === 'delivered')).toBe(true);
    return found;
  });
  const endpoints = await admin('endpoint', 'list', '--assistant', assistant.assistantId);
  await admin('endpoint', 'remove', endpointId);

  expect(listed[0]).toMatchObject({
    deliveryId: expect.stringContaining(endpointId),
    eventId: expect.any(String),
    event: 'message.received',
    endpointId,
    outcome: 'delivered',
    errorKind: null,
    status: 200,
    createdAt: expect.any(String),
    endedAt: expect.any(String),
  });
  expect(receiver.received.every(({ verdict }) => verdict?.ok === true)).toBe(true);
  expect(endpoints).toMatchObject([{ endpointId, events: ['message.received'], enabled: true, pause: null }]);
  expect(JSON.stringify(endpoints)).not.toMatch(/secret|sealed/);
  expect(await stack.service.endpoints.listEndpoints(assistant.assistantId)).toEqual([]);
});

test('a secret header is taken from the environment, sent, and removed again', async () => {
  const { assistantId } = await anAssistant(stack);
  const { receiver, endpointId } = await aReceiver(assistantId, 'tag.added');
  const set = (...options: string[]) =>
    admin<{ headers: object[]; ratePerSecond: number | null; standardWebhooks: boolean }>(
      'endpoint',
      'set',
      endpointId,
      ...options,
    );
  vi.stubEnv('HOOK_KEY', 'Bearer zq');

  const added = await set('--header', 'Authorization=HOOK_KEY', '--header', 'X-Two=HOOK_KEY', '--standard-webhooks');
  await admin('endpoint', 'test', endpointId);
  const removed = await set('--remove-header', 'authorization', '--rate', '5');
  const unlimited = await set('--rate', 'none');
  vi.unstubAllEnvs();
  const unset = await runAdmin(env, ['endpoint', 'set', endpointId, '--header', 'X-Three=HOOK_KEY']);

  const shown = ['Authorization', 'X-Two'].map((name) => ({ name, value: null, secret: true }));
  expect([added.headers, added.standardWebhooks]).toEqual([shown, true]);
  expect(receiver.received.at(-1)?.headers).toMatchObject({ authorization: 'Bearer zq', 'x-two': 'Bearer zq' });
  expect(removed).toMatchObject({ headers: shown.slice(1), ratePerSecond: 5, standardWebhooks: true });
  expect(unlimited.ratePerSecond).toBeNull();
  expect(unset.stderr).toContain('HOOK_KEY is not set');
});

test('a test event is delivered and its steps are shown; a resend is marked as a redelivery', async () => {
  const { assistantId } = await anAssistant(stack);
  const { receiver, endpointId } = await aReceiver(assistantId, 'tag.added');

  const tested = await admin<Delivery>('endpoint', 'test', endpointId);
  const again = await admin<Delivery>('deliveries', 'resend', tested.deliveryId);
  const third = await admin<Delivery>('deliveries', 'resend', again.deliveryId);
  const listed = await admin<Delivery[]>(
    'deliveries',
    'list',
    '--assistant',
    assistantId,
    '--event-id',
    tested.eventId,
  );
  const shown = await admin('deliveries', 'show', tested.deliveryId);

  const ids = [tested, again, third].map(({ deliveryId }) => deliveryId);
  expect(tested).toMatchObject({ event: 'webhook.test', outcome: 'delivered', status: 200, redelivery: false });
  expect(tested.checklist).toEqual([
    { check: 'address', ok: true, detail: '127.0.0.1' },
    { check: 'tls', ok: null, detail: 'plain HTTP' },
    { check: 'status', ok: true, detail: '200' },
    { check: 'time', ok: true, detail: expect.stringMatching(/^\d+ ms of 5 s$/) },
  ]);
  expect(receiver.received[0]?.json).toMatchObject({ event: 'webhook.test', payload: { ping: 'pong' } });
  expect(ids).toEqual(['', ':1', ':2'].map((end) => `${tested.eventId}:${endpointId}${end}`));
  expect(receiver.received.map(({ headers }) => headers['x-factory-redelivery'])).toEqual([undefined, 'true', 'true']);
  expect(new Set(receiver.received.map(({ headers }) => headers['x-factory-event-id']))).toEqual(
    new Set([tested.eventId]),
  );
  expect(listed.map(({ deliveryId }) => deliveryId)).toEqual(ids.toReversed());
  expect(shown).toMatchObject({ body: expect.stringContaining('"ping":"pong"'), responseBody: 'ok' });
  expect(shown).not.toHaveProperty('token');

  const sample = await admin<Delivery>('endpoint', 'test', endpointId, '--event', 'tag.added');
  expect(sample).toMatchObject({ event: 'tag.added', outcome: 'delivered', conversationId: null });
});

test('a test that cannot be sent shows why; in the overlap of a rotation both secrets sign', async () => {
  const { assistantId } = await anAssistant(stack);
  const { receiver, endpointId, secret } = await aReceiver(assistantId, 'tag.added');
  const { endpoint: nowhere } = await stack.service.endpoints.addEndpoint(assistantId, {
    url: 'https://nowhere.invalid',
  });

  const unresolved = await admin<Delivery>('endpoint', 'test', nowhere.endpointId);
  const rotated = await admin<{ secret: string }>('endpoint', 'rotate', endpointId, '--overlap', '1');
  await admin('endpoint', 'test', endpointId);

  expect(unresolved).toMatchObject({ outcome: 'not_sent', errorKind: 'dns' });
  expect(unresolved.checklist[0]).toMatchObject({ check: 'address', ok: false });
  expect(rotated.secret).toMatch(/^whsec_/);
  expect(rotated.secret).not.toBe(secret);
  expect(String(receiver.received[0]?.headers['x-factory-signature']).match(/v1=/g)).toHaveLength(2);
  expect(receiver.received[0]?.verdict).toMatchObject({ ok: true });
});

test('the checklist shows how far a request came', () => {
  const sent = {
    url: 'https://example.com/hook',
    outcome: 'rejected',
    status: 500,
    remoteAddress: '203.0.113.7',
  } as const;
  const timings = { dns: 1, connect: 2, tls: 3, firstByte: 4, total: 10.4 };
  const tls = { version: 'TLSv1.3', daysToExpiry: 12 };

  const answered = describeTest({ ...sent, tls, timings, errorKind: null });
  const untrusted = describeTest({ ...sent, tls: null, timings, errorKind: 'tls', outcome: 'not_sent', status: null });

  expect(answered.checks.map(({ ok }) => ok)).toEqual([true, true, false, true]);
  expect(answered.checks[1]?.detail).toBe('TLSv1.3, certificate ends in 12 days: renew it soon');
  expect(untrusted.checks.map(({ ok }) => ok)).toEqual([true, false, null, null]);
});

test('events of a paused endpoint are listed as queued and sent when it is resumed', async () => {
  const assistant = await anAssistant(stack);
  const { receiver, endpointId } = await aReceiver(assistant.assistantId, 'message.received', {
    respond: (_request, nth) => ({ status: nth === 1 ? 410 : 200 }),
  });
  await assistant.chat(aTurn());
  await eventually(async () =>
    expect(await stack.service.endpoints.getEndpoint(endpointId)).toMatchObject({ pause: { reason: 'gone' } }),
  );
  const outcomes = async () =>
    (await admin<Delivery[]>('deliveries', 'list', '--assistant', assistant.assistantId)).map(({ outcome }) => outcome);

  await assistant.chat(aTurn());
  const before = await outcomes();
  const doctor = await runAdmin(env, ['doctor', '--json']);
  await admin('endpoint', 'resume', endpointId);
  await receiver.waitFor((received) => received.length >= 2);

  expect(before).toEqual(['queued', 'rejected']);
  expect(doctor.status).toBe(1);
  expect((JSON.parse(doctor.stdout) as Doctor).stuck.pausedEndpoints).toMatchObject([{ endpointId }]);
  await eventually(async () => expect(await outcomes()).toEqual(['delivered', 'rejected']));
});

test('what an endpoint missed is counted, sent again and shown', async () => {
  const { assistantId, chat } = await anAssistant(stack);
  const { receiver, endpointId } = await aReceiver(assistantId, 'message.received', {
    respond: (_request, nth) => ({ status: nth === 1 ? 500 : 200 }),
  });
  await eventually(async () => {
    await chat(aTurn());
    expect(receiver.received.length).toBeGreaterThan(0);
  });
  await eventually(async () => {
    const found = await admin<Delivery[]>('deliveries', 'list', '--assistant', assistantId, '--outcome', 'rejected');
    expect(found).toHaveLength(1);
  });
  const from = ['--from', new Date(Date.now() - 60_000).toISOString(), '--outcomes', 'rejected'];

  const dry = await admin('endpoint', 'recover', endpointId, ...from, '--dry-run');
  const said = await runAdmin(env, ['endpoint', 'recover', endpointId, ...from, '--dry-run']);
  const started = await admin<{ recovery: { recoveryId: string } }>('endpoint', 'recover', endpointId, ...from);
  const { recoveryId } = started.recovery;
  const [paused, resumed] = [
    await admin('recovery', 'pause', recoveryId),
    await admin('recovery', 'resume', recoveryId),
  ];
  await eventually(async () => expect(await admin('recovery', 'show', recoveryId)).toMatchObject({ state: 'done' }));
  const listed = await admin('recovery', 'list', endpointId);
  const wrong = await runAdmin(env, ['endpoint', 'recover', endpointId, '--from', '2026-01-01', '--outcomes', 'none']);

  const byOutcome = { not_sent: 0, rejected: 1, unknown: 0 };
  expect(dry).toEqual({ events: 1, conversations: 1, oldest: expect.any(String), byOutcome, recovery: null });
  expect(said.stdout).toMatch(/^1 events of 1 conversations would be sent again: 1 rejected; the oldest of 2/);
  expect(said.stdout).toContain('The server may get events twice');
  expect([paused['state'], resumed['state'], wrong.status]).toEqual(['paused', 'running', 2]);
  expect(listed).toMatchObject([{ recoveryId, events: 1, sent: { delivered: 1 } }]);
  expect(receiver.received.filter(({ headers }) => headers['x-factory-redelivery'] === 'true')).toHaveLength(1);
});

test('an endpoint can be disabled and enabled', async () => {
  const { assistantId } = await anAssistant(stack);
  const { endpoint } = await stack.service.endpoints.addEndpoint(assistantId, { url: 'http://127.0.0.1:9999/hook' });

  const off = await admin('endpoint', 'disable', endpoint.endpointId);
  const on = await admin<{ enabledSince: string }>('endpoint', 'enable', endpoint.endpointId);

  expect(off).toMatchObject({ endpointId: endpoint.endpointId, enabled: false });
  expect(on).toMatchObject({ endpointId: endpoint.endpointId, enabled: true });
  expect(new Date(on.enabledSince).getTime()).toBeGreaterThan(endpoint.enabledSince.getTime());
});

test('operators’ actions are in the history and sent as events', async () => {
  const assistant = await anAssistant(stack);
  const { receiver } = await aReceiver(assistant.assistantId, 'conversation.escalated,conversation.resolved,tag.added');
  const { body: answered } = await assistant.chat(aTurn());
  const { conversationId } = answered;
  const given = { email: `${randomUUID()}@example.com`, role: 'agent', password: randomUUID() } as const;
  const { operatorId: operator } = await stack.service.operators.createOperator(given);
  const conversation = (command: string, ...args: string[]) => admin('conversation', command, conversationId, ...args);

  const escalated = await conversation('escalate', '--reason', 'by phone', '--lead-score', '80');
  const replied = await conversation('reply', 'A person here.');
  const tagged = await conversation('tag', 'vip', '--color', '#1E90FF');
  const back = await conversation('hand-back');
  const resolved = await conversation('resolve', '--operator', operator);
  const reopened = await conversation('reopen');
  const { body: history } = await assistant.history(conversationId, '?include=sources');

  expect(escalated).toMatchObject({ conversationId, status: 'escalated', reason: 'by phone', leadScore: 80 });
  expect(history.messages.find(({ messageId }) => messageId === replied['messageId'])).toMatchObject({
    role: 'operator',
    content: 'A person here.',
    seq: replied['seq'],
  });
  expect(tagged).toMatchObject({ tags: [{ tag: 'vip', color: '#1e90ff' }] });
  expect(back).toMatchObject({ status: 'open' });
  expect(resolved).toMatchObject({ status: 'resolved', resolvedBy: operator });
  expect(reopened).toMatchObject({ status: 'open', resolvedBy: null });
  expect(await conversation('show')).toEqual(history);
  await receiver.waitFor((received) => received.length >= 3);
  expect(receiver.received.map(({ json }) => json)).toMatchObject([
    { event: 'conversation.escalated', payload: { reason: 'by phone', lead_score: 80 } },
    { event: 'tag.added', payload: { tag: 'vip', color: '#1e90ff' } },
    { event: 'conversation.resolved', payload: { resolved_by: operator } },
  ]);
});

test('a turn is shown from acceptance to the outcome of its events', async () => {
  const assistant = await anAssistant(stack);
  const { endpointId, receiver } = await aReceiver(assistant.assistantId, 'conversation.created,message.received');
  const message = 'What are your opening hours?';
  const { body: answer } = await eventually(async () => {
    const chatted = await assistant.chat(aTurn({ message }));
    await receiver.waitFor((received) => received.length >= 2, 300);
    return chatted;
  });
  const { body: history } = await assistant.history(answer.conversationId);

  const turn = await eventually(async () => {
    const shown = await admin('turn', 'show', String(history.messages[0]?.turnId));
    const delivery = { endpointId, outcome: 'delivered', status: 200, endedAt: expect.any(String) };
    expect(shown['events']).toMatchObject([
      { event: 'conversation.created', deliveries: [delivery] },
      { event: 'message.received', deliveries: [delivery] },
    ]);
    return shown;
  });

  expect(turn).toMatchObject({
    turnId: history.messages[0]?.turnId,
    conversationId: answer.conversationId,
    assistantId: assistant.assistantId,
    status: 'answered',
    acceptedAt: history.messages[0]?.createdAt,
    ms: expect.any(Number),
    message: { content: message, seq: 1 },
    job: {
      state: 'completed',
      addedAt: expect.any(String),
      startedAt: expect.any(String),
      endedAt: expect.any(String),
    },
    reply: { messageId: answer.messageId, seq: 1, content: answer.reply },
  });
});
