import type { StartTurn } from './start-turn.ts';
import type { TurnRequest } from './prepare-turn.ts';
import type { ChatResponse } from './turn.ts';

export type Submitted = {
  response: ChatResponse;
  turnId: string;
  /** The answer of an earlier or concurrent request with the same message: `Idempotent-Replayed: true`. */
  replayed: boolean;
  /** Call once the response was written: from then on a repeated message may be a new turn. */
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
