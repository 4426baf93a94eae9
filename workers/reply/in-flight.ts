import type { Logger } from '../../src/platform/logger.ts';
import { createSlots } from '../../src/platform/slots.ts';

type ProviderTurn = {
  assistantId: string;
  turnId: string;
  /** Gives the turn that is to be asked for next, if any. */
  answer: () => Promise<string | null>;
  /** Asks for a turn by a job: the slot is given up between the turns of a session, so that none keeps it for ever. */
  enqueue: (turnId: string) => void;
};

/**
 * Turns that wait for a provider, or for a slot to ask it: a job only begins them, so that it is free for turns that need
 * none. An assistant holds fewer slots than are left free, so there is room for the next one however many wait already: one
 * alone holds half of them, two a third each. A turn that waits for a slot is not taken: another worker may answer it.
 */
export const createInFlight = ({ total, logger }: { total: number; logger: Logger }) => {
  const slots = createSlots(({ own, inUse }) => own < total - inUse);
  const waiting = new Set<string>();
  const running = new Set<Promise<void>>();
  let closed = false;

  const run = async ({ assistantId, turnId, answer }: ProviderTurn): Promise<string | null> => {
    waiting.add(turnId);
    const entered = await slots.acquire(assistantId);
    waiting.delete(turnId);
    // With too many in line already, it is left to the sweeps.
    if (!entered) return closed ? turnId : null;
    try {
      return await answer();
    } catch (cause) {
      logger.warn({ err: cause, turnId }, 'a turn was not answered');
      return null;
    } finally {
      slots.release(assistantId);
    }
  };

  return {
    /** Waits here for a slot: its job has come again. */
    isWaiting: (turnId: string): boolean => waiting.has(turnId),

    start: (turn: ProviderTurn): void => {
      if (waiting.has(turn.turnId)) return;
      const follow = async (): Promise<void> => {
        const next = await run(turn);
        if (next !== null) turn.enqueue(next);
      };
      const ended = follow().finally(() => running.delete(ended));
      running.add(ended);
    },

    /** What waits goes back to the queue; what was begun is waited for. */
    close: async (): Promise<void> => {
      closed = true;
      slots.close();
      await Promise.all(running);
    },
  };
};

export type InFlight = ReturnType<typeof createInFlight>;
