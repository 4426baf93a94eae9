import { expect, test } from 'vitest';
import { anAssistant, aTurn } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0 });
const KEYS = 5;
/** The most that one holder may have waiting. */
const POLLS = 200;

test('many keys of one assistant have one share together, and another assistant has its own', async () => {
  const [one, other] = [await anAssistant(stack), await anAssistant(stack)];
  const pollOf = async (assistant: typeof one) => {
    const { conversationId } = (await assistant.chat(aTurn())).body;
    return (bearer: string, wait: number, signal?: AbortSignal) =>
      fetch(`${stack.url}/api/v1/conversations/${conversationId}?after_seq=1&wait=${wait}`, {
        headers: { Authorization: `Bearer ${bearer}` },
        ...(signal && { signal }),
      });
  };
  const [poll, pollOther] = [await pollOf(one), await pollOf(other)];
  const makeKey = (name: string, { assistantId }: typeof one) =>
    stack.service.assistants.createApiKey({ assistantId, name, limitPerMinute: 1_000 });
  const keys = await Promise.all(Array.from({ length: KEYS }, (_, nth) => makeKey(`key ${nth}`, one)));
  const leaving = new AbortController();
  /** A poll that ends is sent again, so that a slow machine has as many of them at any time. */
  const keepPolling = async (apiKey: string): Promise<void> => {
    while (!leaving.signal.aborted) await poll(apiKey, 20, leaving.signal).catch(() => null);
  };
  const waiting = keys.flatMap(({ apiKey }) => Array.from({ length: POLLS / KEYS }, () => keepPolling(apiKey)));

  await eventually(async () => {
    const statuses = await Promise.all(keys.map(async ({ apiKey }) => (await poll(apiKey, 1)).status));
    expect(statuses).toEqual(keys.map(() => 429));
  });
  expect((await pollOther(other.apiKey, 1)).status).toBe(200);

  leaving.abort();
  await Promise.all(waiting);
});
