import { expect, test } from 'vitest';
import { runAdmin } from '../support/admin.ts';
import { aTurn, anAssistant, request } from '../support/builders.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0, env: { REPLY_TIMEOUT_MS: '200' } });

type Found = { count: number; oldestMs: number; examples: string[] };
type Report = {
  ok: boolean;
  problems: string[];
  mongodb: { reachable: boolean; version: string; ms: number };
  redis: { reachable: boolean };
  queues:
    | { name: string; workers: { silent: boolean }[]; jobs: Record<string, number>; waitingSince: string | null }[]
    | null;
  stuck: Record<'staleHeads' | 'oldEvents' | 'sending' | 'queued', Found> | null;
};

const doctor = async (env: Record<string, string> = {}): Promise<{ status: number; report: Report }> => {
  const { status, stdout } = await runAdmin({ ...stack.env, ...env }, ['doctor', '--json']);
  return { status, report: JSON.parse(stdout) as Report };
};

test('without workers the doctor names what waits; with workers it finds no problem', async () => {
  const { assistantId, chat } = await anAssistant(stack);
  const { endpoint } = await stack.service.endpoints.addEndpoint(assistantId, { url: 'http://127.0.0.1:9999/hook' });
  const { body } = await chat(aTurn());
  const deliveryId = await stack.service.deliveries.queueTest(endpoint);
  const { sourceId } = await stack.service.sources.add(assistantId, { kind: 'page', url: 'http://127.0.0.1:9/' });
  // All stored times are moved back by a minute.
  const minuteAgo = new Date(Date.now() - 60_000);
  const { mongo } = stack.service;
  await mongo.collection('conversations').updateMany({}, [
    {
      $set: {
        waiting: { $map: { input: '$waiting', in: { $mergeObjects: ['$$this', { acceptedAt: minuteAgo }] } } },
        outbox: { $map: { input: '$outbox', in: { $mergeObjects: ['$$this', { at: minuteAgo }] } } },
      },
    },
  ]);
  await mongo.collection('deliveries').updateMany({}, { $set: { createdAt: minuteAgo } });
  await mongo.collection('sources').updateMany({}, { $set: { nextAt: new Date(Date.now() - 180_000) } });

  const ill = await doctor();
  await mongo.collection('deliveries').updateMany({}, { $set: { outcome: 'sending' } });
  const sending = await doctor();
  await mongo.dropDatabase();
  await stack.startReplyWorker();
  await stack.startDeliveryWorker();
  await stack.startSourcesWorker();
  const well = await doctor();

  expect(body).toMatchObject({ error: { code: 'reply_timeout' } });
  expect(ill.status).toBe(1);
  expect(ill.report).toMatchObject({ ok: false, mongodb: { reachable: true, ms: expect.any(Number) } });
  expect(ill.report.queues).toMatchObject([
    { name: 'turns', workers: [], jobs: { waiting: 1 }, waitingSince: expect.any(String) },
    { name: 'deliveries', workers: [] },
    { name: 'knowledge', workers: [] },
    { name: 'sources', workers: [] },
  ]);
  expect(ill.report.stuck).toMatchObject({
    staleHeads: { count: 1 },
    oldEvents: { count: 1 },
    sending: { count: 0 },
    queued: { count: 1, examples: [deliveryId] },
    sources: { count: 1, examples: [sourceId] },
  });
  expect(ill.report.stuck?.staleHeads.oldestMs).toBeGreaterThan(59_000);
  expect(ill.report.problems).toContain(
    'No worker of the queue turns is heard. Start one: node scripts/run.js start reply-worker.',
  );
  expect(ill.report.problems).toContainEqual(
    expect.stringMatching(/^Turns that no worker is answering: 1, the oldest for .+\. Start a reply worker/),
  );
  expect(sending.report.stuck).toMatchObject({ sending: { count: 1, examples: [deliveryId] }, queued: { count: 0 } });
  expect(well.report.problems).toEqual([]);
  expect(well).toMatchObject({
    status: 0,
    report: { ok: true, queues: Array.from({ length: 4 }, () => ({ workers: [{ silent: false }] })) },
  });
});

test('an unavailable store is reported with all other findings', async () => {
  const { status, report } = await doctor({ REDIS_URL: 'redis://127.0.0.1:1' });

  expect(status).toBe(1);
  expect(report).toMatchObject({ ok: false, mongodb: { reachable: true }, redis: { reachable: false }, queues: null });
  expect(report.problems).toEqual([
    expect.stringMatching(/^Redis does not answer at the address of the environment\. .*Check that it runs/),
  ]);
});

test('an encryption key that does not decrypt endpoint secrets is reported', async () => {
  const { assistantId } = await anAssistant(stack);
  await stack.service.endpoints.addEndpoint(assistantId, { url: 'http://127.0.0.1:9999/hook' });
  expect((await request(`${stack.url}/readyz`)).status).toBe(200);

  const { status, report } = await doctor({ ENCRYPTION_KEY: Buffer.alloc(32, 'another').toString('base64') });

  expect(status).toBe(1);
  expect(report.problems).toEqual([expect.stringMatching(/^ENCRYPTION_KEY does not open the secrets of 1 endpoints/)]);
});
