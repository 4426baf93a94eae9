import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { AssistantEngine } from '../../src/replies/engines/engine.ts';
import type { StoredConversation } from '../../src/conversations/conversation.ts';
import { conversationKeyOf } from '../../src/platform/process/ids.ts';
import { anAssistant } from '../support/builders.ts';
import { openReceiver } from '../kit/receiver.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const SESSIONS = sized({ everyday: 6, long: 25 });
const TURNS = sized({ everyday: 8, long: 20 });
const ANNOUNCED = sized({ everyday: { sessions: 8, turns: 4 }, long: { sessions: 30, turns: 10 } });

/** A gate is closed while a burst is sent, so that the whole burst is pending before its first turn is answered. */
const gates = new Map<string, Promise<void>>();
/** The times in which each turn of a session was being answered. */
const spans = new Map<string, { from: number; to: number }[]>();
const engine: AssistantEngine = {
  name: 'slow by chance',
  reply: async ({ message, language }) => {
    const session = message.split('#')[0] as string;
    const from = performance.now();
    await gates.get(session);
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 5));
    spans.set(session, [...(spans.get(session) ?? []), { from, to: performance.now() }]);
    return { text: `echo: ${message}`, suggestedActions: [], confidence: 1, low: false, language, why: {} };
  },
};

const stack = useStack({ engine, replyWorkers: 2, apis: 2 });

test(`${SESSIONS} sessions of ${TURNS} turns, sent at different speeds, are each answered in order, one at a time, none lost`, async () => {
  const { assistantId, chat, history } = await anAssistant(stack);
  const { sessionKey } = await stack.service.assistants.getAssistant(assistantId);
  const sessions = Array.from({ length: SESSIONS }, () => randomUUID());

  const talk = async (session_id: string): Promise<string> => {
    let conversationId = '';
    for (let turn = 0; turn < TURNS; ) {
      // Sends several messages. Each message waits until the previous one is accepted, but not until it is answered.
      const burst = Math.min(1 + Math.floor(Math.random() * 4), TURNS - turn);
      const gate = Promise.withResolvers<void>();
      gates.set(session_id, gate.promise);
      const sent = [];
      for (let index = 0; index < burst; index += 1) {
        sent.push(chat({ session_id, message: `${session_id}#${turn + index}` }));
        await accepted(session_id, `${session_id}#${turn + index}`);
      }
      gate.resolve();
      const answers = await Promise.all(sent);
      answers.forEach(({ body }, index) => expect(body.reply).toBe(`echo: ${session_id}#${turn + index}`));
      conversationId = answers[0]?.body.conversationId as string;
      turn += burst;
    }
    return conversationId;
  };
  const accepted = async (sessionId: string, message: string): Promise<void> => {
    const key = conversationKeyOf({ sessionKey, sessionId, playground: false });
    for (;;) {
      const found = await stack.service.mongo.collection<StoredConversation>('conversations').findOne({ _id: key });
      if (found && JSON.stringify([found.waiting, found.texts]).includes(message)) return;
      await pause(5);
    }
  };
  const ids = await Promise.all(sessions.map(talk));

  for (const [index, conversationId] of ids.entries()) {
    const { body } = await history(conversationId);
    const session = sessions[index] as string;
    const expected = Array.from({ length: TURNS }, (_, turn) => `${session}#${turn}`);
    expect(body.messages.filter(({ role }) => role === 'user').map(({ content }) => content)).toEqual(expected);
    expect(body.messages.filter(({ role }) => role === 'assistant').map(({ content }) => content)).toEqual(
      expected.map((text) => `echo: ${text}`),
    );
    expect(body.messages.map(({ seq }) => seq)).toEqual(expected.flatMap((_, turn) => [turn + 1, turn + 1]));
    const times = (spans.get(session) ?? []).toSorted((a, b) => a.from - b.from);
    times.reduce((before, span) => {
      expect(span.from).toBeGreaterThanOrEqual(before.to);
      return span;
    });
  }
});

test('the events of a conversation are started in order, each after the one before has ended', async () => {
  const { assistantId, chat } = await anAssistant(stack);
  const open = new Map<string, number>();
  let overlaps = 0;
  const receiver = await openReceiver({
    respond: async ({ json }) => {
      const { conversation_id } = (json as { payload: { conversation_id: string } }).payload;
      open.set(conversation_id, (open.get(conversation_id) ?? 0) + 1);
      if ((open.get(conversation_id) ?? 0) > 1) overlaps += 1;
      await pause(Math.random() * 15);
      open.set(conversation_id, (open.get(conversation_id) ?? 0) - 1);
      return {};
    },
  });
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  await stack.startDeliveryWorker();
  const sessions = Array.from({ length: ANNOUNCED.sessions }, () => randomUUID());
  const events = ANNOUNCED.sessions * (ANNOUNCED.turns + 1);

  await Promise.all(
    sessions.map(async (session_id) => {
      for (let turn = 0; turn < ANNOUNCED.turns; turn += 1)
        await chat({ session_id, message: `${session_id}#${turn}` });
    }),
  );
  const received = await receiver.waitFor((all) => all.length >= events);

  expect(overlaps).toBe(0);
  const byConversation = Map.groupBy(
    received,
    ({ json }) => (json as { payload: { conversation_id: string } }).payload.conversation_id,
  );
  for (const own of byConversation.values()) {
    const contents = own.map(({ json }) => (json as { payload: { content?: string } }).payload.content);
    const session = contents[1]?.split('#')[0];
    expect(contents).toEqual([
      undefined,
      ...Array.from({ length: ANNOUNCED.turns }, (_, turn) => `${session}#${turn}`),
    ]);
  }
  expect(new Set(received.map(({ headers }) => headers['x-factory-event-id'])).size).toBe(events);
});
