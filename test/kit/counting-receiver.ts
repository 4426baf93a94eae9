import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Random } from './random.ts';

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

  const server = createServer((request, response) => {
    const id = String(request.headers['x-factory-event-id']);
    let body = '';
    request.setEncoding('utf8').on('data', (chunk: string) => (body += chunk));
    request.on('end', () => {
      times.set(id, (times.get(id) ?? 0) + 1);
      const { payload } = JSON.parse(body) as { payload: { conversation_id: string; content: string } };
      const { conversation_id: conversation } = payload;
      const number = Number(payload.content.split(' ')[0]);
      const before = order.get(conversation) ?? [];
      if (before.length > 0 && number <= (before.at(-1) as number)) inversions += 1;
      order.set(conversation, [...before.slice(-1), number]);
      const now = (open.get(conversation) ?? 0) + 1;
      if (now > 1) overlaps += 1;
      open.set(conversation, now);
      const close = () => open.set(conversation, Math.max(0, (open.get(conversation) ?? 1) - 1));
      setTimeout(() => {
        close();
        response.writeHead(200).end('ok');
      }, random.next() * latencyMs);
    });
    request.on('error', () => undefined);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');

  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
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
    close: async (): Promise<void> => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
};

export type CountingReceiver = Awaited<ReturnType<typeof openCountingReceiver>>;
