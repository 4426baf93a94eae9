import type { StartTurn } from './start-turn.ts';
import type { TurnRequest } from './prepare-turn.ts';
import type { ChatResponse } from './turn.ts';

export type Submitted = {
  response: ChatResponse;
  turnId: string;
  /**
   * True for the answer of an earlier or concurrent request with the same message. The response then has the header
   * `Idempotent-Replayed: true`.
   */
  replayed: boolean;
  /** Call this once the response was written. From then on, a repeated message may become a new turn. */
  delivered: () => void;
};

/** Starts a turn and waits for its answer. */
export const createSubmit =
  (startTurn: StartTurn) =>
  async (request: TurnRequest): Promise<Submitted> => {
    const { turnId, replayed, delivered, response, end } = await startTurn(request);
    try {
      return { response: await response(), turnId, replayed, delivered };
    } finally {
      end();
    }
  };

export type Submit = ReturnType<typeof createSubmit>;
