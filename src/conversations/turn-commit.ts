import type { ConversationEvent } from '../webhooks/event.ts';
import type { Entry, RecentTurn, StoredConversation } from './conversation.ts';

/**
 * The fields of a conversation that an answer can depend on: as a worker reads them, and as they are after each turn
 * that it ends.
 */
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

/** What a commit stores for one ended turn. */
export type TurnCommit = {
  entries: Entry[];
  finished: RecentTurn;
  /** Fields of the conversation that it changes. */
  changes: Partial<StoredConversation>;
  event: ConversationEvent | null;
  /** The conversation after this turn. The next pending turn is its head. */
  after: AnswerableConversation;
};
