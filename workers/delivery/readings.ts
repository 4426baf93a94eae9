import { type Outbox, pendingOf } from '../../src/deliveries/outbox.ts';
import type { DeliveryStore } from '../../src/deliveries/store.ts';
import type { Slot } from '../../src/platform/slots.ts';
import { TIMING } from '../../src/platform/timing.ts';
import type { StoredEndpoint } from '../../src/webhooks/endpoint.ts';
import type { EndpointStore } from '../../src/webhooks/endpoint-store.ts';

/** An outbox and the monotonic time just before it was read. */
export type OutboxReading = { at: number; outbox: Outbox };
export type Reading = OutboxReading & { endpoint: StoredEndpoint | null };

export const isFresh = ({ at }: { at: number }): boolean => performance.now() - at < TIMING.readFreshMs;

type Dependencies = { endpoints: Pick<EndpointStore, 'readForSending'>; outboxes: DeliveryStore['outbox'] };

/** Reads delivery streams: the outbox of a conversation together with one of its endpoints. */
export const createReadings = ({ endpoints, outboxes }: Dependencies) => {
  const read = async (key: string, endpointId: string): Promise<Reading | null> => {
    const at = performance.now();
    const [outbox, endpoint] = await Promise.all([outboxes.read(key), endpoints.readForSending(endpointId)]);
    return outbox && { at, outbox, endpoint };
  };

  /**
   * Performs a write that returns the new outbox. Reads the endpoint in parallel if more events were pending before.
   * Otherwise reads the endpoint after the write, and only if an event is pending.
   */
  const readAfter = async (
    before: Reading,
    endpointId: string,
    write: () => Promise<Outbox | null>,
  ): Promise<Reading | null> => {
    const at = performance.now();
    const more = pendingOf(before.outbox, endpointId).length > 1;
    const [outbox, early] = await Promise.all([write(), more ? endpoints.readForSending(endpointId) : null]);
    if (!outbox) return null;
    const isDone = pendingOf(outbox, endpointId).length === 0;
    return { at, outbox, endpoint: early ?? (isDone ? null : await endpoints.readForSending(endpointId)) };
  };

  /**
   * Reads again what may have changed during the wait for a slot: the endpoint, which may be paused, and after a long
   * wait the outbox too.
   */
  const readInSlot = async (before: Reading, endpointId: string, { hasWaited }: Slot): Promise<Reading | null> => {
    if (!isFresh(before)) return read(before.outbox._id, endpointId);
    return hasWaited ? { ...before, endpoint: await endpoints.readForSending(endpointId) } : before;
  };

  return { read, readAfter, readInSlot };
};
