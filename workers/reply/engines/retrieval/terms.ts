import { fold, UNSPACED, withoutPiledMarks, words } from '../../../../src/language/fold.ts';
import { conceptOf, phraseConcept } from './concepts.ts';
import { stemmingOf } from './stemming.ts';

/** One thing a text speaks of: a word's stem, and what the word means in any language where that is known. */
export type Term = {
  stem: string;
  /** The folded word, as written. */
  word: string;
  concept: string | null;
};

/** A question fits many times; longer messages are cut, so that no visitor can make a turn expensive. */
const MAX_LENGTH = 1000;
const MAX_WORDS = 100;
const MAX_TERMS = 32;
/** No word of any language is longer; what stems and looks for typing errors takes time in the square of it. */
const LONGEST_WORD = 64;
const LONGEST_PHRASE = 4;
const HANGUL = /\p{Script=Hangul}/u;

const segmenters = new Map<string, Intl.Segmenter>();
const segmenterFor = (language: string): Intl.Segmenter => {
  const known = segmenters.get(language);
  if (known) return known;
  const made = new Intl.Segmenter(language, { granularity: 'word' });
  segmenters.set(language, made);
  return made;
};

/** Languages whose words need a dictionary; any other tag takes the general one, so that the cache stays small. */
const SEGMENTED = new Set(['zh', 'ja', 'th', 'lo', 'km', 'my']);

/** Korean glues its particles to the word: pairs of syllables match where whole words would not. */
const syllablePairs = (word: string): string[] =>
  word.length < 3 ? [word] : Array.from({ length: word.length - 1 }, (_, at) => word.slice(at, at + 2));

const splitWords = (text: string, language: string): string[] => {
  if (UNSPACED.test(text)) {
    const parts: string[] = [];
    const segmenter = segmenterFor(SEGMENTED.has(language) ? language : 'zh');
    for (const { segment, isWordLike } of segmenter.segment(text)) if (isWordLike) parts.push(segment);
    return parts;
  }
  return HANGUL.test(text)
    ? words(text).flatMap((word) => (HANGUL.test(word) ? syllablePairs(word) : [word]))
    : words(text);
};

/**
 * Terms of a text as a language stems them, stop words left out unless nothing else is there. What a visitor writes in
 * another language has the stop words of that language, too.
 */
export const readTerms = (text: string, language: string, visitorLanguage: string = language): Term[] => {
  const { stem, stopWords } = stemmingOf(language);
  const spokenStops = stemmingOf(visitorLanguage).stopWords;
  const plain = withoutPiledMarks(text.slice(0, MAX_LENGTH)).normalize('NFKC').toLowerCase().replaceAll('’', "'");
  const written = splitWords(plain.slice(0, MAX_LENGTH), language)
    .slice(0, MAX_WORDS)
    .map((word) => word.slice(0, LONGEST_WORD));
  const folded = written.map(fold);
  const terms = new Map<string, Term>();
  const stops = new Map<string, Term>();
  const keep = (table: Map<string, Term>, term: Term): void => {
    if (!table.has(term.stem)) table.set(term.stem, term);
  };
  for (let at = 0; at < written.length && terms.size < MAX_TERMS; at += 1) {
    let taken = 1;
    let concept: string | null = null;
    for (let length = Math.min(LONGEST_PHRASE, written.length - at); length > 1 && concept === null; length -= 1) {
      concept = phraseConcept(folded.slice(at, at + length).join(' '));
      if (concept) taken = length;
    }
    const word = folded.slice(at, at + taken).join(' ');
    concept ??= conceptOf(word);
    const term = { stem: taken > 1 ? word : fold(stem(written[at] ?? word)), word, concept };
    keep(concept === null && (stopWords.has(word) || spokenStops.has(word)) ? stops : terms, term);
    at += taken - 1;
  }
  return [...(terms.size > 0 ? terms : stops).values()];
};
