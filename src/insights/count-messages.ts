import * as z from 'zod';
import type { Entry, Message } from '../conversations/conversation.ts';
import { readSystemMessage } from '../conversations/system-messages.ts';
import { bucketOf, type CountedReason, type Counter, ESCALATION_REASONS, hourOf, type Increment } from './figures.ts';

/** The part of a reply's `why` that the figures need. Engines may store more. */
const Why = z.object({
  engine: z.string().optional(),
  kind: z.string().optional(),
  unsure: z.boolean().optional(),
  fallBack: z.unknown().optional(),
  error: z.string().optional(),
});

export type ReplyOutcome = Extract<Counter, 'answered' | 'offered' | 'notAnswered' | 'other' | 'held'>;

const OUTCOME_OF_KIND: Readonly<Record<string, ReplyOutcome>> = {
  answer: 'answered',
  askBack: 'offered',
  unsure: 'notAnswered',
  noKnowledge: 'notAnswered',
};

/** How a reply was decided, read from its `why`. A holding text of an escalated conversation has no `why`. */
export const readReply = ({ why }: Message): { outcome: ReplyOutcome; engineFailed: boolean } => {
  if (why === undefined) return { outcome: 'held', engineFailed: false };
  const { engine, kind, unsure, fallBack, error } = Why.safeParse(why).data ?? {};
  if (error !== undefined) return { outcome: 'notAnswered', engineFailed: true };
  const engineFailed = fallBack !== undefined;
  if (unsure === true) return { outcome: 'notAnswered', engineFailed };
  // A provider's reply has no kind.
  if (kind === undefined) return { outcome: engine === undefined ? 'other' : 'answered', engineFailed };
  return { outcome: Object.hasOwn(OUTCOME_OF_KIND, kind) ? (OUTCOME_OF_KIND[kind] ?? 'other') : 'other', engineFailed };
};

const reasonOf = (reason: string): CountedReason => ESCALATION_REASONS.find((known) => known === reason) ?? 'other';

const namesOf = (message: Message, entry: Entry): string[] => {
  switch (message.role) {
    case 'user': {
      if (message.heldBy) return ['turns', 'held'];
      const isAnswered = entry.messages.some(({ role, turnId }) => role === 'assistant' && turnId === message.turnId);
      return isAnswered ? ['turns'] : ['turns', 'notAnswered'];
    }
    case 'assistant': {
      if (message.turnId === null) return []; // not the reply of a turn
      const { outcome, engineFailed } = readReply(message);
      const visitor = entry.messages.find(({ role, turnId }) => role === 'user' && turnId === message.turnId);
      return [
        outcome,
        ...(engineFailed ? ['engineErrors'] : []),
        ...(visitor ? [`buckets.${bucketOf(message.createdAt.getTime() - visitor.createdAt.getTime())}`] : []),
      ];
    }
    case 'operator':
      return ['operatorReplies'];
    case 'system': {
      const event = readSystemMessage(message.content);
      if (event?.kind === 'handoff') return [`escalated.${reasonOf(event.reason)}`];
      return event?.kind === 'handBack' ? ['handedBack'] : [];
    }
  }
};

/** What the messages of some entries add to the figures of their hours. */
export const countMessages = (assistantId: string, entries: Entry[]): Increment[] =>
  entries.flatMap((entry) =>
    entry.messages.flatMap((message): Increment[] => {
      const names = namesOf(message, entry);
      const counts = Object.fromEntries(names.map((name) => [name, 1]));
      return names.length > 0 ? [{ assistantId, hour: hourOf(message.createdAt), counts }] : [];
    }),
  );
