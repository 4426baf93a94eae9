import { fold } from '../../../../src/language/fold.ts';
import type { Similarities } from '../../vectors/similarity.ts';
import { expandTerm } from './expand.ts';
import type { Question, Candidate } from './candidate.ts';
import { readTerms, type Term } from './terms.ts';

const LEAST_WORDS = 2;
/** As in `features.ts`. */
const SCALE = 20;

const isIn = (term: Term, { group, entry }: Candidate): boolean => {
  const number = group.entries.indexOf(entry);
  return [...expandTerm({ ...term, concept: null }, group).keys()].some((key) => {
    const places = group.postings.get(key);
    return places !== undefined && (places.questionEntries.includes(number) || places.answerEntries.includes(number));
  });
};

/**
 * The message without the words that an entry does not have. Null where there are none, where too little would be left, or
 * where the entry is in another language and has none of them.
 */
export const withoutUnknownWords = ({ message, visitorLanguage }: Question, seen: Candidate): string | null => {
  if (seen.group.language !== visitorLanguage) return null;
  const strange = new Set(
    readTerms(message, seen.group.language, visitorLanguage)
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
export const counterEvidenceOf = (entryId: string, whole: Similarities, rest: Similarities): number[] | null => {
  const [before, after] = [whole, rest].map(({ entries }) => entries.find((near) => near.entryId === entryId));
  if (!before || !after) return null;
  const byQuestion = after.question - before.question;
  const byAnswer = (after.answer ?? after.question) - (before.answer ?? before.question);
  return [SCALE * byQuestion, SCALE * byAnswer];
};
