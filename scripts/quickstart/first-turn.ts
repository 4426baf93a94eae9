import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import * as z from 'zod';
import { StartError } from './settings.ts';

const EVENT_WITHIN_MS = 10_000;
const POLL_MS = 25;

const Answer = z.object({
  reply: z.string().min(1),
  suggestedActions: z.array(z.object({ label: z.string(), type: z.string(), payload: z.string() })).default([]),
  conversationId: z.string(),
});
const Received = z.array(
  z.object({
    verified: z.boolean(),
    reason: z.string().nullable(),
    event: z
      .object({
        event: z.string(),
        event_id: z.string(),
        payload: z.object({ conversation_id: z.string().optional() }),
      })
      .nullable(),
  }),
);

export type FirstTurn = z.infer<typeof Answer> & { question: string; answeredMs: number; eventIds: string[] };

type Demo = { baseUrl: string; apiKey: string; receiverUrl: string; question: string; signal: AbortSignal };

const ask = async ({ baseUrl, apiKey, question, signal }: Demo) => {
  const response = await fetch(`${baseUrl}/api/v1/chat`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${apiKey}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ session_id: `quickstart-${randomUUID()}`, message: question }),
    signal,
  });
  const body = await response.text();
  if (response.status !== 200) throw new StartError(`the first turn was answered with ${response.status}: ${body}`);
  return Answer.parse(JSON.parse(body));
};

/** Waits until the receiver has verified the first two events of the conversation, and returns their ids. */
const untilVerified = async ({ receiverUrl, signal }: Demo, conversationId: string): Promise<string[]> => {
  const deadline = Date.now() + EVENT_WITHIN_MS;
  while (Date.now() < deadline) {
    const received = Received.parse(await (await fetch(`${receiverUrl}/received`, { signal })).json());
    const refused = received.find(({ verified }) => !verified);
    if (refused) throw new StartError(`the receiver refused the signature of an event: ${refused.reason}`);
    const ours = received.flatMap(({ event }) => (event?.payload.conversation_id === conversationId ? [event] : []));
    const ids = ['conversation.created', 'message.received'].map(
      (kind) => ours.find(({ event }) => event === kind)?.event_id,
    );
    if (ids.every((id) => id !== undefined)) return ids;
    await pause(POLL_MS, undefined, { signal });
  }
  throw new StartError(`the turn was answered, but its events did not arrive within ${EVENT_WITHIN_MS / 1000} s`);
};

/** Asks one question through the API and waits until the receiver has verified its events. */
export const tryFirstTurn = async (demo: Demo): Promise<FirstTurn> => {
  const since = performance.now();
  const answer = await ask(demo);
  const answeredMs = performance.now() - since;
  const eventIds = await untilVerified(demo, answer.conversationId);
  return { ...answer, question: demo.question, answeredMs, eventIds };
};
