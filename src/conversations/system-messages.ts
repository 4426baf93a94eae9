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

export const handoffMessage = (reason: string, createdAt: Date): Message =>
  systemMessage(`Handed off to a human: ${reason}`, createdAt);
export const handBackMessage = (createdAt: Date): Message => systemMessage('Handed back to the assistant', createdAt);
