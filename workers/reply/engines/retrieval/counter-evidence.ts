import { fold } from '../../../../src/language/fold.ts';
import type { Similarities } from '../../vectors/similarity.ts';
import { expandTerm } from './expand.ts';
import type { Question, Candidate } from './candidate.ts';
import { readTerms, type Term } from './terms.ts';

const LEAST_WORDS = 2;
/** Cosine differences are small. This factor scales them to about 1, like the factor in `candidate.ts`. */
const SCALE = 20;

const isIn = (term: Term, { group, entry }: Candidate): boolean => {
  const number = group.entries.indexOf(entry);
  return [...expandTerm({ ...term, concept: null }, group).keys()].some((key) => {
    const postings = group.postings.get(key);
    return (
      postings !== undefined && (postings.questionEntries.includes(number) || postings.answerEntries.includes(number))
    );
  });
};

/**
 * The message without the words that the entry does not contain. Null if no word is removed, if too few words remain,
 * or if the entry is in another language.
 */
export const withoutUnknownWords = ({ message, visitorLanguage }: Question, candidate: Candidate): string | null => {
  if (candidate.group.language !== visitorLanguage) return null;
  const unknownWords = new Set(
    readTerms(message, candidate.group.language, visitorLanguage)
      .filter((term) => !isIn(term, candidate))
      .flatMap(({ word }) => word.split(' ')),
  );
  if (unknownWords.size === 0) return null;
  const words = message.split(/\s+/).filter(Boolean);
  const rest = words.filter((word) => !unknownWords.has(fold(word).replace(/[^\p{L}\p{M}\p{N}]/gu, '')));
  return rest.length < LEAST_WORDS || rest.length === words.length ? null : rest.join(' ');
};

/**
 * Compares the entry's similarity to the full message with its similarity to the reduced message. If the reduced
 * message is more similar, that is evidence against the entry: an entry on renewing books does not contain "passport",
 * and is more similar to "how do I renew my" than to the full question. If it is less similar, the entry probably says
 * the same in other words.
 */
export const counterEvidenceOf = (entryId: string, full: Similarities, reduced: Similarities): number[] | null => {
  const [before, after] = [full, reduced].map(({ entries }) => entries.find((near) => near.entryId === entryId));
  if (!before || !after) return null;
  const byQuestion = after.question - before.question;
  const byAnswer = (after.answer ?? after.question) - (before.answer ?? before.question);
  return [SCALE * byQuestion, SCALE * byAnswer];
};
