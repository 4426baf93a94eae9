import { randomUUID } from 'node:crypto';
import mongoose from 'mongoose';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Service, startMongod } from '../../scripts/services.ts';
import type { AssistantEngine } from '../../src/replies/engines/engine.ts';
import { anAssistant, type ChatBody, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { sized } from '../support/size.ts';
import { openStack, type Stack } from '../support/stack.ts';

const SESSIONS = sized({ everyday: 4, long: 8 });
const STEP_DOWNS = sized({ everyday: 1, long: 3 });
/** So many turns of each session are answered before and after a change of primary. */
const TURNS = sized({ everyday: 2, long: 4 });

/** The engine is so slow that some turns are always being answered when a fault happens. */
const engine: AssistantEngine = {
  name: 'slow echo',
  reply: async ({ message, language }) => {
    await new Promise((resolve) => setTimeout(resolve, 50 + Math.random() * 100));
    return { text: `echo: ${message}`, suggestedActions: [], confidence: 1, low: false, language, why: {} };
  },
};

let mongod: Service;
let stack: Stack;

beforeAll(async () => {
  mongod = await startMongod();
  stack = await openStack({ engine, env: { MONGODB_URL: mongod.url }, deliveryWorkers: 0 });
});
afterAll(async () => {
  await stack.close();
  await mongod.dispose();
});

/** Makes the primary step down for a second or two. In that time, the server answers that it is not the primary. */
const stepDown = async (): Promise<void> => {
  const { host } = new URL(mongod.url);
  const client = new mongoose.mongo.MongoClient(`mongodb://${host}/?directConnection=true`);
  await client.db('admin').command({ replSetStepDown: 1, secondaryCatchUpPeriodSecs: 0, force: true });
  await client.close();
};

test('a change of primary under load fails, loses and doubles no turn', async () => {
  const { apiKey, history } = await anAssistant(stack);
  const answered = new Map<string, ChatBody>();
  const refusals = new Set<string>();
  let over = false;
  const talk = async (): Promise<string> => {
    const session_id = randomUUID();
    let conversationId = '';
    for (let turn = 0; !over; turn += 1) {
      const message = `hello number ${turn} of ${session_id}`;
      while (!answered.has(message)) {
        const answer = await request<ChatBody>(`${stack.url}/api/v1/chat`, {
          body: { session_id, message },
          bearer: apiKey,
        });
        if (answer.status === 200) answered.set(message, answer.body);
        else refusals.add(`${answer.status}`);
        if (answer.status === 200) ({ conversationId } = answer.body);
        else await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }
    return conversationId;
  };
  const sessions = Array.from({ length: SESSIONS }, talk);

  for (let round = 0; round < STEP_DOWNS; round += 1) {
    const before = answered.size;
    await eventually(() => expect(answered.size).toBeGreaterThan(before + TURNS * SESSIONS));
    await stepDown();
  }
  const before = answered.size;
  await eventually(() => expect(answered.size).toBeGreaterThan(before + TURNS * SESSIONS));
  over = true;
  const ids = await Promise.all(sessions);

  expect(stack.logs.filter(({ end }) => end === 'failed')).toEqual([]);
  // A failed read causes 503. After a failed write, the API looks the turn up, and at worst answers 500. No other
  // status is allowed.
  expect(['500', '503']).toEqual(expect.arrayContaining([...refusals]));
  for (const id of ids) {
    const { messages } = (await history(id)).body;
    const said = messages.filter(({ role }) => role === 'user').map(({ content }) => content);
    expect(said).toEqual([...answered.keys()].filter((message) => message.endsWith(said[0]?.split(' ').at(-1) ?? '?')));
    const replies = messages.filter(({ role }) => role === 'assistant').map(({ messageId }) => messageId);
    expect(replies).toEqual(said.map((message) => answered.get(message)?.messageId));
  }
});
