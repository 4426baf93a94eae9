import type { OutboxStore } from './outbox-store.ts';
import type { DeliveryQueue } from './queue.ts';

/**
 * The maximum number of streams that are woken together after their endpoint changed. Sweeps find the other streams
 * within seconds.
 */
const WOKEN_AT_ONCE = 5_000;

type Dependencies = { outbox: Pick<OutboxStore, 'findKeysOf'>; deliveryQueue: Pick<DeliveryQueue, 'wake'> };

/** Wakes the streams with pending events for an endpoint that has changed. Never throws. */
export const createWakeStreams =
  ({ outbox, deliveryQueue }: Dependencies) =>
  async (endpointId: string): Promise<void> => {
    const keys = await outbox.findKeysOf(endpointId, WOKEN_AT_ONCE).catch(() => []);
    for (const key of keys) deliveryQueue.wake(key);
  };
