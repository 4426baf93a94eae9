import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, expect, test } from 'vitest';
import { anAssistant, type ChatBody, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { type Kind, type RealProcess, startRealProcess } from '../kit/processes.ts';
import { openReceiver } from '../kit/receiver.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const ROUNDS = sized({ everyday: 1, long: 3 });
const SESSIONS = sized({ everyday: 2, long: 4 });
const STALLED = 'the event loop did not run';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const processes: RealProcess[] = [];
afterAll(() => Promise.all(processes.map((one) => one.kill())));

test('a busy event loop of 500 ms in each process loses and doubles nothing, stays ready, and is logged', async () => {
  // Without knowledge, no turn is handed over for low confidence.
  const { assistantId, apiKey, history } = await anAssistant(stack, { knowledge: [] });
  const receiver = await openReceiver();
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const NODE_OPTIONS = `--import ${new URL('../kit/stall.ts', import.meta.url).href}`;
  const kinds: Kind[] = ['api', 'reply', 'delivery'];
  processes.push(
    ...(await Promise.all(
      kinds.map((kind) => startRealProcess(kind, { ...stack.env, NODE_OPTIONS, SEMANTIC: 'off' })),
    )),
  );
  const [api] = processes;

  let over = false;
  const notReady: string[] = [];
  const watch = async (): Promise<void> => {
    for (; !over; await sleep(100)) {
      for (const { kind, url, describe } of processes) {
        const { ok } = await fetch(`${url}/readyz`).catch((cause: unknown) => {
          throw new Error(describe(), { cause });
        });
        if (!ok) notReady.push(kind);
      }
    }
  };
  /** A visitor who sends one message after the other. */
  const talk = async (): Promise<{ conversationId: string; messages: string[] }> => {
    const session_id = randomUUID();
    const messages: string[] = [];
    for (let conversationId = ''; ; ) {
      const message = `message ${messages.length} of ${session_id}`;
      messages.push(message);
      const options = { body: { session_id, message }, bearer: apiKey };
      const { status, body } = await request<ChatBody>(`${api?.url}/api/v1/chat`, options);
      expect(status).toBe(200);
      ({ conversationId } = body);
      if (over) return { conversationId, messages };
    }
  };
  const stall = async (): Promise<void> => {
    for (let round = 1; round <= ROUNDS; round += 1) {
      for (const { child, said } of processes) {
        child.kill('SIGUSR2');
        // The process works again before the next one. Not each stall is logged: at most one in a second.
        await eventually(() => expect(said.filter((line) => line === 'goes on')).toHaveLength(round));
      }
    }
    over = true;
  };
  const [talks] = await Promise.all([Promise.all(Array.from({ length: SESSIONS }, talk)), watch(), stall()]);

  expect(notReady).toEqual([]);
  for (const { conversationId, messages } of talks) {
    const stored = (await history(conversationId)).body.messages;
    expect(stored.filter(({ role }) => role === 'user').map(({ content }) => content)).toEqual(messages);
    expect(stored.filter(({ role }) => role === 'assistant')).toHaveLength(messages.length);
  }
  const events = talks.reduce((sum, { messages }) => sum + messages.length + 1, 0);
  await receiver.waitFor((received) => received.length >= events);
  await eventually(async () => {
    const rows = await stack.service.mongo.collection('deliveries').find({ assistantId }).toArray();
    expect(rows.map(({ outcome }) => outcome)).toEqual(Array.from({ length: events }, () => 'delivered'));
  });
  expect(new Set(receiver.received.map(({ headers }) => headers['x-factory-event-id'])).size).toBe(events);
  expect(receiver.received).toHaveLength(events);
  for (const one of processes) expect(one.said.join('\n')).toContain(STALLED);
  await receiver.close();
});
