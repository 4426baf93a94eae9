import { randomBytes, randomUUID } from 'node:crypto';
import { expect, onTestFinished, test, vi } from 'vitest';
import { anAssistant, aTurn, request } from '../support/builders.ts';
import { openCollector } from '../support/collector.ts';
import { eventually } from '../support/eventually.ts';
import { HOSTILE, openHostile } from '../kit/hostile-receiver.ts';
import { openReceiver } from '../kit/receiver.ts';
import { aScriptedEngine } from '../support/scripted-engine.ts';
import { sized } from '../support/size.ts';
import { openStack, useOpened, useStack } from '../support/stack.ts';

const { engine, hold, asked } = aScriptedEngine();
/** A worker takes a turn in some ms. */
const TAKEN_WITHIN_MS = 20_000;

const collector = useOpened(openCollector, (opened) => opened.close());
const stack = useStack(() => ({
  env: { OTEL_EXPORTER_OTLP_ENDPOINT: `${collector.url}/`, WEBHOOK_TRACEPARENT: 'true' },
  engine,
  replyWorkers: 2,
}));

const hex = (bytes: number): string => randomBytes(bytes).toString('hex');
const aTraceparent = (flags = '01') => {
  const [traceId, spanId] = [hex(16), hex(8)];
  return { traceId, spanId, headers: { traceparent: `00-${traceId}-${spanId}-${flags}` } };
};

/** The spans of a trace, once one with each of these names has arrived. */
const spansOf = (traceId: string, ...names: string[]) =>
  eventually(() => {
    const spans = collector.spans().filter((span) => span.traceId === traceId);
    expect(spans.map(({ name }) => name)).toEqual(expect.arrayContaining(names));
    return spans;
  });
type Span = Awaited<ReturnType<typeof spansOf>>[number];

const one = (spans: Span[], name: string): Span => {
  const found = spans.filter((span) => span.name === name);
  expect(found, `spans of the name ${name}`).toHaveLength(1);
  return found[0] as Span;
};

const traceIdIn = async (sessionId: string, msg = 'turn ended'): Promise<unknown> => {
  const conversationId = (await stack.service.mongo.collection('conversations').findOne({ sessionId }))?.conversationId;
  return eventually(() => {
    const line = stack.logs.find((logged) => logged.msg === msg && logged.conversationId === conversationId);
    expect(line).toBeDefined();
    return line?.traceId;
  });
};

test('a turn is one trace, from its caller to the receiver of its events', async () => {
  const { assistantId, chat } = await anAssistant(stack);
  const receiver = await openReceiver();
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url, events: ['message.sent'] });
  const { traceId, spanId, headers } = aTraceparent();
  const session_id = `secret-session-${randomUUID()}`;
  const message = `a secret question ${randomUUID()}`;

  await chat({ session_id, message }, { headers });
  const [posted] = await receiver.waitFor((all) => all.length >= 1);
  const spans = await spansOf(traceId, 'turn', 'answer', 'deliver', 'wake turns', 'write conversations');

  const turn = one(spans, 'turn');
  expect(turn).toMatchObject({ parentSpanId: spanId, service: 'parley-api', kind: 2 });
  const [answer, deliver] = [one(spans, 'answer'), one(spans, 'deliver')];
  expect([answer.service, deliver.service]).toEqual(['parley-reply-worker', 'parley-delivery-worker']);
  const of = ({ spanId: parent }: Span) =>
    spans.filter(({ parentSpanId }) => parentSpanId === parent).map(({ name }) => name);
  expect(of(turn).sort()).toEqual(['accept', 'answer', 'deliver', 'gate', 'wake turns']);
  expect(of(one(spans, 'accept'))).toEqual(['write conversations']);
  expect(of(answer).sort()).toEqual(['commit', 'engine']);
  expect(of(one(spans, 'commit'))).toEqual(['write conversations']);
  expect(of(deliver).sort()).toEqual(['POST', 'claim']);
  expect(spans.flatMap(({ links, status }) => [...links, status.code])).toEqual(spans.map(() => 0));

  expect(posted?.headers.traceparent).toBe(`00-${traceId}-${one(spans, 'POST').spanId}-01`);
  expect(await traceIdIn(session_id)).toBe(traceId);
  expect(await traceIdIn(session_id, 'delivery ended')).toBe(traceId);
  expect(collector.texts()).not.toContain('secret');
  await receiver.close();
});

test('a hostile traceparent begins a trace of its own, one that is not sampled none, and a stranger nothing', async () => {
  const { chat, apiKey } = await anAssistant(stack);
  const [id, parent] = [hex(16), hex(8)];
  const hostile = [
    `00-${id}-${parent}`,
    `00-${'0'.repeat(32)}-${parent}-01`,
    `00-${id}-${'0'.repeat(16)}-01`,
    `ff-${id}-${parent}-01`,
    `00-${id}-${parent}-01-more`,
    `00-${id.toUpperCase()}-${parent}-01`,
    `00-${id}-${parent}-01,00-${id}-${parent}-01`,
    `00-${id}-${parent}-01${'x'.repeat(4_000)}`,
    '$where',
  ];
  const begun = hostile.map(async (traceparent) => {
    const session_id = randomUUID();
    expect((await chat(aTurn({ session_id }), { headers: { traceparent } })).status).toBe(200);
    const own = String(await traceIdIn(session_id));
    expect(own).toMatch(/^[0-9a-f]{32}$/);
    expect(own).not.toBe(id);
    expect(one(await spansOf(own, 'turn'), 'turn').parentSpanId ?? '').toBe('');
  });
  await Promise.all(begun);

  const unsampled = aTraceparent('00');
  const session_id = randomUUID();
  const release = hold(session_id);
  const pending = chat({ session_id, message: session_id }, { headers: unsampled.headers });
  const stored = await eventually(async () => {
    const row = await stack.service.mongo.collection('conversations').findOne({ sessionId: session_id });
    expect(row?.waiting).toHaveLength(1);
    return row?.waiting as object[];
  });
  release();
  await pending;
  expect(stored[0]).not.toHaveProperty('trace');
  expect(await traceIdIn(session_id)).toBeUndefined();

  const stranger = aTraceparent();
  const refused = { body: aTurn(), headers: stranger.headers, bearer: `${apiKey}x` };
  expect((await request(`${stack.url}/api/v1/chat`, refused)).status).toBe(401);
  const last = aTraceparent();
  await chat(aTurn(), { headers: last.headers });
  await spansOf(last.traceId, 'turn');
  expect(collector.texts()).not.toMatch(new RegExp(`${stranger.traceId}|${unsampled.traceId}|\\$where`));
});

test('a write for several turns is in the trace of the first, and it and the others link each other', async () => {
  const { chat } = await anAssistant(stack);
  const callers = Array.from({ length: 24 }, () => aTraceparent());

  await Promise.all(callers.map(({ headers }) => chat(aTurn(), { headers })));
  const spans = (await Promise.all(callers.map(({ traceId }) => spansOf(traceId, 'turn', 'answer')))).flat();

  const byId = new Map(collector.spans().map((span) => [span.spanId, span]));
  const writes = collector.spans().filter(({ name, links }) => name === 'write conversations' && links.length > 0);
  expect(writes.length).toBeGreaterThan(0);
  for (const write of writes) {
    const steps = [write.parentSpanId, ...write.links.map(({ spanId }) => spanId)].map((id) => byId.get(id ?? ''));
    for (const [nth, step] of steps.entries()) {
      expect(['accept', 'commit']).toContain(step?.name);
      const back = step?.links.map(({ spanId }) => spanId) ?? [];
      expect(back.includes(write.spanId)).toBe(nth > 0);
    }
    expect(new Set(steps.map((step) => step?.traceId)).size).toBe(steps.length);
  }
  expect(spans.filter(({ name }) => name === 'answer')).toHaveLength(24);
  expect(spans.filter(({ name }) => name === 'commit')).toHaveLength(24);
});

test('a turn whose worker is lost stays one trace, which shows both tries', async () => {
  const { chat } = await anAssistant(stack);
  const { traceId, headers } = aTraceparent();
  const [session_id, message] = [randomUUID(), `twice ${randomUUID()}`];
  const release = hold(message);
  onTestFinished(release);
  const pending = chat({ session_id, message }, { headers });
  const { key, turnId } = await eventually(async () => {
    const row = await stack.service.mongo.collection('conversations').findOne({ sessionId: session_id });
    const [turn] = (row?.waiting ?? []) as { turnId: string }[];
    if (!turn) throw new Error('the turn is not accepted');
    return { key: String(row?._id), turnId: turn.turnId };
  });
  await eventually(() => expect(asked.filter((text) => text === message)).toHaveLength(1));
  // As after a FLUSHALL while the worker stands still: the lease and the job are gone, and a wake-up knows no trace. This
  // worker does not stand still, so it may renew the lease before the other one takes it. Then both are lost once more.
  await eventually(async () => {
    await stack.service.redis.del(`{${stack.env.REDIS_PREFIX}-0}:lease:${turnId}`);
    stack.service.turnQueue.enqueue({ key, turnId });
    await eventually(() => expect(asked.filter((text) => text === message)).toHaveLength(2), TAKEN_WITHIN_MS);
  });
  release();
  await pending;

  const answers = await eventually(() => {
    const found = collector.spans().filter((span) => span.traceId === traceId && span.name === 'answer');
    expect(found).toHaveLength(2);
    return found;
  });
  const turn = one(await spansOf(traceId, 'turn'), 'turn');
  expect(answers.map(({ parentSpanId }) => parentSpanId)).toEqual([turn.spanId, turn.spanId]);
  expect(answers.map(({ attributes }) => attributes['error.type']).sort()).toEqual(['not_committed', undefined]);
  expect(answers.map(({ attributes }) => attributes['parley.try']).sort()).toEqual([1, 2]);
});

test('a turn that fails after three tries shows it in its trace', async () => {
  const { chat } = await anAssistant(stack);
  const [session_id, head, message] = [randomUUID(), `head ${randomUUID()}`, `poison ${randomUUID()}`];
  const { traceId, headers } = aTraceparent();
  const release = hold(head);
  const first = chat({ session_id, message: head });
  await eventually(() => expect(asked).toContain(head));
  const pending = chat({ session_id, message }, { headers });
  const turnId = await eventually(async () => {
    const row = await stack.service.mongo.collection('conversations').findOne({ sessionId: session_id });
    const [, behind] = (row?.waiting ?? []) as { turnId: string }[];
    if (!behind) throw new Error('the turn is not accepted');
    return behind.turnId;
  });
  // As after three workers have died while they answered it.
  await stack.service.redis.set(`{${stack.env.REDIS_PREFIX}-0}:tries:${turnId}`, '3');
  release();
  await first;

  expect((await pending).status).toBe(500);
  const spans = await spansOf(traceId, 'turn', 'answer');
  expect(one(spans, 'answer').attributes).toMatchObject({
    'error.type': 'failed',
    'parley.end': 'failed',
    'parley.try': 4,
  });
  expect(one(spans, 'turn').status.code).toBe(2);
});

test('a delivery that waited, and one that a person repeats, have traces of their own that link the turn', async () => {
  const { assistantId, chat } = await anAssistant(stack);
  const receiver = await openReceiver();
  const { endpoints, deliveries, deliveryQueue, mongo } = stack.service;
  const { endpoint } = await endpoints.addEndpoint(assistantId, { url: receiver.url, events: ['message.received'] });
  await endpoints.pauseEndpoint(endpoint.endpointId, { reason: 'gone', until: null });
  const { traceId, headers } = aTraceparent();
  const session_id = randomUUID();
  await chat(aTurn({ session_id }), { headers });
  const long = new Date(Date.now() - 120_000);
  await mongo.collection('conversations').updateOne({ sessionId: session_id }, { $set: { 'outbox.0.at': long } });

  await endpoints.resumeEndpoint(endpoint.endpointId);
  await receiver.waitFor((all) => all.length >= 1);
  const turn = one(await spansOf(traceId, 'turn'), 'turn');
  const deliveredFor = (count: number) =>
    eventually(() => {
      const linked = collector
        .spans()
        .filter(({ name, links }) => name === 'deliver' && links[0]?.spanId === turn.spanId);
      expect(linked).toHaveLength(count);
      return linked;
    });
  const [late] = await deliveredFor(1);
  const original = await eventually(async () => {
    const row = await deliveries.getDelivery(`${String(late?.attributes['parley.event_id'])}:${endpoint.endpointId}`);
    expect(row.outcome).toBe('delivered');
    return row;
  });
  const plan = await deliveries.planResend(original);
  deliveryQueue.wakeDelivery(await deliveries.queueResend({ original, plan, number: plan.number, url: receiver.url }));
  await receiver.waitFor((all) => all.length >= 2);
  const both = await deliveredFor(2);

  expect(new Set([traceId, ...both.map((span) => span.traceId)]).size).toBe(3);
  expect(both.map(({ links }) => links.map((link) => link.traceId))).toEqual([[traceId], [traceId]]);
  for (const { traceId: own, spanId } of both) {
    expect(one(await spansOf(own, 'POST'), 'POST').parentSpanId).toBe(spanId);
  }
  await receiver.close();
});

test('a collector that never answers, or is away, delays neither a turn nor the stop', async () => {
  const silent = await openCollector({ respond: () => new Promise(() => undefined) });
  const env = { OTEL_EXPORTER_OTLP_ENDPOINT: silent.url, OTEL_TRACES_SAMPLER: 'always_on' };
  const own = await openStack({ env, engine, deliveryWorkers: 0 });
  const { chat } = await anAssistant(own);
  const { headers } = aTraceparent('00');
  const turns = sized({ everyday: 20, long: 100 });
  const answers = () => Promise.all(Array.from({ length: turns }, () => chat(aTurn(), { headers })));

  const whileSilent = await answers();
  await silent.waitFor((all) => all.length > 0);
  await silent.close();
  const whileAway = await answers();
  await own.close();

  expect([...whileSilent, ...whileAway].filter(({ status }) => status !== 200)).toEqual([]);
});

test('a collector whose answer does not end is left after the time of a request, and asked again', async () => {
  vi.stubEnv('OTEL_EXPORTER_OTLP_TIMEOUT', '300');
  const hostile = await openHostile(HOSTILE.bodyDrips);
  const env = { OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${hostile.port}`, OTEL_TRACES_SAMPLER: 'always_on' };
  const own = await openStack({ env, engine, deliveryWorkers: 0 });
  vi.unstubAllEnvs();
  const { chat } = await anAssistant(own);

  await eventually(async () => {
    expect((await chat(aTurn())).status).toBe(200);
    expect(hostile.endings.length).toBeGreaterThan(2);
  });

  await own.close();
  await hostile.close();
});
