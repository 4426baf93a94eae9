import { expect } from 'vitest';
import type { AssistantInput } from '../../src/assistants/assistant.ts';
import type { KnowledgeInput } from '../../src/assistants/knowledge/entry.ts';
import { loadBase } from '@parley/understanding/evaluation';
import { anAssistant, aTurn, type ChatBody } from './builders.ts';
import { eventually } from './eventually.ts';
import type { Stack } from './stack.ts';

/** A hotel's 40 entries. Only the answer on pets mentions a dog. */
export const HOTEL: KnowledgeInput[] = loadBase('hotel').knowledge.map(({ entryId: _entryId, ...entry }) => entry);

type Hit = { entryId: string; score: number; words?: number; meaning?: number };
type Why = { kind: string; by?: string; hits: Hit[] };
type Action = { label: string; type: string; payload: string };
type Options = { knowledge?: KnowledgeInput[]; input?: Partial<AssistantInput>; known?: boolean };

/** A hotel's assistant with all vectors made, and guests who talk to it. */
export const aHotel = async (stack: Stack, { knowledge = HOTEL, input = {}, known = true }: Options = {}) => {
  const assistant = await anAssistant(stack, { knowledge, input });
  if (known) {
    await eventually(async () => {
      const { semantic, version } = await stack.service.assistants.getAssistant(assistant.assistantId);
      expect(semantic).toMatchObject({ version, answers: knowledge.length });
    });
  }
  return {
    ...assistant,
    answerTo: (question: string): string => knowledge.find((entry) => entry.question === question)?.answer ?? '',
    /** A guest with a new conversation. */
    aGuest: () => {
      const { session_id } = aTurn();
      return async (message: string) => {
        const { status, body } = await assistant.chat({ session_id, message });
        expect(status).toBe(200);
        const ended = stack.logs.findLast(
          ({ msg, conversationId }) => msg === 'turn ended' && conversationId === body.conversationId,
        );
        const actions = (body.suggestedActions ?? []) as Action[];
        return { ...(body satisfies ChatBody), actions, why: ended?.['why'] as Why | undefined };
      };
    },
  };
};
