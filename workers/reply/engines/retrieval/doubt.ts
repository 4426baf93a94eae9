import { fold } from '../../../../src/language/fold.ts';
import type { Weighed } from '../../vectors/weigh.ts';
import { expand } from './expand.ts';
import type { Question, Seen } from './features.ts';
import { readTerms, type Term } from './terms.ts';

const LEAST_WORDS = 2;
/** As in `features.ts`. */
const SCALE = 20;

const isIn = (term: Term, { group, entry }: Seen): boolean => {
  const number = group.entries.indexOf(entry);
  return [...expand({ ...term, concept: null }, group).keys()].some((key) => {
    const places = group.postings.get(key);
    return places !== undefined && (places.askedBy.includes(number) || places.answers.includes(number));
  });
};

/**
 * The message without the words that an entry does not have. Null where there are none, where too little would be left, or
 * where the entry is in another language and has none of them.
 */
export const withoutStrange = ({ message, spoken }: Question, seen: Seen): string | null => {
  if (seen.group.language !== spoken) return null;
  const strange = new Set(
    readTerms(message, seen.group.language, spoken)
      .filter((term) => !isIn(term, seen))
      .flatMap(({ word }) => word.split(' ')),
  );
  if (strange.size === 0) return null;
  const words = message.split(/\s+/).filter(Boolean);
  const rest = words.filter((word) => !strange.has(fold(word).replace(/[^\p{L}\p{M}\p{N}]/gu, '')));
  return rest.length < LEAST_WORDS || rest.length === words.length ? null : rest.join(' ');
};

/**
 * How much nearer the entry is without them. Nearer: it does not speak of them, as an entry on renewing books does not speak
 * of the passport in "how do I renew my passport". Further away: it says the same in other words.
 */
export const doubtsOf = (entryId: string, whole: Weighed, rest: Weighed): number[] | null => {
  const [before, after] = [whole, rest].map(({ entries }) => entries.find((near) => near.entryId === entryId));
  if (!before || !after) return null;
  const byQuestion = after.asked - before.asked;
  const byAnswer = (after.answer ?? after.asked) - (before.answer ?? before.asked);
  return [SCALE * byQuestion, SCALE * byAnswer];
};
