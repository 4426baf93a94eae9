import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, inject, onTestFinished, test } from 'vitest';
import { openApi } from '../../src/api.ts';
import { readConfig } from '../../src/process/config.ts';
import { createLifecycle } from '../../src/process/lifecycle.ts';
import { createLogger } from '../../src/process/logger.ts';
import { openDeliveryWorker } from '../../workers/delivery/worker.ts';
import { openReplyWorker } from '../../workers/reply/worker.ts';
import { anAssistant, anEntry, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { openProvider } from '../support/provider.ts';
import { openReceiver } from '../support/receiver.ts';
import { openRelay, type Relay, through } from '../support/relay.ts';
import { useStack } from '../support/stack.ts';

const CANARY = 'canaryCANARYcanary';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const lines: string[] = [];
const logger = createLogger({ name: 'test', level: 'trace' }, { write: (line) => void lines.push(line) });
const lifecycle = createLifecycle(logger, { deadlineMs: 5_000 });
let relays: Relay[];
let url: string;

beforeAll(async () => {
  const [redis, mongodb] = await Promise.all([openRelay(inject('redisUrl')), openRelay(inject('mongodbUrl'))]);
  relays = [redis, mongodb];
  const config = readConfig({
    ...stack.env,
    REDIS_URL: through(stack.env['REDIS_URL'] ?? '', redis),
    MONGODB_URL: through(stack.env['MONGODB_URL'] ?? '', mongodb),
    REPLY_TIMEOUT_MS: '2000',
  });
  const { port } = await openApi({ config, logger, lifecycle });
  url = `http://127.0.0.1:${port}`;
  await openReplyWorker({ config, logger, lifecycle });
  await openDeliveryWorker({ config, logger, lifecycle });
});
afterAll(async () => {
  await lifecycle.close();
  await Promise.all(relays.map((relay) => relay.cut()));
});

/** All confidential values that the service receives. Each contains the canary. */
const aLife = async () => {
  const provider = await openProvider();
  onTestFinished(provider.close);
  provider.behave((wire) => {
    wire.open();
    wire.raw(`data: {"${CANARY}" ${CANARY}\n\n`);
  });
  const receiver = await openReceiver({ respond: () => ({ status: 500, body: CANARY }) });
  onTestFinished(receiver.close);
  const { assistantId, apiKey } = await anAssistant(stack, {
    knowledge: [anEntry({ answer: `${CANARY} is the answer` })],
  });
  const { assistants, endpoints } = stack.service;
  const apiKeyOfProvider = `sk-${CANARY}`;
  await assistants.setEngine(assistantId, {
    kind: 'openai',
    baseUrl: provider.baseUrl,
    model: 'test-model',
    apiKey: apiKeyOfProvider,
  });
  await assistants.setChannel(assistantId, { connected: true, token: `verify-${CANARY}` });
  const { secret } = await endpoints.addEndpoint(assistantId, { url: `${receiver.url}?token=${CANARY}` });
  const say = (message: string, bearer = apiKey) =>
    request(`${url}/api/v1/chat`, { body: { session_id: `${CANARY}-${randomUUID()}`, message }, bearer });
  const sayOverChannel = (token: string) =>
    request(`${url}/api/v1/channels/webhook/${assistantId}`, {
      body: { session_id: `${CANARY}-${randomUUID()}`, message: `${CANARY} over the channel` },
      bearer: token,
    });
  const signIn = () =>
    request(`${url}/operator/v1/session`, {
      body: { email: `${CANARY}@parley.example`, password: `wrong ${CANARY}` },
      headers: { Origin: url },
    });
  const live = () =>
    Promise.all([
      say(`hello ${CANARY}`),
      say(`hello "${CANARY}`, `sk_${CANARY}`),
      sayOverChannel(`verify-${CANARY}`),
      sayOverChannel(`wrong-${CANARY}`),
      signIn(),
      request(`${url}/api/v1/chat`, { body: `{"session_id": "${CANARY}", ${CANARY}`, bearer: apiKey }),
      request(`${url}/api/v1/conversations?cursor=${CANARY}&updated_after=${CANARY}`, { bearer: apiKey }),
    ]);
  return { live, receiver, secrets: [CANARY, secret, apiKey] };
};

const poison = async (): Promise<void> => {
  const { turnQueue: _turns, redis } = stack.service;
  const { openQueues } = await import('../../src/redis/queue.ts');
  for (const name of ['turns', 'deliveries']) {
    const queue = openQueues<unknown>(name, { redis, partitions: stack.service.partitions }, logger);
    await queue.queues[0]?.add('poison', { turns: [{ key: CANARY }], conversations: CANARY });
    await queue.close();
  }
};

test('no log line shows a confidential value: in normal work, with hostile input, or without its stores', async () => {
  const { live, receiver, secrets } = await aLife();

  await live();
  await poison();
  for (const relay of relays) {
    const during = live();
    relay.freeze();
    await during;
    await live();
    relay.thaw();
    await eventually(async () => expect((await fetch(`${url}/readyz`)).status).toBe(200));
    await relay.cut();
    await live();
    await relay.mend();
    await eventually(async () => expect((await fetch(`${url}/readyz`)).status).toBe(200));
  }
  await live();
  await receiver.waitFor((all) => all.length > 3);

  const said = lines.join('');
  for (const expected of [
    'turn ended',
    'delivery ended',
    'a job failed',
    'redis connection failed',
    'mongodb is unavailable',
  ]) {
    expect(said).toContain(expected);
  }
  for (const secret of secrets) expect(said).not.toContain(secret);
});
