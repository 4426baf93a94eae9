import type { ConversationEvent } from '../webhooks/event.ts';
import type { Entry, RecentTurn, StoredConversation } from './conversation.ts';

/** A conversation as a worker reads it, and as it stands after each turn that it ends: what an answer can rest on. */
export type AnswerableConversation = Pick<
  StoredConversation,
  | '_id'
  | 'conversationId'
  | 'assistantId'
  | 'channel'
  | 'status'
  | 'leadScore'
  | 'leadBecause'
  | 'lowConfidenceStreak'
  | 'engineErrorStreak'
  | 'holding'
  | 'seq'
  | 'storedTo'
  | 'waiting'
>;

/** What a commit stores of one turn that ended. */
export type TurnCommit = {
  entries: Entry[];
  finished: RecentTurn;
  /** Fields of the conversation that it changes. */
  changes: Partial<StoredConversation>;
  event: ConversationEvent | null;
  /** The conversation after it, with the next turn at its head. */
  after: AnswerableConversation;
};
