import { newId } from '../platform/ids.ts';
import type { Message, StoredConversation } from './conversation.ts';

const systemMessage = (content: string, createdAt: Date): Message => ({
  messageId: newId(),
  turnId: null,
  role: 'system',
  content,
  language: null,
  createdAt,
});

const HANDOFF = 'Handed off to a human: ';
const HAND_BACK = 'Handed back to the assistant';

export const handoffMessage = (reason: string, createdAt: Date): Message =>
  systemMessage(`${HANDOFF}${reason}`, createdAt);
export const handBackMessage = (createdAt: Date): Message => systemMessage(HAND_BACK, createdAt);

/** What a system message records. */
export const readSystemMessage = (
  content: string,
): { kind: 'handoff'; reason: string } | { kind: 'handBack' } | null => {
  if (content.startsWith(HANDOFF)) return { kind: 'handoff', reason: content.slice(HANDOFF.length) };
  return content.startsWith(HAND_BACK) ? { kind: 'handBack' } : null;
};

/** What the visitor reads when the assistant answers again because nobody took the conversation in time. */
export const notTakenMessage = (
  content: string,
  { language }: Pick<StoredConversation, 'language'>,
  createdAt: Date,
): Message => ({ messageId: newId(), turnId: null, role: 'assistant', content, language, createdAt });
