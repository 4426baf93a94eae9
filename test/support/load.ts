import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import { type ChatBody, type HistoryBody, request } from './builders.ts';
import { eventually } from './eventually.ts';
import type { Receiver } from '../kit/receiver.ts';
import type { Stack } from './stack.ts';

/** A caller that follows the contract: it repeats a request until it has an answer. */
const sayUntilAnswered = async (
  url: () => string,
  apiKey: string,
  body: { session_id: string; message: string },
): Promise<ChatBody> => {
  const until = performance.now() + 60_000;
  for (;;) {
    const answer = await request<ChatBody>(`${url()}/api/v1/chat`, { body, bearer: apiKey }).catch(() => null);
    if (answer?.status === 200) return answer.body;
    if (answer && answer.status < 500) throw new Error(`refused with ${answer.status}`);
    if (performance.now() > until) throw new Error('no answer within 60 s');
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
};

/** Sessions that each say their turns one after the other. `answered` has the responses by message. */
export type Load = { answered: Map<string, ChatBody>; done: Promise<void> };

export const startLoad = (
  apiKey: string,
  { sessions, turns, url }: { sessions: number; turns: number; url: () => string },
): Load => {
  const answered = new Map<string, ChatBody>();
  const talk = async (): Promise<void> => {
    const session_id = randomUUID();
    for (let turn = 0; turn < turns; turn += 1) {
      const message = `${session_id}#${turn}`;
      answered.set(message, await sayUntilAnswered(url, apiKey, { session_id, message }));
    }
  };
  return { answered, done: Promise.all(Array.from({ length: sessions }, talk)).then(() => undefined) };
};

export const countOf = (load: Load): number => load.answered.size;

type Told = { url: string; apiKey: string; load: Load; turns: number };

/** Each turn is stored once, with the reply that its caller was told. */
export const expectEachOnce = async ({ url, apiKey, load: { answered }, turns }: Told): Promise<void> => {
  const ids = new Set([...answered.values()].map(({ conversationId }) => conversationId));
  for (const conversationId of ids) {
    const { body } = await request<HistoryBody>(`${url}/api/v1/conversations/${conversationId}`, { bearer: apiKey });
    const expected = Array.from({ length: turns }, (_, turn) => `${body.sessionId}#${turn}`);
    expect(body.messages.filter(({ role }) => role === 'user').map(({ content }) => content)).toEqual(expected);
    const replies = body.messages.filter(({ role }) => role === 'assistant').map(({ messageId }) => messageId);
    expect(replies).toEqual(expected.map((message) => answered.get(message)?.messageId));
  }
};

export const expectNoEventTwice = ({ received }: Receiver): void => {
  const ids = received.map(({ headers }) => headers['x-factory-event-id']);
  expect(new Set(ids).size).toBe(ids.length);
};

/** The events of the load's conversations have all ended, at most once each, and none is left in an outbox. */
export const expectAllEventsEnded = async (
  { service }: Stack,
  { assistantId, receiver, total }: { assistantId: string; receiver: Receiver; total: number },
): Promise<void> => {
  await eventually(async () => {
    const rows = await service.mongo.collection('deliveries').find({ assistantId }).toArray();
    expect(rows.filter(({ outcome }) => ['delivered', 'unknown'].includes(outcome))).toHaveLength(total);
  });
  expectNoEventTwice(receiver);
  // An event is removed from its outbox only a moment after it has ended.
  await eventually(async () => {
    const left = { assistantId, 'outbox.0': { $exists: true } };
    expect(await service.mongo.collection('conversations').countDocuments(left)).toBe(0);
  });
};
