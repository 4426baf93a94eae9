import type { RecentTurn, StoredConversation } from './conversation.ts';

export type AcceptOptions = {
  windowMs: number;
  /**
   * The caller needs the conversation's id, or other turns of the session are known to be under way: then what was written
   * is read back. Otherwise the turn is taken for head of its line; where it is not, the worker finds so.
   */
  readBack: boolean;
  /** Called before a join is written, so that no answer can come between. */
  watch: (turnId: string) => void;
};

export type Accepted =
  | {
      kind: 'accepted';
      /** Null where it was not read back; the reply brings it. */
      conversationId: string | null;
      turnId: string;
      /** As known or believed: a worker asks MongoDB. */
      head: boolean;
      /** A failed turn, back in line under its old id. */
      resumed: boolean;
      /** The outbox may have a new event. */
      announced: boolean;
    }
  | { kind: 'joined'; conversationId: string; turnId: string }
  | { kind: 'replayed'; conversation: StoredConversation; turn: RecentTurn }
  | { kind: 'busy' };
