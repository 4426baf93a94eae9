import { randomUUID } from 'node:crypto';
import { Webhook } from 'standardwebhooks';
import { expect, test } from 'vitest';
import { verifyWebhook } from '../../packages/client/src/verify-webhook.ts';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { createFeed } from '../kit/feed.ts';
import { anOperator } from '../support/operator-client.ts';
import { openReceiver, type Receiver } from '../kit/receiver.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack();

const aReceiver = async () => {
  return openReceiver();
};

const URL = 'http://127.0.0.1:9/';

test('an assistant has at most ten endpoints, however many are added at once', async () => {
  const { assistantId } = await anAssistant(stack);
  const { endpoints } = stack.service;

  const added = await Promise.allSettled(
    Array.from({ length: 14 }, () => endpoints.addEndpoint(assistantId, { url: URL })),
  );
  const [first] = await endpoints.listEndpoints(assistantId);
  await endpoints.removeEndpoint(first?.endpointId ?? '');
  const again = await endpoints.addEndpoint(assistantId, { url: URL });

  expect(added.filter(({ status }) => status === 'fulfilled')).toHaveLength(10);
  const refused = added.find(({ status }) => status === 'rejected') as PromiseRejectedResult;
  expect(refused.reason).toMatchObject({ code: 'validation_failed' });
  expect(await endpoints.listEndpoints(assistantId)).toHaveLength(10);
  expect(again.endpoint.url).toBe(URL);
});

test.each([
  'http://user:secret@example.com:8080/',
  'ftp://example.com/',
  'not a url',
  `http://example.com/${'x'.repeat(2048)}`,
])('%s is refused', async (url) => {
  const { assistantId } = await anAssistant(stack);
  await expect(stack.service.endpoints.addEndpoint(assistantId, { url })).rejects.toMatchObject({
    code: 'validation_failed',
  });
});

test('an endpoint gets the kinds it asked for, and none while it is off', async () => {
  const { assistantId, chat } = await anAssistant(stack);
  const { endpoints } = stack.service;
  const [created, all, off] = [await aReceiver(), await aReceiver(), await aReceiver()];
  await endpoints.addEndpoint(assistantId, { url: created.url, events: ['conversation.created'] });
  await endpoints.addEndpoint(assistantId, { url: all.url });
  const { endpoint } = await endpoints.addEndpoint(assistantId, { url: off.url });
  await endpoints.setEnabled(endpoint.endpointId, false);

  const session_id = randomUUID();
  await chat({ session_id, message: 'one' });
  await chat({ session_id, message: 'two' });
  const received = await all.waitFor(({ length }) => length >= 4);

  expect(received).toHaveLength(4);
  expect(created.received.map(({ headers }) => headers['x-factory-event'])).toEqual(['conversation.created']);
  expect(off.received).toEqual([]);
});

test('what is noted of an address is forgotten with it, and a send in flight notes nothing of a moved or disabled endpoint', async () => {
  const { assistantId, chat } = await anAssistant(stack);
  const owner = await anOperator(stack);
  let held = Promise.withResolvers<void>();
  const failing = await openReceiver({ respond: () => held.promise.then(() => ({ status: 500 })) });
  const other = await aReceiver();
  const { endpoint } = await stack.service.endpoints.addEndpoint(assistantId, {
    url: failing.url,
    events: ['conversation.created'],
  });
  const at = `/endpoints/${endpoint.endpointId}`;
  const failingSince = async () => (await owner.get<{ failingSince: string | null }>(at)).body.failingSince;
  /** Fails a delivery, after a change. */
  const failAfter = async (changes: Record<string, unknown> | null): Promise<void> => {
    const { promise, resolve } = held;
    const before = failing.received.length;
    await chat({ session_id: randomUUID(), message: 'one' });
    await failing.waitFor(({ length }) => length > before);
    if (changes !== null) await owner.call('PATCH', at, changes);
    const eventId = failing.received.at(-1)?.headers['x-factory-event-id'];
    resolve();
    await promise;
    held = Promise.withResolvers<void>();
    await eventually(async () => {
      const { body } = await owner.get<{ deliveries: { eventId: string; outcome: string }[] }>(
        `/assistants/${assistantId}/deliveries`,
      );
      expect(body.deliveries.find((one) => one.eventId === eventId)?.outcome).toBe('rejected');
    });
  };

  await failAfter(null);
  await eventually(async () => expect(await failingSince()).toEqual(expect.any(String)));
  const since = await failingSince();
  const { endpoints } = (await owner.get<{ endpoints: object }>(`/assistants/${assistantId}/overview`)).body;
  expect(endpoints).toEqual({ all: 1, enabled: 1, paused: 0, failing: 1 });
  await owner.call('PATCH', at, { url: failing.url });
  expect(await failingSince()).toBe(since);
  await owner.call('PATCH', at, { url: other.url });
  expect(await failingSince()).toBeNull();

  await owner.call('PATCH', at, { url: failing.url });
  await failAfter({ url: other.url });
  expect(await failingSince()).toBeNull();

  await owner.call('PATCH', at, { url: failing.url });
  await failAfter({ enabled: false });
  expect(await failingSince()).toBeNull();
});

test('a rotation with overlap signs with both secrets, new first; one without overlap, with the new one alone', async () => {
  const { assistantId } = await anAssistant(stack);
  const { endpoints } = stack.service;
  const receiver = await aReceiver();
  const { endpoint, secret: first } = await endpoints.addEndpoint(assistantId, { url: receiver.url });
  const feed = createFeed(stack.service);
  const hear = async (text: string) => {
    // A stream may have read its endpoint up to 2 s ago, so each event has a stream of its own.
    const [key = ''] = await feed.openConversations(assistantId, 1);
    await feed.say(assistantId, key, [text]);
    const received = await receiver.waitFor((all) => all.some(({ body }) => body.includes(text)));
    return received.at(-1) as (typeof received)[number];
  };
  const judge = ({ body, headers }: Awaited<ReturnType<typeof hear>>, secret: string) =>
    verifyWebhook(body, headers['x-factory-signature'], [secret]).ok;
  const count = ({ headers }: Awaited<ReturnType<typeof hear>>) =>
    String(headers['x-factory-signature']).split(',').length - 1;

  const { secret: second } = await endpoints.rotateSecret(endpoint.endpointId, 24);
  const overlapping = await hear('overlapping');
  const { secret: third } = await endpoints.rotateSecret(endpoint.endpointId);
  const after = await hear('afterwards');
  await endpoints.rotateSecret(endpoint.endpointId, 1);
  await stack.service.mongo
    .collection('endpoints')
    .updateOne({ _id: endpoint.endpointId as never }, { $set: { 'secrets.1.until': new Date(Date.now() - 1) } });
  const lapsed = await hear('lapsed');

  expect(count(overlapping)).toBe(2);
  expect([first, second].map((secret) => judge(overlapping, secret))).toEqual([true, true]);
  const [newFirst = ''] = String(overlapping.headers['x-factory-signature']).split(',').slice(1);
  const t = String(overlapping.headers['x-factory-signature']).split(',')[0];
  expect(verifyWebhook(overlapping.body, `${t},${newFirst}`, [second]).ok).toBe(true);
  expect([count(after), judge(after, third), judge(after, second)]).toEqual([1, true, false]);
  expect([count(lapsed), judge(lapsed, third)]).toEqual([1, false]);
  for (const hours of [-1, 169, Number.NaN]) {
    await expect(endpoints.rotateSecret(endpoint.endpointId, hours)).rejects.toMatchObject({
      code: 'validation_failed',
    });
  }
});

test('secrets are shown once and stored sealed; concurrent rotations happen one after the other', async () => {
  const { assistantId } = await anAssistant(stack);
  const { endpoints, mongo } = stack.service;
  const { endpoint, secret } = await endpoints.addEndpoint(assistantId, { url: URL });

  const rotated = await Promise.all([1, 2, 3].map(() => endpoints.rotateSecret(endpoint.endpointId, 1)));
  const stored = JSON.stringify(await mongo.collection('endpoints').findOne({ assistantId }));
  const shown = JSON.stringify([
    await endpoints.listEndpoints(assistantId),
    await endpoints.getEndpoint(endpoint.endpointId),
  ]);

  expect(secret).toMatch(/^whsec_[\w+/]{43}=$/);
  for (const one of [secret, ...rotated.map((result) => result.secret)]) {
    expect(stored).not.toContain(one);
    expect(stored).not.toContain(one.slice(6));
    expect(shown).not.toContain(one);
  }
  expect(stored).toContain('v1.development.');
  expect(shown).not.toContain('sealed');
  const row = await endpoints.readForSending(endpoint.endpointId);
  const live = endpoints.openSecrets(row as NonNullable<typeof row>, Date.now());
  expect(live).toHaveLength(2);
  for (const one of live) expect(rotated.map((result) => result.secret)).toContain(one);
});

type Shown = { endpointId: string; headers: { name: string; value: string | null; secret: boolean }[] };
const anOwnersEndpoint = async (url: string, more: object = {}) => {
  const owner = await anOperator(stack);
  const { assistantId } = await anAssistant(stack);
  const added = await owner.post<{ endpoint: Shown; secret: string }>(`/assistants/${assistantId}/endpoints`, {
    url,
    ...more,
  });
  expect(added.status).toBe(201);
  const { endpoint, secret } = added.body;
  const path = `/endpoints/${endpoint.endpointId}`;
  /** Sends a test event, and returns what arrived and what is shown of it. */
  const sendTest = async (receiver: Receiver) => {
    const before = receiver.received.length;
    const { body } = await owner.post<{ deliveryId: string }>(`${path}/test`);
    const received = await receiver.waitFor(({ length }) => length > before);
    const delivery = await eventually(async () => {
      const read = await owner.get<{ outcome: string; requestHeaders: Record<string, string> }>(
        `/deliveries/${body.deliveryId}`,
      );
      expect(read.body.outcome).toBe('delivered');
      return read.body;
    });
    return { arrived: received.at(-1)?.headers ?? {}, delivery };
  };
  return { owner, assistantId, endpoint, secret, path, sendTest };
};

test('own headers are sent with every event; secret ones are sealed, hidden, and kept without their value', async () => {
  const receiver = await aReceiver();
  const headers = [
    { name: 'Authorization', value: 'Basic c2VjcmV0LW9uZQ==' },
    { name: 'X-Team', value: 'blue & green', secret: false },
  ];
  const { owner, endpoint, path, sendTest } = await anOwnersEndpoint(receiver.url, { headers });

  const { arrived, delivery } = await sendTest(receiver);
  const changed = await owner.call<Shown>('PATCH', path, {
    headers: [{ name: 'authorization' }, { name: 'X-Team', value: 'red', secret: false }],
  });
  const after = await sendTest(receiver);
  const none = await owner.call<Shown>('PATCH', path, { headers: [] });

  expect(arrived).toMatchObject({ authorization: 'Basic c2VjcmV0LW9uZQ==', 'x-team': 'blue & green' });
  expect(delivery.requestHeaders).toMatchObject({ Authorization: '[redacted]', 'X-Team': 'blue & green' });
  const shown = [
    { name: 'Authorization', value: null, secret: true },
    { name: 'X-Team', value: 'blue & green', secret: false },
  ];
  expect(endpoint.headers).toEqual(shown);
  expect(changed.body.headers).toEqual([shown[0], { ...shown[1], value: 'red' }]);
  expect(after.arrived).toMatchObject({ authorization: 'Basic c2VjcmV0LW9uZQ==', 'x-team': 'red' });
  expect(none.body.headers).toEqual([]);
  const audit = await owner.get('/audit');
  const { mongo } = stack.service;
  const stored = await Promise.all(['endpoints', 'deliveries'].map((name) => mongo.collection(name).find().toArray()));
  expect(JSON.stringify([audit.body, stored])).not.toContain('c2VjcmV0LW9uZQ');
  expect(JSON.stringify(audit.body)).toContain('Authorization, X-Team');
});

test('a secret header is not sent to another address than the one it was given for', async () => {
  const [one, other] = [await aReceiver(), await aReceiver()];
  const headers = [{ name: 'X-Token', value: 'mine' }];
  const { owner, path, sendTest } = await anOwnersEndpoint(one.url, { headers });

  const moved = await owner.call<{ error: { field: string } }>('PATCH', path, { url: other.url });
  const kept = await owner.call<{ error: { field: string } }>('PATCH', path, {
    url: other.url,
    headers: [{ name: 'X-Token' }],
  });
  const samePlace = await owner.call('PATCH', path, { url: `${one.url}/hook` });
  const given = await owner.call('PATCH', path, { url: other.url, headers });

  expect([moved, kept].map(({ status, body }) => [status, body.error.field])).toEqual([
    [422, 'headers'],
    [422, 'headers'],
  ]);
  expect([samePlace.status, given.status]).toEqual([200, 200]);
  expect((await sendTest(other)).arrived['x-token']).toBe('mine');
});

test.each([
  [[{ name: 'Host', value: 'a' }], 'headers.0.name'],
  [[{ name: 'content-length', value: '1' }], 'headers.0.name'],
  [[{ name: 'Transfer-Encoding', value: 'chunked' }], 'headers.0.name'],
  [[{ name: 'X-FACTORY-Event', value: 'a' }], 'headers.0.name'],
  [[{ name: 'Webhook-Id', value: 'a' }], 'headers.0.name'],
  [[{ name: 'a b', value: 'a' }], 'headers.0.name'],
  [[{ name: 'X-A', value: 'zq\r\nX-B: 1' }], 'headers.0.value'],
  [[{ name: 'X-A', value: ' zq' }], 'headers.0.value'],
  [[{ name: 'X-A', value: 'zqü' }], 'headers.0.value'],
  [[{ name: 'X-A', value: 'zq'.repeat(513) }], 'headers.0.value'],
  [[{ name: 'X-A' }], 'headers.0.value'],
  [['X-A', 'x-a'].map((name) => ({ name, value: 'zq' })), 'headers'],
  [[1, 2, 3, 4].map((nth) => ({ name: `X-${nth}`, value: 'zq'.repeat(512) })), 'headers'],
  [Array.from({ length: 21 }, (_, nth) => ({ name: `X-${nth}`, value: 'zq' })), 'headers'],
])('headers %j are refused at %s, without their values', async (headers, field) => {
  const owner = await anOperator(stack);
  const { assistantId } = await anAssistant(stack);

  const { status, body } = await owner.post<{ error: { field: string } }>(`/assistants/${assistantId}/endpoints`, {
    url: URL,
    headers,
  });

  expect([status, body.error.field]).toEqual([422, field]);
  expect(JSON.stringify(body)).not.toContain('zq');
});

test.each([0, -1, 1.5, 101, 1e9, '5'])('a rate of %j a second is refused', async (ratePerSecond) => {
  const { owner, path } = await anOwnersEndpoint(URL, { ratePerSecond: 100 });

  const { status, body } = await owner.call<{ error: { field: string } }>('PATCH', path, { ratePerSecond });

  expect([status, body.error.field]).toEqual([422, 'ratePerSecond']);
});

test('the library of Standard Webhooks verifies an event with the secret as it was shown, and with both in an overlap', async () => {
  const receiver = await aReceiver();
  const { owner, secret, path, sendTest } = await anOwnersEndpoint(receiver.url);
  const plain = await sendTest(receiver);
  await owner.call('PATCH', path, { standardWebhooks: true });
  const { arrived, delivery } = await sendTest(receiver);
  const { body: rotated } = await owner.post<{ secret: string }>(`${path}/rotate`, { overlapHours: 1 });
  const both = await sendTest(receiver);

  const verify = (key: string, { body, headers }: Receiver['received'][number]) =>
    new Webhook(key).verify(body.toString(), headers as Record<string, string>) as { event_id: string };
  const [first, second, third] = receiver.received;
  expect(plain.arrived).not.toHaveProperty('webhook-id');
  expect(() => verify(secret, first!)).toThrow('Missing required headers');
  expect(verify(secret, second!).event_id).toBe(arrived['webhook-id']);
  expect(arrived['webhook-id']).toBe(arrived['x-factory-event-id']);
  expect(arrived['x-factory-signature']).toContain(`t=${String(arrived['webhook-timestamp'])},`);
  expect(delivery.requestHeaders['webhook-signature']).toBe('v1,[redacted]');
  expect(String(both.arrived['webhook-signature']).split(' ')).toHaveLength(2);
  for (const key of [secret, rotated.secret]) expect(verify(key, third!)).toMatchObject({ event: 'webhook.test' });
  expect(() => verify(rotated.secret, second!)).toThrow('No matching signature');
  expect(() => verify(secret, { ...second!, body: Buffer.from('{}') })).toThrow('No matching signature');
  const keys = [secret, secret.replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')];
  expect(keys.map((key) => verifyWebhook(second!.body, arrived['x-factory-signature'], [key]).ok)).toEqual([
    true,
    false,
  ]);
});
