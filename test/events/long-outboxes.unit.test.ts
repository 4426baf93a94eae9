import { randomUUID } from 'node:crypto';
import { expect, test, vi } from 'vitest';
import { createDeliveryList, deliveryCursor } from '../../src/events/list.ts';

type Dependencies = Parameters<typeof createDeliveryList>[0];
type Outbox = Dependencies['outbox'] extends { listPending: (...args: never[]) => AsyncIterable<infer One> }
  ? One
  : never;

test('a list decodes its cursor a few times, however many events wait', async () => {
  const [assistantId, endpointId, conversationId] = [randomUUID(), randomUUID(), randomUUID()];
  const outbox = Array.from({ length: 1_000 }, (_, nth) => {
    return { eventId: randomUUID(), event: 'tag.added', at: new Date(nth), endpoints: [endpointId], payload: {} };
  });
  const pending = { assistantId, conversationId, outbox } as unknown as Outbox;
  const list = createDeliveryList({
    listRecords: async () => ({ deliveries: [], nextCursor: null }),
    readOutcomes: async () => new Map(),
    listEndpointIds: async () => [endpointId],
    outbox: {
      async *listPending() {
        yield pending;
      },
    } as Partial<Dependencies['outbox']> as Dependencies['outbox'],
  });
  const cursor = deliveryCursor.encode({ at: new Date(500), id: '0' });
  const parse = vi.spyOn(JSON, 'parse');

  const { deliveries } = await list({ assistantId, conversationId, cursor, limit: 5 });
  const parsed = parse.mock.calls.length;
  parse.mockRestore();

  expect(deliveries.map(({ createdAt }) => createdAt.getTime())).toEqual([499, 498, 497, 496, 495]);
  expect(parsed).toBeLessThan(10);
});
