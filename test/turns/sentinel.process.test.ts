import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type SentinelSet, startSentinelSet } from '../../scripts/services.ts';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { openStack, type Stack } from '../support/stack.ts';

/** A sentinel that did not run for 2 s does nothing for the next 30 s. A failover takes about 3 s otherwise. */
const FAILOVER_MS = 60_000;

let set: SentinelSet;
let stack: Stack;
beforeAll(async () => {
  set = await startSentinelSet();
  stack = await openStack({ env: { REDIS_URL: set.url } });
});
afterAll(async () => {
  await stack.close();
  await set.dispose();
});

test('when the master of Redis dies, the promoted replica is used, and turns continue', async () => {
  const { chat, history } = await anAssistant(stack);
  const session_id = randomUUID();
  const first = await chat({ session_id, message: 'one' });
  expect(first.status).toBe(200);
  const [master, replica] = set.members;
  expect(await set.findMaster()).toBe(master);

  await master?.kill();
  await eventually(async () => expect((await chat({ session_id, message: 'two' })).status).toBe(200), FAILOVER_MS);
  expect(await set.findMaster()).toBe(replica);
  const { messages } = (await history(first.body.conversationId)).body;
  expect(messages.filter(({ role }) => role === 'user').map(({ content }) => content)).toEqual(['one', 'two']);
});
