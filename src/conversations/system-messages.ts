import { newId } from '../platform/ids.ts';
import type { Message } from './conversation.ts';

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
