import type { ConversationEvent } from '../webhooks/event.ts';
import type { Entry, RecentTurn, StoredConversation } from './conversation.ts';

/**
 * The fields of a conversation that an answer can depend on. A worker reads these fields, and computes them again after
 * each turn that it ends.
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
  | 'waitingSince'
  | 'assigneeId'
  | 'seq'
  | 'storedTo'
  | 'waiting'
>;

/** What a commit stores for one ended turn. */
export type TurnCommit = {
  entries: Entry[];
  language: string;
  finished: RecentTurn;
  /** The fields of the conversation that this turn changes. */
  changes: Partial<StoredConversation>;
  event: ConversationEvent | null;
  /** The conversation after this turn. Its head is the next pending turn. */
  after: AnswerableConversation;
};
