import { setTimeout as sleep } from 'node:timers/promises';
import type { Random } from './random.ts';
import { type Answer, openReceiver, type Received } from './receiver.ts';

/**
 * A customer's server for the test. It counts each event, answers 200 after a random time, and knows which
 * conversations have a request in flight.
 */
export const openCountingReceiver = async (random: Random, latencyMs: number) => {
  const times = new Map<string, number>();
  const order = new Map<string, number[]>();
  const open = new Map<string, number>();
  let overlaps = 0;
  let inversions = 0;

  const respond = async ({ headers, json }: Received): Promise<Answer> => {
    const id = String(headers['x-factory-event-id']);
    times.set(id, (times.get(id) ?? 0) + 1);
    const { payload } = json as { payload: { conversation_id: string; content: string } };
    const { conversation_id: conversation } = payload;
    const number = Number(payload.content.split(' ')[0]);
    const before = order.get(conversation) ?? [];
    if (before.length > 0 && number <= (before.at(-1) as number)) inversions += 1;
    order.set(conversation, [...before.slice(-1), number]);
    const now = (open.get(conversation) ?? 0) + 1;
    if (now > 1) overlaps += 1;
    open.set(conversation, now);
    await sleep(random.next() * latencyMs);
    open.set(conversation, Math.max(0, (open.get(conversation) ?? 1) - 1));
    return {};
  };
  const { url, close } = await openReceiver({ respond });

  return {
    url,
    times,
    get overlaps() {
      return overlaps;
    },
    get inversions() {
      return inversions;
    },
    get received() {
      return [...times.values()].reduce((sum, count) => sum + count, 0);
    },
    close,
  };
};

export type CountingReceiver = Awaited<ReturnType<typeof openCountingReceiver>>;
