import type { RecentTurn, StoredConversation } from './conversation.ts';

export type AcceptOptions = {
  windowMs: number;
  /**
   * If true, the conversation is read after the write, because the caller needs the conversation's id or other turns of
   * the session are in flight. If false, the turn is assumed to be the head of the pending turns; the worker checks
   * this.
   */
  readBack: boolean;
  /**
   * Called before this request joins a pending turn, so that the caller is already waiting when that turn's reply
   * arrives.
   */
  watch: (turnId: string) => void;
};

export type Accepted =
  | {
      kind: 'accepted';
      /** Null if the conversation was not read back. In this case, the reply contains the id. */
      conversationId: string | null;
      turnId: string;
      /**
       * Whether the turn is the head. Assumed to be true if the conversation was not read back; the worker checks this.
       */
      head: boolean;
      /** True for a failed turn that is pending again under its old id. */
      resumed: boolean;
      /** True if the outbox may have a new event. */
      announced: boolean;
    }
  | { kind: 'joined'; conversationId: string; turnId: string }
  | { kind: 'replayed'; conversation: StoredConversation; turn: RecentTurn }
  | { kind: 'busy' };
