import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, expect, inject, onTestFinished, test } from 'vitest';
import { openApi } from '../../src/api.ts';
import { type Config, readConfig } from '../../src/platform/process/config.ts';
import { createLifecycle, type Lifecycle } from '../../src/platform/process/lifecycle.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { newRecord } from '../../src/events/claims.ts';
import { anAssistant, type HistoryBody, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { openOperatorClient, PASSWORD } from '../support/operator-client.ts';
import { type Command, openRelay, type Relay, through } from '../kit/relay.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';

/** The deliveries of a busy session after some months. MongoDB needs longer to rewrite them than an answer may take. */
const DELIVERIES = sized({ everyday: 3_000, long: 60_000 });
const AT_A_TIME = 10_000;
/** How long MongoDB takes for each step of an erasure. So few deliveries would be erased before the answer otherwise. */
const STEP_MS = sized({ everyday: 300, long: 0 });
/** The steps that end the deliveries in flight, before the texts of all are erased. */
const IN_FLIGHT_STEPS = 2;
const ANSWERED_WITHIN_MS = 3_000;
/** Longer than a connection's idle timeout, but shorter than the time limit of a list request. */
const SLOW_MS = 4_200;

const stack = useStack({ deliveryWorkers: 0 });
const logger = createLogger({ name: 'test', level: 'silent' });
const lifecycle: Lifecycle = createLifecycle(logger, { deadlineMs: 5_000 });
let relay: Relay;
let config: Config;
let url: string;
let holds: ((command: Command) => Promise<void> | null) | null = null;

beforeAll(async () => {
  relay = await openRelay(inject('mongodbUrl'), { holds: (command) => holds?.(command) ?? null });
  config = readConfig({ ...stack.env, MONGODB_URL: through(stack.env['MONGODB_URL'] ?? '', relay) });
  const { port } = await openApi({ config, logger, lifecycle });
  url = `http://127.0.0.1:${port}`;
});
afterAll(async () => {
  await lifecycle.close();
  await relay.cut();
});

const deliveries = () => stack.service.mongo.collection<{ _id: string } & Record<string, unknown>>('deliveries');

const fill = async (claim: { assistantId: string; conversationId: string }, count: number): Promise<void> => {
  const [worker, retentionDays] = ['test', 30];
  for (let from = 0; from < count; from += AT_A_TIME) {
    const rows = Array.from({ length: Math.min(AT_A_TIME, count - from) }, () => {
      const [eventId, endpointId] = [randomUUID(), randomUUID()];
      const about = { eventId, endpointId, event: 'message.received', url: 'https://receiver.example/' } as const;
      const body = JSON.stringify({ content: 'What are your opening hours?', about });
      const record = newRecord({ ...claim, ...about, body, happenedAt: new Date() }, { worker, retentionDays });
      return { ...record, outcome: 'delivered', status: 200, responseBody: 'thanks', endedAt: new Date() };
    });
    await deliveries().insertMany(rows, { ordered: false, writeConcern: { w: 1 } });
  }
};

const aConversation = async () => {
  const { apiKey, assistantId, chat } = await anAssistant(stack);
  const { conversationId } = (await chat({ session_id: randomUUID(), message: 'hello' })).body;
  const texts = () => deliveries().countDocuments({ conversationId, body: { $exists: true } });
  const path = `/api/v1/conversations/${conversationId}`;
  return { apiKey, assistantId, conversationId, path, texts };
};

test('a conversation with very many deliveries is erased at once, and another process finishes what a stopped one left', async () => {
  const { apiKey, assistantId, conversationId, path, texts } = await aConversation();
  await fill({ assistantId, conversationId }, DELIVERIES);
  const [queued, sending] = await deliveries().find({ conversationId }).limit(2).toArray();
  await deliveries().updateOne({ _id: queued?._id ?? '' }, { $set: { outcome: 'queued', endedAt: null } });
  await deliveries().updateOne({ _id: sending?._id ?? '' }, { $set: { outcome: 'sending', endedAt: null } });
  const stopping = createLifecycle(logger, { deadlineMs: 5_000 });
  onTestFinished(stopping.close);
  const { port } = await openApi({ config, logger, lifecycle: stopping });
  let steps = 0;
  holds = ({ name, collection }) => {
    if (name !== 'update' || collection !== 'deliveries') return null;
    steps += 1;
    return steps > IN_FLIGHT_STEPS ? pause(STEP_MS) : null;
  };

  const since = performance.now();
  const answer = await request<null>(`http://127.0.0.1:${port}${path}`, { method: 'DELETE', bearer: apiKey });
  const ms = performance.now() - since;
  await stopping.close();
  holds = null;

  expect(answer.status).toBe(204);
  expect(ms).toBeLessThan(atPace(ANSWERED_WITHIN_MS));
  const gone = await request<HistoryBody>(`${stack.url}${path}`, { bearer: apiKey });
  expect(gone.status).toBe(404);
  expect(await deliveries().countDocuments({ conversationId, outcome: { $in: ['queued', 'sending'] } })).toBe(0);
  expect(await texts()).toBeGreaterThan(0);

  // Moves the purge to the past, as if a minute had passed.
  await stack.service.mongo
    .collection<{ _id: string }>('tombstones')
    .updateOne({ _id: conversationId }, { $set: { purgeAt: new Date(0) } });
  await stack.service.conversations.purgeAgain();
  // A reply worker may make the purge instead.
  await eventually(async () => expect(await texts()).toBe(0), 120_000);
  expect(await deliveries().countDocuments({ conversationId })).toBe(DELIVERIES);
});

test('an erasure without interruption is finished by its own process, and a small one before the response', async () => {
  const small = await aConversation();
  await fill(small, 50);
  const large = await aConversation();
  await fill(large, sized({ everyday: 1_200, long: 20_000 }));

  const answers = await Promise.all(
    [small, large].map(({ path, apiKey }) =>
      request<null>(`${stack.url}${path}`, { method: 'DELETE', bearer: apiKey }),
    ),
  );

  expect(answers.map(({ status }) => status)).toEqual([204, 204]);
  expect(await small.texts()).toBe(0);
  await eventually(async () => expect(await large.texts()).toBe(0));
});

test('a list that takes longer than a connection’s idle timeout is answered', async () => {
  const { assistantId } = await anAssistant(stack);
  const email = `${randomUUID()}@example.com`;
  await stack.service.operators.createOperator({ email, role: 'owner', password: PASSWORD });
  const client = openOperatorClient(url);
  await client.signIn(email);
  const { endpoint } = await stack.service.endpoints.addEndpoint(assistantId, { url: 'https://receiver.example/' });
  await stack.service.deliveries.queueTest(endpoint);
  holds = ({ name, collection }) => (name === 'find' && collection === 'deliveries' ? pause(SLOW_MS) : null);

  const since = performance.now();
  const { status } = await client.get(`/assistants/${assistantId}/deliveries`);
  holds = null;

  expect(status).toBe(200);
  expect(performance.now() - since).toBeGreaterThan(SLOW_MS - 100);
});

test('recoveries are changed at once, and what they have sent is counted in turns', async () => {
  const { assistantId } = await anAssistant(stack);
  const rights = { scope: 'manage' as const, assistantIds: [assistantId], createdBy: null };
  const programs = await Promise.all(
    Array.from({ length: 8 }, async () => {
      const { endpoint } = await stack.service.endpoints.addEndpoint(assistantId, { url: 'https://receiver.example/' });
      const { endpointId } = endpoint;
      const range = { assistantId, endpointId, from: new Date(0), to: new Date(), outcomes: ['not_sent' as const] };
      const { _id: recoveryId } = await stack.service.recoveries.start(range, 'a test');
      const { secret } = await stack.service.tokens.createToken({ name: 'a program', ...rights });
      return { recoveryId, secret };
    }),
  );
  const states = async () =>
    Promise.all(programs.map(async ({ recoveryId }) => (await stack.service.recoveries.find(recoveryId))?.state));
  const { promise: changed, resolve: release } = Promise.withResolvers<void>();
  let [counting, most] = [0, 0];
  holds = ({ name, collection }) => {
    if (name !== 'aggregate' || collection !== 'deliveries') return null;
    counting += 1;
    most = Math.max(most, counting);
    return changed.finally(() => {
      counting -= 1;
    });
  };

  const answers = programs.map(({ recoveryId, secret }) =>
    request<{ state: string }>(`${url}/operator/v1/recoveries/${recoveryId}/pause`, { method: 'POST', bearer: secret }),
  );
  await eventually(async () => expect(new Set(await states())).toEqual(new Set(['paused'])));
  release();
  const all = await Promise.all(answers);
  holds = null;

  expect(all.map(({ status, body }) => [status, body.state])).toEqual(programs.map(() => [200, 'paused']));
  expect(most).toBeLessThanOrEqual(2);
});
