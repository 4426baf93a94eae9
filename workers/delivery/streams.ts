import { BACKLOG_MAX } from '../../src/conversations/conversation.ts';
import { endpointsOf, pendingOf } from '../../src/deliveries/outbox.ts';
import type { DeliveryQueue } from '../../src/deliveries/queue.ts';
import type { DeliveryStore } from '../../src/deliveries/store.ts';
import type { Logger } from '../../src/platform/logger.ts';
import type { Deliver, OutboxReading } from './deliver.ts';

type Running = { key: string | null; wokenAt: number };

type Dependencies = {
  deliveries: Pick<DeliveryStore, 'outbox'>;
  deliver: Deliver;
  deliveryQueue: Pick<DeliveryQueue, 'wake'>;
  logger: Logger;
};

/**
 * The delivery streams that this process is working on. Each stream runs only once at a time. A stream that is woken
 * after its last read began reads again before it stops. Two processes may work on the same stream, and the claim
 * decides which one sends. The slots limit how many streams send at the same time.
 */
export const createStreams = ({ deliveries, deliver, deliveryQueue, logger }: Dependencies) => {
  const active = new Map<string, Running>();
  let idle: (() => void)[] = [];
  let closing = false;

  const stop = (streamId: string): void => {
    active.delete(streamId);
    if (active.size === 0) for (const go of idle.splice(0)) go();
  };

  /**
   * Runs `work` once and returns the time when its last read began. After a failure, returns the time when `work`
   * started, so that a later wake-up still counts.
   */
  const runOnce = async (streamId: string, work: () => Promise<number>): Promise<number> => {
    const startedAt = performance.now();
    try {
      return await work();
    } catch (cause) {
      // The sweep ends the claim as `unknown` and wakes the stream again for the remaining events.
      logger.error({ err: cause, streamId }, 'a delivery stream failed');
      return startedAt;
    }
  };

  /** Runs `work` until no wake-up is newer than its last read. `work` returns the time when that read began. */
  const run = async (streamId: string, stream: Running, work: (again: boolean) => Promise<number>): Promise<void> => {
    active.set(streamId, stream);
    let readAt = await runOnce(streamId, () => work(false));
    while (readAt < stream.wokenAt && !closing) readAt = await runOnce(streamId, () => work(true));
    stop(streamId);
  };

  const deliverFrom = (reading: OutboxReading, endpointId: string): void => {
    const { at, outbox } = reading;
    const streamId = `${outbox._id}:${endpointId}`;
    const running = active.get(streamId);
    if (!running) {
      void run(streamId, { key: outbox._id, wokenAt: at }, (again) =>
        deliver.deliverStream(outbox._id, endpointId, again ? undefined : reading),
      );
      return;
    }
    // The maximum is taken, because reads may finish in a different order than they started.
    running.wokenAt = Math.max(running.wokenAt, at);
    const trimId = `${streamId}:trim`;
    if (pendingOf(outbox, endpointId).length <= BACKLOG_MAX + 1 || active.has(trimId)) return;
    void run(trimId, { key: null, wokenAt: at }, async () => {
      await deliver.trimStream(reading, endpointId);
      return at;
    });
  };

  return {
    /**
     * Starts the streams of these conversations. Resolves when the streams have started, before their events are sent.
     */
    wake: async (keys: string[]): Promise<void> => {
      const at = performance.now();
      const outboxes = await Promise.all(keys.map((key) => deliveries.outbox.read(key)));
      if (closing) return;
      for (const outbox of outboxes) {
        if (outbox) for (const endpointId of endpointsOf(outbox)) deliverFrom({ at, outbox }, endpointId);
      }
    },

    wakeDelivery: (deliveryId: string): void => {
      if (closing || active.has(deliveryId)) return;
      void run(deliveryId, { key: null, wokenAt: 0 }, async () => {
        await deliver.deliverQueued(deliveryId);
        return 0;
      });
    },

    get active(): number {
      return active.size;
    },

    /** Starts no new streams, waits for running streams, and wakes other processes for the remaining events. */
    close: async (): Promise<void> => {
      closing = true;
      const keys = new Set([...active.values()].flatMap(({ key }) => key ?? []));
      if (active.size > 0) await new Promise<void>((resolve) => idle.push(resolve));
      for (const key of keys) deliveryQueue.wake(key);
    },
  };
};

export type Streams = ReturnType<typeof createStreams>;
