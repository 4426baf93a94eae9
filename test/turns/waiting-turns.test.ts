import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { mapAtMost } from '../../src/platform/process/slots.ts';
import { anAssistant, aTurn } from '../support/builders.ts';
import { aScriptedEngine } from '../support/scripted-engine.ts';
import { useStack } from '../support/stack.ts';
import { heapMb } from '../support/heap.ts';

const { engine, hold } = aScriptedEngine();
/** With one job there are four slots. */
const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0, env: { REPLY_CONCURRENCY: '1' } });

const SESSIONS = 80;
const MESSAGES = 10;
/** So few that none is refused, however slowly they are stored. */
const SENDING_AT_ONCE = 8;
/** Two bytes each in memory. */
const LONG = '語'.repeat(7_900);

test('turns that wait for another message or a slot keep nothing of their conversations', async () => {
  const { chat } = await anAssistant(stack, { input: { quickMessageSeconds: 10 } });
  const neighbour = await anAssistant(stack);
  const answerAll = hold(Array.from({ length: MESSAGES }, (_, nth) => `${nth} ${LONG}`).join('\n'));
  const sendTo = async (session_id: string): Promise<void> => {
    const headers = { Prefer: 'respond-async' };
    for (let nth = 0; nth < MESSAGES; nth += 1)
      expect((await chat(aTurn({ session_id, message: `${nth} ${LONG}` }), { headers })).status).toBe(202);
  };
  const first = await stack.startReplyWorker(engine);
  expect((await neighbour.chat(aTurn())).status).toBe(200);
  await first.close();
  const sessions = Array.from({ length: SESSIONS }, () => randomUUID());
  await mapAtMost(SENDING_AT_ONCE, sessions, sendTo);
  const before = heapMb();

  const { close } = await stack.startReplyWorker(engine);
  // Its job comes after those of all others.
  expect((await neighbour.chat(aTurn())).status).toBe(200);
  const grown = heapMb() - before;
  answerAll();
  await close();

  // The conversations of all would be 13 MB.
  expect(grown).toBeLessThan(5);
});
