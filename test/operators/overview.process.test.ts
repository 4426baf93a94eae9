import { randomUUID } from 'node:crypto';
import { beforeAll, expect, test } from 'vitest';
import { newRecord } from '../../src/events/claims.ts';
import { type Exchange, neverSent, type Outcome } from '../../src/events/delivery.ts';
import { sumOf } from '../../src/insights/summary.ts';
import { inSlices } from '../../src/platform/process/slices.ts';
import { createReadHours, overviewOperations } from '../../src/insights/http/overview.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { bucketOf } from '../../src/insights/figures.ts';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import type { AnswerOf } from '../kit/operations.ts';
import { openReceiver } from '../kit/receiver.ts';
import { type Stack, useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0 });
let owner: Awaited<ReturnType<typeof anOperator>>;
let worker: Awaited<ReturnType<Stack['startReplyWorker']>>;

beforeAll(async () => {
  owner = await anOperator(stack);
  worker = await stack.startReplyWorker();
});
type Overview = AnswerOf<typeof overviewOperations.read>;

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const dayOf = (at: number): string => new Date(at).toISOString().slice(0, 10);

const anOverview = async () => {
  const assistant = await anAssistant(stack);
  const { assistantId } = assistant;
  const read = async (query = '') => (await owner.get<Overview>(`/assistants/${assistantId}/overview${query}`)).body;
  return { assistant, assistantId, owner, read };
};

/** A delivery as it was recorded some time ago. */
const recordDelivery = (
  assistantId: string,
  at: number,
  exchange: Partial<Omit<Exchange, 'outcome'>> & { outcome?: Outcome },
  endpointId: string = randomUUID(),
) => {
  const claim = {
    eventId: randomUUID(),
    endpointId,
    assistantId,
    conversationId: randomUUID(),
    event: 'message.received' as const,
    url: 'https://hooks.example.com/parley',
    body: '{}',
    happenedAt: new Date(at),
  };
  const record = newRecord(claim, { worker: 'test', retentionDays: 30 });
  const ended = { ...neverSent('timeout'), errorKind: null, status: 200, outcome: 'delivered' as const };
  return stack.service.mongo
    .collection('deliveries')
    .insertOne({ ...record, ...ended, ...exchange, createdAt: new Date(at), endedAt: new Date(at) } as never);
};

test('the overview sums up today, 7 and 30 days, with a slot for each hour or day', async () => {
  const { assistant, assistantId, read, owner } = await anOverview();
  const figures = stack.service.mongo.collection('figures');
  const now = Date.now();
  const hours = [
    { at: now - 3 * DAY_MS, turns: 5, answered: 4, notAnswered: 1, resolved: 2 },
    { at: now - 20 * DAY_MS, turns: 7, answered: 7 },
    { at: now - 60 * DAY_MS, turns: 100 },
  ].map(({ at, ...counts }) => {
    const hour = new Date(Math.floor(at / HOUR_MS) * HOUR_MS);
    const _id = `${assistantId}:${hour.toISOString().slice(0, 13)}`;
    return { _id, assistantId, hour, ...counts, buckets: { [bucketOf(100)]: 98, [bucketOf(4_000)]: 2 } };
  });
  await figures.insertMany(hours as never);
  const { body } = await assistant.chat({ session_id: randomUUID(), message: 'What are your opening hours?' });
  await owner.post(`/conversations/${body.conversationId}/escalate`, {});

  const projected = { assistantId, 'escalated.manual': 1 };
  // Reading the overview again and again would cost much more.
  await eventually(async () => expect(await figures.findOne(projected)).not.toBeNull());
  await eventually(async () => expect((await read()).figures.totals.escalated.manual).toBe(1));

  const [today, week, month] = [await read(), await read('?days=7'), await read('?days=30&timeZone=Asia/Tokyo')];
  expect(today.figures.totals).toMatchObject({ turns: 1, answered: 1, escalated: { manual: 1, user_requested: 0 } });
  expect(today.figures.slots).toHaveLength(24);
  expect(week.figures.totals).toMatchObject({ turns: 6, answered: 5, notAnswered: 1, resolved: 2 });
  expect(week.figures.slots.map(({ at }) => at)).toEqual(
    [6, 5, 4, 3, 2, 1, 0].map((days) => dayOf(now - days * DAY_MS)),
  );
  expect(week.figures.slots.find(({ at }) => at === dayOf(now - 3 * DAY_MS))?.turns).toBe(5);
  expect(month.figures.slots).toHaveLength(30);
  expect(month.figures.totals).toMatchObject({ turns: 13, answered: 12 });
  expect(month.figures.busiestHours.reduce((sum, count) => sum + count, 0)).toBe(13);
  const { p50, p95 } = month.figures.totals.replyMs ?? { p50: 0, p95: 0 };
  expect(p50).toBeGreaterThanOrEqual(100);
  expect(p50).toBeLessThanOrEqual(125);
  expect(p95).toBeLessThanOrEqual(125);
  expect((await owner.get(`/assistants/${assistantId}/overview?timeZone=Mars/Olympus`)).status).toBe(422);
  expect((await owner.get(`/assistants/${assistantId}/overview?days=400`)).status).toBe(422);
});

test('deliveries are counted by outcome, those of ended hours in the background', async () => {
  const { assistantId, read } = await anOverview();
  const now = Date.now();
  for (const hoursAgo of [0, 2, 50, 50]) await recordDelivery(assistantId, now - hoursAgo * HOUR_MS, {});
  await recordDelivery(assistantId, now - 50 * HOUR_MS, { outcome: 'rejected', status: 500 });
  await recordDelivery(assistantId, now - 2 * HOUR_MS, { outcome: 'unknown', status: null });

  // A worker counts at its start, and again only after ten seconds.
  await worker.close();
  worker = await stack.startReplyWorker();

  const { deliveryFigures } = stack.service.insights;
  await eventually(async () => {
    expect((await deliveryFigures.countedTo(assistantId))?.getTime()).toBeGreaterThan(now - 3 * HOUR_MS);
  });
  await eventually(async () => {
    const { totals } = (await read('?days=7')).figures;
    expect(totals.deliveries).toEqual({ delivered: 4, rejected: 1, not_sent: 0, unknown: 1 });
  });
});

test('an assistant whose deliveries take too long to count does not stop the count of the others', async () => {
  const [slow, other] = [`a-${randomUUID()}`, `b-${randomUUID()}`];
  const { deliveryFigures } = stack.service.insights;
  const count = async (assistantId: string, { from, to }: { from: Date; to: Date }) => {
    if (assistantId !== slow || to.getTime() - from.getTime() <= HOUR_MS) return [];
    await new Promise((resolve) => setTimeout(resolve, 300)); // longer than one call may work
    throw Object.assign(new Error('operation exceeded time limit'), { codeName: 'MaxTimeMSExpired' });
  };

  const { signal: draining } = new AbortController();
  const logger = createLogger({ name: 'test', level: 'silent' });
  for (let rounds = 0; rounds < 4; rounds += 1)
    await deliveryFigures.countEnded([slow, other], count, { draining, logger });

  expect(await deliveryFigures.countedTo(other)).not.toBeNull();
  expect(await deliveryFigures.countedTo(slow)).not.toBeNull();
});

test('deliveries in flight are not counted as delivered, and the first hour that is counted is whole', async () => {
  const assistantId = randomUUID(); // no worker counts an assistant that does not exist
  const now = Date.now();
  const firstHour = Math.floor((now - 23 * HOUR_MS) / HOUR_MS) * HOUR_MS;
  for (const at of [firstHour, firstHour + HOUR_MS - 1, now]) await recordDelivery(assistantId, at, {});
  for (const outcome of ['queued', 'sending'] as const)
    await recordDelivery(assistantId, now, { outcome, status: null });

  const hours = await createReadHours(stack.service)(assistantId, new Date(now - 8 * DAY_MS));

  expect((await inSlices(sumOf(hours))).deliveries).toEqual({ delivered: 3, rejected: 0, not_sent: 0, unknown: 0 });
});

test('what is unhealthy is told: a paused endpoint, an expiring certificate, a failing engine', async () => {
  const { assistant, assistantId, owner, read } = await anOverview();
  const healthy = await read();
  const gone = await openReceiver({ respond: () => ({ status: 410 }) });
  try {
    const add = (url: string) =>
      owner.post<{ endpoint: { endpointId: string } }>(`/assistants/${assistantId}/endpoints`, {
        url,
        events: ['tag.added'],
      });
    const paused = (await add(`${gone.url}/gone`)).body.endpoint;
    const expiring = (await add('https://hooks.example.com/parley')).body.endpoint;
    const tls = { version: 'TLSv1.3', daysToExpiry: 12 };
    await recordDelivery(assistantId, Date.now() - DAY_MS, { tls }, expiring.endpointId);
    const hour = new Date(Math.floor(Date.now() / HOUR_MS) * HOUR_MS);
    const _id = `${assistantId}:${hour.toISOString().slice(0, 13)}` as never;
    await stack.service.mongo
      .collection('figures')
      .insertOne({ _id, assistantId, hour, turns: 10, answered: 10, engineErrors: 4, byWordsOnly: 3 });
    const { body } = await assistant.chat({ session_id: randomUUID(), message: 'What are your opening hours?' });
    await owner.post(`/conversations/${body.conversationId}/tags`, { tag: 'a' });

    await eventually(async () => {
      const { unhealthy } = await read();
      expect(unhealthy.map(({ kind }) => kind).toSorted()).toEqual([
        'certificate_expires',
        'endpoint_paused',
        'engine_failing',
        'model_busy',
      ]);
      expect(unhealthy).toContainEqual(
        expect.objectContaining({ kind: 'endpoint_paused', endpointId: paused.endpointId, reason: 'gone' }),
      );
      expect(unhealthy).toContainEqual(
        expect.objectContaining({ kind: 'certificate_expires', endpointId: expiring.endpointId }),
      );
    });
    expect(healthy.unhealthy).toEqual([]);
  } finally {
    await gone.close();
  }
});
