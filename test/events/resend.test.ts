import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { IN_FLIGHT, isFinal } from '../../src/events/delivery.ts';
import { describeTest, toDeliveryView } from '../../src/events/view.ts';
import { EVENT_KINDS, type EventKind } from '../../src/conversations/event.ts';
import { EVENT_BODIES } from '../../src/events/wire.ts';
import { anAssistant } from '../support/builders.ts';
import { AUTHORITY, KEY, VALID } from '../kit/certificates.ts';
import { eventually } from '../support/eventually.ts';
import { createFeed } from '../kit/feed.ts';
import { anOperator } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { collectionIn, examinedBy, profileStatements } from '../support/profile.ts';
import { openReceiver, type ReceiverOptions } from '../kit/receiver.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({
  replyWorkers: 0,
  sending: { deadlineMs: 2_000, ca: AUTHORITY },
  timing: { sweepEveryMs: 250, eventStaleMs: 500 },
});

const anEndpoint = async (options: ReceiverOptions = {}) => {
  const { assistantId } = await anAssistant(stack);
  const receiver = await openReceiver(options);
  const { endpoint } = await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const feed = createFeed(stack.service);
  const [key = ''] = await feed.openConversations(assistantId, 1);
  return { assistantId, receiver, endpoint, key, say: (text: string) => feed.say(assistantId, key, [text]) };
};

const endOf = (deliveryId: string) =>
  eventually(async () => {
    const delivery = await stack.service.deliveries.getDelivery(deliveryId);
    expect(isFinal(delivery.outcome)).toBe(true);
    return delivery;
  });

const planOf = async (deliveryId: string) => {
  const { deliveries } = stack.service;
  return deliveries.planResend(await deliveries.getDelivery(deliveryId));
};

const resend = async (deliveryId: string, number: number, url: string) => {
  const original = await stack.service.deliveries.getDelivery(deliveryId);
  const plan = await stack.service.deliveries.planResend(original);
  const id = await stack.service.deliveries.queueResend({ original, plan, number, url });
  stack.service.deliveryQueue.wakeDelivery(id);
  return id;
};

test('a test event is a real delivery, also to a paused endpoint, and reports each step', async () => {
  const { receiver, endpoint } = await anEndpoint({ tls: { key: KEY, cert: VALID } });
  await stack.service.endpoints.pauseEndpoint(endpoint.endpointId, { reason: 'gone', until: null });

  const id = await stack.service.deliveries.queueTest(endpoint);
  stack.service.deliveryQueue.wakeDelivery(id);
  const delivery = await endOf(id);

  expect(receiver.received.map(({ json }) => json)).toMatchObject([
    { event: 'webhook.test', payload: { ping: 'pong' } },
  ]);
  const told = describeTest(delivery);
  expect(told).toMatchObject({ ok: true, ended: true });
  expect(told.checks).toEqual([
    { check: 'address', ok: true, detail: '127.0.0.1' },
    { check: 'tls', ok: true, detail: expect.stringMatching(/^TLSv1\.3, certificate ends in \d+ days/) as string },
    { check: 'status', ok: true, detail: '200' },
    { check: 'time', ok: true, detail: expect.stringMatching(/^\d+ ms of 5 s$/) as string },
  ]);
});

test('a test event of each kind has the payload of this kind and says that it is a test, also when it is resent', async () => {
  const { receiver, endpoint } = await anEndpoint();
  const owner = await anOperator(stack);
  const { endpointId } = endpoint;

  const ids = await Promise.all(
    EVENT_KINDS.map(async (event) => {
      const { body } = await owner.post<{ deliveryId: string }>(`/endpoints/${endpointId}/test`, { event });
      await endOf(body.deliveryId);
      return body.deliveryId;
    }),
  );
  const wrong = await owner.post(`/endpoints/${endpointId}/test`, { event: 'no.such' });
  const [first = ''] = ids;
  await endOf(await resend(first, 1, endpoint.url));
  const shown = await Promise.all(ids.map((id) => owner.get<{ test: unknown }>(`/deliveries/${id}`)));
  const { body: trail } = await owner.get<{ lines: { details: { event: string } }[] }>(
    `/audit?action=endpoint.test&target=${endpointId}`,
  );

  const told = receiver.received.map(({ json }) => EVENT_BODIES[(json as { event: EventKind }).event].parse(json));
  expect(told.map(({ event }) => event).toSorted()).toEqual([...EVENT_KINDS, EVENT_KINDS[0]].toSorted());
  for (const { headers, json } of receiver.received) {
    expect(headers).toMatchObject({ 'x-factory-test': 'true', 'x-factory-event': (json as { event: string }).event });
    expect(headers).not.toHaveProperty('x-factory-sequence');
  }
  for (const { body } of shown) expect(body).toMatchObject({ conversationId: null, test: { ok: true } });
  expect(trail.lines.map(({ details }) => details.event).toSorted()).toEqual(EVENT_KINDS.toSorted());
  expect(problemOf(wrong)).toBe('422 validation_failed event');
});

test('a failed test event names the step that failed', async () => {
  const { endpoint } = await anEndpoint({ respond: () => ({ status: 500 }) });
  const { endpoint: untrusted } = await anEndpoint({ tls: true });
  const { endpoint: silent } = await anEndpoint({ respond: () => new Promise(() => undefined) });
  const targets = [endpoint, { ...untrusted, url: untrusted.url.replace('127.0.0.1', 'localhost') }, silent];

  const all = await Promise.all(
    targets.map(async (target) => {
      const id = await stack.service.deliveries.queueTest(target);
      stack.service.deliveryQueue.wakeDelivery(id);
      return describeTest(await endOf(id)).checks;
    }),
  );

  const told = all.map((checks) => checks.map(({ check, ok }) => [check, ok]));
  expect(told[0]).toEqual([
    ['address', true],
    ['tls', null],
    ['status', false],
    ['time', true],
  ]);
  expect(told[2]).toEqual([
    ['address', true],
    ['tls', null],
    ['status', false],
    ['time', false],
  ]);
  expect(all[2]?.at(-1)?.detail).toBe('more than 5 s');
  expect(told[1]?.[0]).toEqual(['address', true]);
});

test('a resend is a new delivery of the same event, marked, and a double click makes one', async () => {
  const { receiver, endpoint, say } = await anEndpoint();
  const [event] = await say('hello');
  const first = await endOf(`${event?.eventId}:${endpoint.endpointId}`);
  const plan = await planOf(first._id);

  const ids = await Promise.all([1, 1, 1].map(() => resend(first._id, plan.number, endpoint.url)));
  const again = await endOf(ids[0] as string);

  expect(plan).toEqual({ number: 1, risk: 'may_double' });
  expect(new Set(ids)).toEqual(new Set([`${first._id}:1`]));
  expect(again).toMatchObject({ eventId: event?.eventId, outcome: 'delivered', redelivery: true });
  expect(receiver.received).toHaveLength(2);
  const [one, two] = receiver.received;
  expect(two?.body).toEqual(one?.body);
  expect(two?.headers['x-factory-event-id']).toBe(event?.eventId);
  expect([one, two].map((request) => request?.headers['x-factory-redelivery'])).toEqual([undefined, 'true']);
  expect(await planOf(first._id)).toEqual({ number: 2, risk: 'may_double' });
  await expect(resend(first._id, 3, endpoint.url)).rejects.toMatchObject({ code: 'validation_failed' });
});

test('a resend is safe only while the receiver got none of the deliveries', async () => {
  const { receiver, endpoint, say } = await anEndpoint();
  const { endpoints } = stack.service;
  await endpoints.pauseEndpoint(endpoint.endpointId, { reason: 'gone', until: null });
  const [event] = await say('hello');
  await endpoints.setEnabled(endpoint.endpointId, false);
  const unsent = await endOf(`${event?.eventId}:${endpoint.endpointId}`);

  const before = await planOf(unsent._id);
  await endOf(await resend(unsent._id, before.number, endpoint.url));
  const after = await planOf(unsent._id);

  expect(unsent).toMatchObject({ outcome: 'not_sent', errorKind: 'endpoint_disabled' });
  expect(toDeliveryView(unsent).resend).toBe('safe');
  expect([before.risk, after.risk]).toEqual(['safe', 'may_double']);
  expect(receiver.received).toHaveLength(1);
});

test('a test or resend that could not be tried is queued again; only its owner can release it', async () => {
  const { endpoint } = await anEndpoint();
  const { deliveries } = stack.service;
  const id = await deliveries.queueTest(endpoint);

  const claimed = await deliveries.claimQueued(id);
  const second = await deliveries.claimQueued(id);
  const byOther = await deliveries.release(id, 'another token', { queued: true });
  const byOwner = await deliveries.release(id, claimed?.token ?? '', { queued: true });

  expect([second, byOther, byOwner]).toEqual([null, false, true]);
  // The released resend has no wake-up, so the sweep must find it, as it would after a lost wake-up.
  expect(await endOf(id)).toMatchObject({ outcome: 'delivered' });
});

test('an event of an erased conversation cannot be resent', async () => {
  const { assistantId, endpoint, say } = await anEndpoint();
  const [event] = await say('private');
  const { _id, conversationId } = await endOf(`${event?.eventId}:${endpoint.endpointId}`);

  await stack.service.deliveries.eraseConversation({ assistantId, conversationId: conversationId ?? '' });

  const kept = await stack.service.deliveries.getDelivery(_id);
  expect(JSON.stringify(kept)).not.toContain('private');
  expect(toDeliveryView(kept)).toMatchObject({ outcome: 'delivered', body: null, responseBody: null, resend: null });
  await expect(resend(_id, 1, endpoint.url)).rejects.toMatchObject({ code: 'validation_failed' });
});

test('tests that wait for a hanging endpoint neither hold up nor slow down what another assistant sends again', async () => {
  const hanging = await anEndpoint({ respond: () => new Promise(() => undefined) });
  const neighbour = await anEndpoint();
  const [event] = await neighbour.say('hello');
  const sent = await endOf(`${event?.eventId}:${neighbour.endpoint.endpointId}`);
  const { deliveries, mongo } = stack.service;
  const one = await deliveries.getDelivery(await deliveries.queueTest(hanging.endpoint));
  const createdAt = new Date(Date.now() - 60_000);
  const waiting = Array.from({ length: sized({ everyday: 500, long: 2_000 }) }, () => ({
    ...one,
    _id: `${randomUUID()}:${one.endpointId}`,
    createdAt,
  }));
  await mongo.collection('deliveries').insertMany(waiting as never);
  const { assistantId } = neighbour;

  // Without a wake-up, as if it was lost. A sweep must find it.
  const lost = await deliveries.queueTest(neighbour.endpoint);
  const statements = await profileStatements(stack, async () => {
    await deliveries.listRecords({ assistantId, outcome: 'queued' });
    await deliveries.countOutcomes(assistantId, createdAt);
    await deliveries.eraseConversation({ assistantId, conversationId: sent.conversationId ?? '' });
  });
  const delivery = await endOf(lost);
  await mongo.collection('deliveries').deleteMany({ endpointId: one.endpointId });

  expect(delivery.outcome).toBe('delivered');
  expect(Date.now() - delivery.createdAt.getTime()).toBeLessThan(20_000);
  const ofNeighbour = statements.filter(({ command }) => JSON.stringify(command).includes(assistantId));
  expect(ofNeighbour.length).toBeGreaterThan(3);
  expect(Math.max(...ofNeighbour.map(examinedBy))).toBeLessThan(100);
});

test('what is queued is read without its body until it has a slot, and swept without its documents', async () => {
  const { receiver, endpoint } = await anEndpoint();
  const { deliveries, deliveryQueue, mongo } = stack.service;
  const one = await deliveries.getDelivery(await deliveries.queueTest(endpoint));
  const body = JSON.stringify({ content: 'x'.repeat(48_000) });
  const queued = { ...one, outcome: 'queued', token: null, createdAt: new Date(Date.now() - 60_000), body };
  const COUNT = 60;
  const rows = Array.from({ length: COUNT }, () => ({ ...queued, _id: `${randomUUID()}:${one.endpointId}` }));

  const statements = await profileStatements(stack, async () => {
    await mongo.collection('deliveries').insertMany(rows as never);
    await deliveries.sweepQueued({ wakeAfterMs: 500, expireAfterMs: 600_000, pausedIds: new Set() });
    for (const { _id } of rows) deliveryQueue.wakeDelivery(_id);
    await receiver.waitFor((all) => all.filter(({ body: got }) => got.length > 48_000).length === COUNT);
  });

  const ofDeliveries = statements.filter((statement) => collectionIn(statement) === 'deliveries');
  const reads = ofDeliveries.filter(({ op }) => op === 'query' || op === 'getmore');
  expect(reads.reduce((sum, { nreturned = 0 }) => sum + nreturned, 0)).toBeGreaterThanOrEqual(COUNT);
  const bytes = reads.map(({ responseLength = 0, nreturned = 0 }) => responseLength / Math.max(1, nreturned));
  expect(Math.max(...bytes)).toBeLessThan(1_000);
  const isExpiry = (update: unknown): boolean => JSON.stringify(update ?? null).includes('"expired"');
  const sweeps = ofDeliveries.filter(({ command }) => command['hint'] === IN_FLIGHT.queued || isExpiry(command['u']));
  expect(new Set(sweeps.map(({ op }) => op))).toEqual(new Set(['query', 'update']));
  expect(sweeps.map(({ docsExamined }) => docsExamined).filter((count) => count !== 0)).toEqual([]);
});
