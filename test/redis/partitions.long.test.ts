import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import mongoose from 'mongoose';
import { expect, onTestFinished, test } from 'vitest';
import { type Service, startReplicaSet, startSentinelSet } from '../../scripts/services.ts';
import { anAssistant, type ChatBody, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { mongodMember, openPeerRelays, sentinelOrReplica } from '../kit/peer-relays.ts';
import { contentOf, openReceiver } from '../kit/receiver.ts';
import { aScriptedEngine } from '../support/scripted-engine.ts';
import { openStack, type Stack } from '../support/stack.ts';

/** Long enough for a write to reach the old primary before it steps down. */
const ELECTION_MS = 5_000;

/** A sentinel that did not run for 2 s does nothing for the next 30 s. A failover takes about 3 s otherwise. */
const FAILOVER_MS = 60_000;

/** Sends a message again until it is answered, as a client must. */
const sendUntilAnswered = (stack: Stack, bearer: string, body: { session_id: string; message: string }) =>
  eventually(async () => {
    const answer = await request<ChatBody>(`${stack.url}/api/v1/chat`, { body, bearer });
    expect(answer.status).toBe(200);
    return answer;
  });

/** The texts that wait for an answer in this member's own data, whether a majority has them or not. */
const waitingIn = async ({ port }: Service, database: string): Promise<string> => {
  const client = new mongoose.mongo.MongoClient(`mongodb://127.0.0.1:${port}/?directConnection=true`);
  try {
    const conversations = client.db(database).collection('conversations');
    const options = { readPreference: 'secondaryPreferred', readConcern: 'local' } as const;
    return JSON.stringify(await conversations.find({}, { ...options, projection: { waiting: 1 } }).toArray());
  } finally {
    await client.close();
  }
};

// Every day, test/turns/sentinel.process.test.ts and test/turns/cluster.process.test.ts lose a master of Redis.

test('a primary without its peers loses what it applied: the message is stored, answered and announced once', async () => {
  const relays = openPeerRelays(mongodMember);
  onTestFinished(relays.close);
  const set = await startReplicaSet(3, { announcedPortOf: relays.relayTo, electionTimeoutMs: ELECTION_MS });
  onTestFinished(set.dispose);
  const stack = await openStack({ env: { MONGODB_URL: set.url } });
  onTestFinished(stack.close);
  const { apiKey, assistantId, history } = await anAssistant(stack);
  const receiver = await openReceiver();
  onTestFinished(receiver.close);
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const session_id = randomUUID();
  const { conversationId } = (await sendUntilAnswered(stack, apiKey, { session_id, message: 'first' })).body;
  const old = (await set.findPrimary()) as Service;
  const database = stack.service.mongo.name;

  relays.isolate({ port: old.port, id: String(old.port) });
  const answer = sendUntilAnswered(stack, apiKey, { session_id, message: 'second' });
  await eventually(async () => expect(await waitingIn(old, database)).toContain('second'));
  await eventually(async () => {
    const next = await set.findPrimary();
    expect(next && next !== old).toBe(true);
  });
  const { messageId } = (await answer).body;
  expect(await waitingIn(old, database)).toContain('second');
  relays.heal();
  await sendUntilAnswered(stack, apiKey, { session_id, message: 'third' });

  // The old primary rolls back what no majority has.
  await eventually(async () => expect(await waitingIn(old, database)).not.toContain('second'));
  const { messages } = (await history(conversationId)).body;
  expect(messages.filter(({ role }) => role === 'user').map(({ content }) => content)).toEqual([
    'first',
    'second',
    'third',
  ]);
  expect(messages.filter((message) => message.messageId === messageId)).toHaveLength(1);
  await receiver.waitFor((all) => all.map(contentOf).includes('third'));
  expect(receiver.received.map(contentOf).filter((text) => text === 'second')).toHaveLength(1);
});

test('turns are answered while the API is at the old master of Redis and the worker at the new one', async () => {
  const relays = openPeerRelays(sentinelOrReplica);
  onTestFinished(relays.close);
  const set = await startSentinelSet({ announcedPortOf: relays.relayTo });
  onTestFinished(set.dispose);
  const stack = await openStack({ env: { REDIS_URL: set.url }, replyWorkers: 0 });
  onTestFinished(stack.close);
  const { apiKey, history } = await anAssistant(stack);
  const session_id = randomUUID();
  const old = (await set.findMaster()) as Service;
  const atOld = new Redis(old.port, '127.0.0.1');
  onTestFinished(() => atOld.disconnect());
  const roleOfOld = async (): Promise<unknown> => ((await atOld.call('ROLE')) as unknown[])[0];

  relays.isolate({ port: old.port });
  await eventually(async () => expect(await set.findMaster()).not.toBe(old), FAILOVER_MS);
  await stack.startReplyWorker(aScriptedEngine().engine);
  const during = await sendUntilAnswered(stack, apiKey, { session_id, message: 'one' });
  expect(await roleOfOld()).toBe('master');
  relays.heal();
  await eventually(async () => expect(await roleOfOld()).toBe('slave'));
  await sendUntilAnswered(stack, apiKey, { session_id, message: 'two' });

  const { messages } = (await history(during.body.conversationId)).body;
  const texts = messages.map(({ role, content }) => `${role}: ${content}`);
  expect(texts).toEqual(['user: one', 'assistant: echo: one', 'user: two', 'assistant: echo: two']);
});
