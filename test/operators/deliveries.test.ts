import { randomUUID } from 'node:crypto';
import { newRecord } from '../../src/events/claims.ts';
import { expect, test } from 'vitest';
import { anAssistant, aTurn } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { collectionIn, profileStatements } from '../support/profile.ts';
import { openReceiver } from '../kit/receiver.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0 });

type Row = { deliveryId: string; event: string; outcome: string; url: string | null };

test('a queued delivery is shown without a request, and after sending with it', async () => {
  const owner = await anOperator(stack);
  const receiver = await openReceiver();
  const { assistantId, chat } = await anAssistant(stack);
  const { endpoint } = await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const { body: said } = await chat(aTurn());
  const list = async () =>
    (await owner.get<{ deliveries: Row[] }>(`/assistants/${assistantId}/deliveries`)).body.deliveries;

  const waiting = await list();
  const read = await Promise.all(waiting.map(({ deliveryId }) => owner.get<Row>(`/deliveries/${deliveryId}`)));

  const figures = () =>
    owner
      .get<{ deliveries: Record<string, number> }>(`/assistants/${assistantId}/overview`)
      .then(({ body }) => body.deliveries);
  expect(await figures()).toMatchObject({ queued: 2, sending: 0, delivered: 0 });
  expect(waiting.map(({ event }) => event).toSorted()).toEqual(['conversation.created', 'message.received']);
  for (const [nth, { status, body }] of read.entries()) {
    expect(status).toBe(200);
    expect(body).toMatchObject({
      ...waiting[nth],
      outcome: 'queued',
      endpointId: endpoint.endpointId,
      conversationId: said.conversationId,
      body: null,
      resend: null,
      worker: null,
      expiresAt: null,
    });
  }
  const [eventId] = waiting[0]?.deliveryId.split(':') ?? [];
  expect(problemOf(await owner.get(`/deliveries/${eventId}:${randomUUID()}`))).toBe('404 not_found');
  expect(problemOf(await owner.get(`/deliveries/${randomUUID()}:${endpoint.endpointId}`))).toBe('404 not_found');

  await stack.startDeliveryWorker();
  await receiver.waitFor((all) => all.length >= 2);
  await eventually(async () => {
    const after = await Promise.all(waiting.map(({ deliveryId }) => owner.get<Row>(`/deliveries/${deliveryId}`)));
    expect(after.map(({ body }) => body.outcome)).toEqual(['delivered', 'delivered']);
    expect(after.every(({ body }) => body.url === receiver.url)).toBe(true);
    expect(await figures()).toMatchObject({ queued: 0, sending: 0, delivered: 2 });
  });
});

/** Stores ended deliveries, one per second, for more endpoints than one index query covers. */
const manyDeliveries = async (assistantId: string) => {
  const endpoints = Array.from({ length: 40 }, () => randomUUID());
  const records = Array.from({ length: 120 }, (_, nth) => {
    const at = new Date(Date.UTC(2026, 0, 1, 0, 0, nth));
    const event = nth % 10 === 0 ? ('webhook.test' as const) : ('message.received' as const);
    const endpointId = endpoints[nth % 40] ?? '';
    const claim = { eventId: randomUUID(), endpointId, assistantId, conversationId: randomUUID(), event };
    const record = newRecord(
      { ...claim, url: 'https://hooks.example.com', body: '{}', happenedAt: at },
      { worker: 'a', retentionDays: 30 },
    );
    const status = nth % 3 === 0 ? 200 : nth % 3 === 1 ? 404 : 500;
    const outcome = status === 200 ? ('delivered' as const) : ('rejected' as const);
    return { ...record, outcome, status, createdAt: at, endedAt: at };
  });
  await stack.service.mongo.collection('deliveries').insertMany(records as object[]);
  return { endpoints, records: records.toReversed() };
};

test('lists with a filter, which may read all deliveries of an assistant, take turns, whoever asks', async () => {
  const owner = await anOperator(stack);
  const assistants = await Promise.all(Array.from({ length: 8 }, () => anAssistant(stack)));
  const large = new Set<string>();
  const asks = assistants.map(async ({ assistantId }) => {
    const { records } = await manyDeliveries(assistantId);
    large.add(records[0]?.endpointId ?? '');
    const rejected = Array.from({ length: 3_000 }, () => ({ ...records[0], outcome: 'rejected', _id: randomUUID() }));
    await stack.service.mongo.collection('deliveries').insertMany(rejected as object[]);
    const limits = { scope: 'read', assistantIds: [assistantId] };
    const { body } = await owner.post<{ secret: string }>('/tokens', { name: 'a program', ...limits });
    const path = `/assistants/${assistantId}/deliveries?outcome=delivered&limit=1`;
    return () => fetch(`${stack.url}/operator/v1${path}`, { headers: { Authorization: `Bearer ${body.secret}` } });
  });
  const all = await Promise.all(asks);

  const statements = await profileStatements(stack, async () => {
    const answers = await Promise.all(all.map((ask) => ask()));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
  });

  const lists = statements
    .filter((one) => collectionIn(one) === 'deliveries' && JSON.stringify(one.command).includes('"delivered"'))
    .filter(({ command }) => [...large].some((id) => JSON.stringify(command).includes(id)))
    .map(({ ts, millis }) => ({ from: ts.getTime() - millis, to: ts.getTime() }));
  expect(lists).toHaveLength(all.length);
  // The times are whole milliseconds.
  const atBegin = ({ from }: { from: number }): number =>
    lists.filter((one) => one.from <= from && from + 2 < one.to).length;
  expect(Math.max(...lists.map(atBegin))).toBeLessThanOrEqual(4);
});

test('the list is newest first on every page, for each filter and many endpoints', async () => {
  const owner = await anOperator(stack);
  const { assistantId } = await anAssistant(stack);
  const { endpoints, records } = await manyDeliveries(assistantId);
  const [endpointId = ''] = endpoints;
  const from = records[59]?.createdAt.toISOString() ?? '';
  const pages = async (query: string): Promise<string[]> => {
    const ids: string[] = [];
    let cursor = '';
    do {
      const { status, body } = await owner.get<{ deliveries: Row[]; nextCursor: string | null }>(
        `/assistants/${assistantId}/deliveries?limit=7&${query}${cursor}`,
      );
      expect(status).toBe(200);
      ids.push(...body.deliveries.map(({ deliveryId }) => deliveryId));
      cursor = body.nextCursor === null ? '' : `&cursor=${body.nextCursor}`;
    } while (cursor !== '');
    return ids;
  };
  const those = (wanted: (one: (typeof records)[number]) => boolean) => records.filter(wanted).map(({ _id }) => _id);

  expect(await pages('')).toEqual(those(() => true));
  expect(await pages('event=webhook.test')).toEqual(those(({ event }) => event === 'webhook.test'));
  expect(await pages('outcome=delivered')).toEqual(those(({ outcome }) => outcome === 'delivered'));
  expect(await pages('outcome=rejected')).toEqual(those(({ outcome }) => outcome === 'rejected'));
  expect(await pages('outcome=sending')).toEqual([]);
  expect(await pages('status=404')).toEqual(those(({ status }) => status === 404));
  expect(await pages(`endpointId=${endpointId}`)).toEqual(those((one) => one.endpointId === endpointId));
  expect(await pages(`from=${from}`)).toEqual(those(({ createdAt }) => createdAt.toISOString() >= from));
  expect(await pages(`to=${from}&status=500`)).toEqual(
    those(({ createdAt, status }) => createdAt.toISOString() < from && status === 500),
  );
  expect(problemOf(await owner.get(`/assistants/${assistantId}/deliveries?status=200`))).toBe(
    '422 validation_failed status',
  );
  expect(await stack.service.deliveries.countOutcomes(assistantId, new Date(from))).toEqual({
    delivered: those(({ createdAt, outcome }) => createdAt.toISOString() >= from && outcome === 'delivered').length,
    rejected: those(({ createdAt, outcome }) => createdAt.toISOString() >= from && outcome === 'rejected').length,
    queued: 0,
    sending: 0,
  });
});
