import { endpointsOf } from '../../src/conversations/outbox.ts';
import type { ConversationStore } from '../../src/conversations/store.ts';
import type { Logger } from '../../src/platform/logger.ts';
import type { Deliver } from './deliver.ts';

/** Lines held in memory at once; beyond, a wake-up waits, so that BullMQ keeps the rest. */
const LINES_MAX = 20_000;

/**
 * Which lines this process is working on. A line runs once at a time; woken while it runs, it looks again before it
 * rests. What is woken here may be worked on elsewhere too: the claim decides.
 */
export const createLines = (dependencies: { conversations: ConversationStore; deliver: Deliver; logger: Logger }) => {
  const { conversations, deliver, logger } = dependencies;
  const active = new Map<string, { again: boolean }>();
  let idle: (() => void)[] = [];
  let room: (() => void)[] = [];
  let closing = false;

  const rest = (lineId: string): void => {
    active.delete(lineId);
    if (active.size < LINES_MAX) for (const go of room.splice(0)) go();
    if (active.size === 0) for (const go of idle.splice(0)) go();
  };

  const run = async (lineId: string, work: () => Promise<void>): Promise<void> => {
    const running = active.get(lineId);
    if (running) {
      running.again = true;
      return;
    }
    const state = { again: false };
    active.set(lineId, state);
    try {
      do {
        state.again = false;
        await work();
      } while (state.again && !closing);
    } catch (cause) {
      // What was claimed ends as `unknown` by the sweep, what was not is woken again by it.
      logger.error({ err: cause, lineId }, 'a line failed');
    } finally {
      rest(lineId);
    }
  };

  return {
    /** Takes the conversations' lines up. Resolves once they are in hand, not once they are sent. */
    wake: async (keys: string[]): Promise<void> => {
      if (active.size >= LINES_MAX) await new Promise<void>((resolve) => room.push(resolve));
      const outboxes = await Promise.all(keys.map((key) => conversations.outbox.read(key)));
      if (closing) return;
      for (const outbox of outboxes) {
        if (!outbox) continue;
        for (const endpointId of endpointsOf(outbox)) {
          void run(`${outbox._id}:${endpointId}`, () => deliver.deliverLine(outbox._id, endpointId));
        }
      }
    },

    wakeDelivery: (deliveryId: string): void => {
      if (!closing) void run(deliveryId, () => deliver.deliverQueued(deliveryId));
    },

    get active(): number {
      return active.size;
    },

    /** Starts nothing new and waits for what is under way. */
    close: async (): Promise<void> => {
      closing = true;
      if (active.size > 0) await new Promise<void>((resolve) => idle.push(resolve));
    },
  };
};

export type Lines = ReturnType<typeof createLines>;
