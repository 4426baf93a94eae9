import type { OutboxStore } from './outbox-store.ts';
import type { DeliveryQueue } from './queue.ts';

/** The most streams that a change of their endpoint wakes at once. Sweeps find the others within seconds. */
const WOKEN_AT_ONCE = 5_000;

type Dependencies = { outbox: Pick<OutboxStore, 'findKeysOf'>; deliveryQueue: Pick<DeliveryQueue, 'wake'> };

/** Wakes the streams with pending events for an endpoint, after it changed. Never throws. */
export const createWakeStreams =
  ({ outbox, deliveryQueue }: Dependencies) =>
  async (endpointId: string): Promise<void> => {
    const keys = await outbox.findKeysOf(endpointId, WOKEN_AT_ONCE).catch(() => []);
    for (const key of keys) deliveryQueue.wake(key);
  };
