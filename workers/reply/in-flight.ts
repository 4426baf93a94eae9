import type { Logger } from '../../src/process/logger.ts';
import { createSlots } from '../../src/process/slots.ts';

type ProviderTurn = {
  assistantId: string;
  turnId: string;
  /** Resolves with the id of the next turn to enqueue, or null. */
  answer: () => Promise<string | null>;
  /** Enqueues a turn. A session's next turn needs a new slot, so that no session keeps a slot for ever. */
  enqueue: (turnId: string) => void;
};

/**
 * Turns that wait for a provider, or for a slot to call it. A job only starts these turns, so that jobs stay free for
 * turns without a provider. An assistant gets another slot only while it has fewer slots than are free, so that the
 * next assistant always finds a free slot: one assistant gets at most half of the slots, and two get a third each. A
 * turn that waits for a slot has no lease, so another worker may answer it.
 */
export type InFlight = {
  /** True if the turn already waits for a slot. A second job for it is then ignored. */
  isWaiting: (turnId: string) => boolean;

  start: (turn: ProviderTurn) => void;

  /** Enqueues waiting turns again, and waits for running turns. */
  close: () => Promise<void>;
};

export const createInFlight = ({ total, logger }: { total: number; logger: Logger }): InFlight => {
  const slots = createSlots(({ own, inUse }) => own < total - inUse);
  const waiting = new Set<string>();
  const running = new Set<Promise<void>>();
  let closed = false;

  const run = async ({ assistantId, turnId, answer }: ProviderTurn): Promise<string | null> => {
    waiting.add(turnId);
    const slot = await slots.acquire(assistantId);
    waiting.delete(turnId);
    // No slot was given, because the process is stopping or the list of waiting turns is full. In the second case the
    // sweep enqueues the turn again later.
    if (!slot) return closed ? turnId : null;
    try {
      return await answer();
    } catch (cause) {
      logger.warn({ err: cause, turnId }, 'a turn was not answered');
      return null;
    } finally {
      slot.release();
    }
  };

  return {
    isWaiting: (turnId) => waiting.has(turnId),

    start: (turn) => {
      if (waiting.has(turn.turnId)) return;
      const follow = async (): Promise<void> => {
        const next = await run(turn);
        if (next !== null) turn.enqueue(next);
      };
      const ended = follow().finally(() => running.delete(ended));
      running.add(ended);
    },

    close: async () => {
      closed = true;
      slots.close();
      await Promise.all(running);
    },
  };
};
