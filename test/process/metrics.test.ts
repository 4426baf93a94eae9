import type { IncomingMessage } from 'node:http';
import { expect, test } from 'vitest';
import { createMetrics } from '../../src/platform/process/metrics.ts';
import { anAssistant, aTurn, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { problemOf } from '../support/problem.ts';
import { openReceiver } from '../kit/receiver.ts';
import { aScriptedEngine } from '../support/scripted-engine.ts';
import { useStack } from '../support/stack.ts';

const { engine, hold } = aScriptedEngine(({ message }) => (message === 'human' ? { escalate: 'user_requested' } : {}));
const stack = useStack({ engine, replyWorkers: 0, deliveryWorkers: 0, env: { METRICS_TOKEN: 'let-me-read' } });

const read = async (url: string, headers: Record<string, string> = {}) => {
  const response = await fetch(`${url}/metrics`, { headers });
  const text = await response.text();
  /** The value of a series, which is named by its metric and its labels in the order of their declaration. */
  const value = (series: string): number | undefined => {
    const line = text.split('\n').find((one) => one.startsWith(`${series} `));
    return line === undefined ? undefined : Number(line.slice(series.length + 1));
  };
  return { status: response.status, headers: response.headers, text, value };
};

test('each process counts turns, replies, deliveries, repetitions, refusals and queues', async () => {
  const { assistantId, chat } = await anAssistant(stack);
  const limited = await anAssistant(stack, { limitPerMinute: 1 });
  const receiver = await openReceiver({ respond: (_request, nth) => ({ status: nth === 1 ? 500 : 200 }) });
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const turn = aTurn({ message: 'wait' });
  const apiShows = (series: string, count: number) =>
    eventually(async () => expect([series, (await read(stack.url)).value(series)]).toEqual([series, count]));

  const release = hold('wait');

  const first = chat(turn);
  await apiShows('parley_queue_jobs{queue="turns",state="waiting"}', 1);
  await apiShows('parley_queue_jobs{queue="deliveries",state="waiting"}', 1);
  expect((await read(stack.url)).value('parley_queue_age_seconds{queue="turns"}')).toBeGreaterThan(0);
  const joined = chat(turn);
  await apiShows('parley_repeated_requests_total{kind="joined"}', 1);
  const others = Array.from({ length: 19 }, (_, index) => chat({ ...turn, message: `one of ${index}` }));
  const full = { assistantId, 'waiting.19': { $exists: true } };
  await eventually(async () =>
    expect(await stack.service.mongo.collection('conversations').countDocuments(full)).toBe(1),
  );
  expect(problemOf(await chat({ ...turn, message: 'one too many' }))).toBe('429 session_busy');
  const reply = await stack.startReplyWorker();
  const delivery = await stack.startDeliveryWorker();
  release();
  await Promise.all([first, joined, ...others]);
  for (let count = 0; count < 2; count += 1) await chat({ ...turn, message: 'once more' });
  for (let count = 0; count < 2; count += 1) {
    await chat({ ...turn, message: 'key' }, { headers: { 'Idempotency-Key': 'k' } });
    await limited.call('/api/v1/conversations');
  }
  await chat({ ...turn, message: 'human' });
  await chat({ ...turn, message: 'anybody?' });

  const api = await read(stack.url);
  expect(api.value('parley_repeated_requests_total{kind="replayed"}')).toBe(1);
  expect(api.value('parley_repeated_requests_total{kind="keyed"}')).toBe(1);
  expect(api.value('parley_refused_requests_total{limit="key"}')).toBe(1);
  expect(api.value('parley_refused_requests_total{limit="session"}')).toBe(1);
  const worker = await read(`http://127.0.0.1:${reply.healthPort}`);
  expect(worker.value('parley_turns_total{outcome="answered"}')).toBe(22);
  expect(worker.value('parley_turns_total{outcome="handoff"}')).toBe(1);
  expect(worker.value('parley_turns_total{outcome="held"}')).toBe(1);
  expect(worker.value('parley_reply_seconds_count{outcome="answered"}')).toBe(22);
  expect(worker.value('parley_queue_jobs{queue="turns",state="waiting"}')).toBe(0);
  await eventually(async () => {
    const sent = await read(`http://127.0.0.1:${delivery.healthPort}`);
    expect(sent.value('parley_deliveries_total{outcome="delivered",kind="none"}')).toBe(25);
    expect(sent.value('parley_deliveries_total{outcome="rejected",kind="none"}')).toBe(1);
    expect(sent.value('parley_event_wait_seconds_count')).toBe(26);
  });
  for (const { text } of [api, worker]) expect(text).toContain('process_resident_memory_bytes');
  await receiver.close();
});

test('an address that fails too often counts as refused', async () => {
  const refused = async () => (await read(stack.url)).value('parley_refused_requests_total{limit="failing"}') ?? 0;
  const before = await refused();

  for (let count = 0; count < 62; count += 1) await request(`${stack.url}/api/v1/conversations`);

  expect((await refused()) - before).toBeGreaterThanOrEqual(2);
});

test('only a loopback peer without a proxy or a peer with the token may read', async () => {
  const proxied = { 'X-Forwarded-For': '203.0.113.1' };
  const allowed = await Promise.all([
    read(stack.url),
    read(stack.url, { Authorization: 'Bearer let-me-read' }),
    read(stack.url, { Authorization: 'Bearer let-me-read', ...proxied }),
  ]);
  const refused = [
    await request(`${stack.url}/metrics`, { headers: proxied }),
    await request(`${stack.url}/metrics`, { headers: { Forwarded: 'for=203.0.113.1' } }),
    await request(`${stack.url}/metrics`, { headers: { Via: '1.1 proxy' } }),
    await request(`${stack.url}/metrics`, { headers: proxied, bearer: 'let-me-reed' }),
  ];

  expect(allowed.map(({ status }) => status)).toEqual([200, 200, 200]);
  expect(allowed[0]?.headers.get('content-type')).toMatch(/^text\/plain; ?version=0\.0\.4/);
  expect(refused.map(problemOf)).toEqual(Array(4).fill('404 not_found'));
});

test.each([
  ['127.0.0.1', {}, undefined, true],
  ['::1', {}, undefined, true],
  ['::ffff:127.0.0.1', {}, undefined, true],
  ['10.0.0.1', {}, undefined, false],
  ['::ffff:10.0.0.1', {}, undefined, false],
  ['10.0.0.1', { authorization: 'Bearer undefined' }, undefined, false],
  ['10.0.0.1', { authorization: 'Bearer right' }, 'right', true],
  ['10.0.0.1', { authorization: 'Bearer ' }, 'right', false],
  ['10.0.0.1', { authorization: 'Basic right' }, 'right', false],
])('a peer %s with %j and the token %s may read: %s', async (remoteAddress, headers, token, allowed) => {
  const request = { socket: { remoteAddress }, headers } as unknown as IncomingMessage;

  expect((await createMetrics({ token }).answer(request)) !== null).toBe(allowed);
});

test('scrapes that come at once share one answer, and the next one is new', async () => {
  const metrics = createMetrics();
  let reads = 0;
  const read = async () => [{ labels: {}, value: (reads += 1) }];
  metrics.sampled({ name: 'parley_reads', help: 'Reads.', labels: {} }, read);
  const request = { socket: { remoteAddress: '127.0.0.1' }, headers: {} } as unknown as IncomingMessage;
  const scrape = () => metrics.answer(request);

  const together = await Promise.all(Array.from({ length: 50 }, scrape));

  expect(reads).toBe(1);
  expect(new Set(together).size).toBe(1);
  expect(await scrape()).toContain('parley_reads 2');
});

test('a metric that cannot be read is left out, and the others are still reported', async () => {
  const metrics = createMetrics();
  metrics.sampled({ name: 'gone', help: 'x', labels: { a: 'x' } }, () => Promise.reject(new Error('away')));
  metrics.sampled({ name: 'stuck', help: 'x', labels: { a: 'x' } }, () => new Promise(() => undefined));
  metrics.sampled({ name: 'known', help: 'x', labels: { a: 'x' } }, async () => [{ labels: { a: 'b' }, value: 7 }]);

  const text = await metrics.answer({ socket: { remoteAddress: '::1' }, headers: {} } as IncomingMessage);

  expect(text).toContain('known{a="b"} 7');
  expect(text).not.toMatch(/^(gone|stuck)\{/m);
});
