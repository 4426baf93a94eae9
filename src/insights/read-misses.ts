import * as z from 'zod';
import type { Entry, Message } from '../conversations/conversation.ts';
import { readReply } from './count-messages.ts';

const QUESTION_MAX = 500;
const ANSWER_MAX = 4_000;
/** At most about this many lessons are learned in one step, because a worker that writes replies learns them. */
export const LESSONS_AT_ONCE = 50;
/** At most about this many characters of a conversation are read for words in one step. */
const CHARS_AT_ONCE = 100_000;
/** An offer is a miss if its best confidence was below this share of the threshold. */
const LONG_SHOT_SHARE = 0.5;

/** What the projection learns from some messages: a question without an answer, or what an operator wrote after it. */
export type Lesson =
  | { kind: 'miss'; question: string; language: string | null; at: Date }
  | { kind: 'answer'; content: string; at: Date };

const Offer = z.object({
  kind: z.literal('askBack'),
  threshold: z.number(),
  hits: z.array(z.object({ score: z.number() })).min(1),
});

const isLongShot = ({ why }: Message): boolean => {
  const offer = Offer.safeParse(why).data;
  return offer !== undefined && (offer.hits[0]?.score ?? 0) < offer.threshold * LONG_SHOT_SHARE;
};

const isMiss = (reply: Message): boolean => {
  const { outcome, engineFailed } = readReply(reply);
  return (outcome === 'notAnswered' && !engineFailed) || (outcome === 'offered' && isLongShot(reply));
};

const cut = (text: string, length: number): string => text.trim().slice(0, length).toWellFormed();

/** The lessons of some entries, in order. */
export const readLessons = (entries: Entry[]): Lesson[] =>
  entries.flatMap(({ messages }) =>
    messages.flatMap((message): Lesson[] => {
      if (message.role === 'operator')
        return [{ kind: 'answer', content: cut(message.content, ANSWER_MAX), at: message.createdAt }];
      if (message.role !== 'assistant' || message.turnId === null || !isMiss(message)) return [];
      const visitor = messages.find(({ role, turnId }) => role === 'user' && turnId === message.turnId);
      if (!visitor || !/\p{L}/u.test(visitor.content)) return [];
      const { content, language, createdAt: at } = visitor;
      return [{ kind: 'miss', question: cut(content, QUESTION_MAX), language, at }];
    }),
  );

/**
 * The first entries whose lessons and texts fit one step, at least one entry, and the last number up to which they are
 * complete.
 */
export const fitStep = ({ entries, upTo }: { entries: Entry[]; upTo: number }): { entries: Entry[]; upTo: number } => {
  let [lessons, chars] = [0, 0];
  const surplus = entries.findIndex((entry, nth) => {
    lessons += readLessons([entry]).length;
    chars += entry.messages.reduce((sum, { content }) => sum + content.length, 0);
    return nth > 0 && (lessons > LESSONS_AT_ONCE || chars > CHARS_AT_ONCE);
  });
  const next = entries[surplus];
  return next ? { entries: entries.slice(0, surplus), upTo: next.seq - 1 } : { entries, upTo };
};
