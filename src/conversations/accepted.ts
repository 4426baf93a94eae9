import type { RecentTurn, StoredConversation } from './conversation.ts';

export type AcceptOptions = {
  windowMs: number;
  /**
   * Read back what was written, because the caller needs the conversation's id, or other turns of the session are in
   * flight. Otherwise the turn is assumed to be the head of the pending turns, which the worker checks.
   */
  readBack: boolean;
  /** Called before a join is written, so that an answer which comes right after it is not missed. */
  watch: (turnId: string) => void;
};

export type Accepted =
  | {
      kind: 'accepted';
      /** Null if it was not read back. The reply carries it. */
      conversationId: string | null;
      turnId: string;
      /** Whether the turn is the head. Assumed if it was not read back; the worker checks it. */
      head: boolean;
      /** A failed turn that is pending again, under its old id. */
      resumed: boolean;
      /** The outbox may have a new event. */
      announced: boolean;
    }
  | { kind: 'joined'; conversationId: string; turnId: string }
  | { kind: 'replayed'; conversation: StoredConversation; turn: RecentTurn }
  | { kind: 'busy' };
