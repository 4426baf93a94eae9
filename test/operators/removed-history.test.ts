import { randomUUID } from 'node:crypto';
import { connect, type Socket } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { networkOf } from '../../src/platform/http/shares.ts';
import { SENT_AGAIN_MAX } from '../../src/events/delivery.ts';
import { anAssistant, aTurn } from '../support/builders.ts';
import { limiterOf } from '../support/limits.ts';
import { anOperator } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { collectionIn, examinedBy, profileStatements } from '../support/profile.ts';
import { sized } from '../support/size.ts';
import { useOpened, useStack } from '../support/stack.ts';

// What one assistant has used, or sends slowly, must not be read again for each request, nor keep out another one.

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0, env: { TRUST_PROXY: '1' } });
const LARGE = 'x'.repeat(10_000);
const DAY_MS = 86_400_000;
const owner = useOpened(() => anOperator(stack));

const store = async (collection: string, rows: object[]): Promise<void> => {
  await stack.service.mongo.collection(collection).insertMany(rows);
};

/** An ended delivery as it is stored. */
const aDelivery = (assistantId: string, endpointId: string, eventId = randomUUID(), resent = 0) => ({
  _id: `${eventId}:${endpointId}${resent > 0 ? `:${resent}` : ''}`,
  eventId,
  endpointId,
  assistantId,
  conversationId: null,
  url: 'http://127.0.0.1:9/',
  event: 'webhook.test',
  redelivery: resent > 0,
  outcome: 'rejected',
  status: 500,
  body: LARGE,
  responseBody: LARGE,
  worker: null,
  token: null,
  createdAt: new Date(),
  endedAt: new Date(),
  happenedAt: new Date(),
  expiresAt: new Date(Date.now() + DAY_MS),
});

test('an event is sent again so often and no more, and its deliveries are read without their texts', async () => {
  const { assistantId } = await anAssistant(stack);
  const { endpoint } = await stack.service.endpoints.addEndpoint(assistantId, { url: 'http://127.0.0.1:9/h' });
  const eventId = randomUUID();
  const all = Array.from({ length: SENT_AGAIN_MAX + 1 }, (_, nth) =>
    aDelivery(assistantId, endpoint.endpointId, eventId, nth),
  );
  await store('deliveries', all);
  const path = `/deliveries/${all[0]?._id}`;

  const sent = await profileStatements(stack, async () => {
    expect((await owner.get(path)).status).toBe(200);
  });
  const refused = await owner.post(`${path}/resend`, { number: SENT_AGAIN_MAX + 1, mayDouble: true });

  const bytes = sent.reduce((sum, { responseLength = 0 }) => sum + responseLength, 0);
  expect(bytes).toBeLessThan(10 * LARGE.length);
  expect(problemOf(refused)).toBe('422 validation_failed');
  expect(JSON.stringify(refused.body)).toContain(`${SENT_AGAIN_MAX} times`);
});

test('an assistant does not use new endpoints again and again, and another one may add its own', async () => {
  const [one, other] = [await anAssistant(stack), await anAssistant(stack)];
  await store(
    'deliveries',
    Array.from({ length: 500 }, () => aDelivery(one.assistantId, randomUUID())),
  );
  const add = ({ assistantId }: typeof one) =>
    owner.post(`/assistants/${assistantId}/endpoints`, { url: 'http://127.0.0.1:9/h' });

  expect(problemOf(await add(one))).toBe('422 validation_failed');
  expect((await add(other)).status).toBe(201);
});

test('a list of the deliveries of many endpoints reads the places of each, and only its page whole', async () => {
  const { assistantId } = await anAssistant(stack);
  const endpointIds = Array.from({ length: 100 }, () => randomUUID());
  const rows = Array.from({ length: 2_000 }, (_, nth) => {
    const createdAt = new Date(Date.now() - nth * 1_000);
    return { ...aDelivery(assistantId, endpointIds[nth % 100] ?? ''), createdAt, body: '', responseBody: '' };
  });
  await store('deliveries', rows);
  type Page = { deliveries: { deliveryId: string }[]; nextCursor: string | null };
  const list = async (query: string): Promise<Page> =>
    (await owner.get<Page>(`/assistants/${assistantId}/deliveries?limit=200${query}`)).body;

  const sent = await profileStatements(stack, async () => {
    expect((await list('')).deliveries).toHaveLength(200);
  });
  const listed: string[] = [];
  for (let query: string | null = ''; query !== null; ) {
    const { deliveries, nextCursor } = await list(query);
    listed.push(...deliveries.map(({ deliveryId }) => deliveryId));
    query = nextCursor && `&cursor=${nextCursor}`;
  }

  expect(listed).toEqual(rows.map(({ _id }) => _id));
  const read = sent.filter((one) => collectionIn(one) === 'deliveries');
  expect(read.reduce((sum, { docsExamined = 0 }) => sum + docsExamined, 0)).toBe(200);
});

test('the usage of an old day reads the hours of that day', async () => {
  const { assistantId } = await anAssistant(stack);
  const day = Math.floor(Date.now() / DAY_MS) * DAY_MS - 300 * DAY_MS;
  const hours = Array.from({ length: 2_000 }, (_, nth) => {
    const hour = new Date(day + nth * 3_600_000);
    return { _id: `${assistantId}:${hour.toISOString()}`, assistantId, hour, turns: 1 };
  });
  await store('figures', hours);
  const date = new Date(day).toISOString().slice(0, 10);

  const sent = await profileStatements(stack, async () => {
    expect((await owner.get(`/assistants/${assistantId}/usage?from=${date}&to=${date}`)).status).toBe(200);
  });

  const ofFigures = sent.filter((statement) => collectionIn(statement) === 'figures');
  expect(ofFigures.length).toBeGreaterThan(0);
  expect(ofFigures.reduce((sum, statement) => sum + examinedBy(statement), 0)).toBeLessThan(200);
});

test('a network that asks for what does not exist is limited, and another one is not', async () => {
  const { chat } = await anAssistant(stack);
  const ask = (address: string) =>
    fetch(`${stack.url}/nothing`, { headers: { 'X-Forwarded-For': address } }).then(({ status }) => status);
  // Every day, most requests are only counted.
  const counted = sized({ everyday: 580, long: 0 });
  const limiter = limiterOf(stack);
  await Promise.all(Array.from({ length: counted }, () => limiter.forUnknown(networkOf('203.0.113.7'))));
  const flood = await Promise.all(Array.from({ length: 650 - counted }, () => ask('203.0.113.7')));

  expect(flood.filter((status) => status === 404)).toHaveLength(600 - counted);
  expect(flood.filter((status) => status === 429)).toHaveLength(50);
  expect(await ask('203.0.113.200')).toBe(404);
  const headers = { 'X-Forwarded-For': '203.0.113.7', Prefer: 'respond-async' }; // no worker answers
  expect((await chat(aTurn(), { headers })).status).toBe(202);
});

test('slow uploads of one assistant’s tokens leave a place to another assistant', async () => {
  const [slow, beside, neighbour] = [await anAssistant(stack), await anAssistant(stack), await anAssistant(stack)];
  const aToken = async (...assistantIds: string[]) => {
    const { body } = await owner.post<{ secret: string }>('/tokens', { name: 'p', scope: 'manage', assistantIds });
    return body.secret;
  };
  const upload = (secret: string): Socket => {
    const socket = connect(Number(new URL(stack.url).port), '127.0.0.1');
    onTestFinished(() => void socket.destroy());
    const path = `/operator/v1/assistants/${slow.assistantId}/source-files?name=a.md`;
    socket.write(
      `POST ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${secret}\r\nContent-Length: 100000\r\n\r\nx`,
    );
    return socket;
  };
  for (const secret of [await aToken(slow.assistantId), await aToken(slow.assistantId, beside.assistantId)])
    for (let nth = 0; nth < 3; nth += 1) upload(secret);

  const secret = await aToken(neighbour.assistantId);
  const answer = await fetch(`${stack.url}/operator/v1/assistants/${neighbour.assistantId}/source-files?name=b.md`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${secret}` },
    body: '# Hours\n\nWe are open at nine.',
  });

  expect(answer.status).toBe(201);
});
