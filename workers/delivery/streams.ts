import { BACKLOG_MAX, endpointsOf, lineOf } from '../../src/deliveries/outbox.ts';
import type { DeliveryQueue } from '../../src/deliveries/queue.ts';
import type { DeliveryStore } from '../../src/deliveries/store.ts';
import type { Logger } from '../../src/platform/logger.ts';
import type { Deliver, OutboxReading } from './deliver.ts';

type Line = { key: string | null; wokenAt: number };

type Dependencies = {
  deliveries: Pick<DeliveryStore, 'outbox'>;
  deliver: Deliver;
  deliveryQueue: Pick<DeliveryQueue, 'wake'>;
  logger: Logger;
};

/**
 * Which lines this process is working on. A line runs once at a time; woken after its last reading began, it looks again
 * before it rests. What is woken here may be worked on elsewhere too: the claim decides. How many there can be at once
 * is bounded by the slots, which turn away what they cannot hold.
 */
export const createLines = ({ deliveries, deliver, deliveryQueue, logger }: Dependencies) => {
  const active = new Map<string, Line>();
  let idle: (() => void)[] = [];
  let closing = false;

  const rest = (lineId: string): void => {
    active.delete(lineId);
    if (active.size === 0) for (const go of idle.splice(0)) go();
  };

  /** Answers when the last reading began; after a failure, when this try did: a wake-up that came since counts. */
  const runOnce = async (lineId: string, work: () => Promise<number>): Promise<number> => {
    const startedAt = performance.now();
    try {
      return await work();
    } catch (cause) {
      // What was claimed ends as `unknown` by the sweep, what was not is woken again by it.
      logger.error({ err: cause, lineId }, 'a line failed');
      return startedAt;
    }
  };

  /** `work` answers when its last reading began. */
  const run = async (lineId: string, line: Line, work: (again: boolean) => Promise<number>): Promise<void> => {
    active.set(lineId, line);
    let readAt = await runOnce(lineId, () => work(false));
    while (readAt < line.wokenAt && !closing) readAt = await runOnce(lineId, () => work(true));
    rest(lineId);
  };

  const takeUp = (reading: OutboxReading, endpointId: string): void => {
    const { at, outbox } = reading;
    const lineId = `${outbox._id}:${endpointId}`;
    const running = active.get(lineId);
    if (!running) {
      void run(lineId, { key: outbox._id, wokenAt: at }, (again) =>
        deliver.deliverLine(outbox._id, endpointId, again ? undefined : reading),
      );
      return;
    }
    // Readings that began in this order may end in another.
    running.wokenAt = Math.max(running.wokenAt, at);
    const trimId = `${lineId}:trim`;
    if (lineOf(outbox, endpointId).length <= BACKLOG_MAX + 1 || active.has(trimId)) return;
    void run(trimId, { key: null, wokenAt: at }, async () => {
      await deliver.trimLine(reading, endpointId);
      return at;
    });
  };

  return {
    /** Takes the conversations' lines up. Resolves once they are in hand, not once they are sent. */
    wake: async (keys: string[]): Promise<void> => {
      const at = performance.now();
      const outboxes = await Promise.all(keys.map((key) => deliveries.outbox.read(key)));
      if (closing) return;
      for (const outbox of outboxes) {
        if (outbox) for (const endpointId of endpointsOf(outbox)) takeUp({ at, outbox }, endpointId);
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

    /** Starts nothing new, waits for what is under way, and asks others to go on with what is left. */
    close: async (): Promise<void> => {
      closing = true;
      const keys = new Set([...active.values()].flatMap(({ key }) => key ?? []));
      if (active.size > 0) await new Promise<void>((resolve) => idle.push(resolve));
      for (const key of keys) deliveryQueue.wake(key);
    },
  };
};

export type Lines = ReturnType<typeof createLines>;
