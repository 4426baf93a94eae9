import { fold, UNSPACED, withoutPiledMarks, words } from '../../../../src/language/fold.ts';
import { conceptOf, phraseConcept } from './concepts.ts';
import { stemmingOf } from './stemming.ts';

/** A term of a text: the stem of a word or phrase, and its concept if the concept is known. */
export type Term = {
  stem: string;
  /** The folded word, as written. */
  word: string;
  concept: string | null;
};

/** Longer messages are cut, so that no visitor can make a turn expensive. */
const MAX_LENGTH = 1000;
const MAX_WORDS = 100;
const MAX_TERMS = 32;
/** Longer words are cut, because stemming and fuzzy search take quadratic time. */
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

/**
 * Languages that need a dictionary to separate words. Each has its own segmenter; all other tags share one, so that the
 * cache stays small.
 */
const SEGMENTED = new Set(['zh', 'ja', 'th', 'lo', 'km', 'my']);

/**
 * Splits a Korean word into pairs of syllables. They match better than whole words, because Korean particles are
 * attached to words.
 */
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
 * The terms of a text, stemmed for `language`. Stop words of `language` and of the visitor's language are left out,
 * unless the text has only stop words.
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
    let wordCount = 1;
    let concept: string | null = null;
    for (let length = Math.min(LONGEST_PHRASE, written.length - at); length > 1 && concept === null; length -= 1) {
      concept = phraseConcept(folded.slice(at, at + length).join(' '));
      if (concept) wordCount = length;
    }
    const word = folded.slice(at, at + wordCount).join(' ');
    concept ??= conceptOf(word);
    const term = { stem: wordCount > 1 ? word : fold(stem(written[at] ?? word)), word, concept };
    keep(concept === null && (stopWords.has(word) || spokenStops.has(word)) ? stops : terms, term);
    at += wordCount - 1;
  }
  return [...(terms.size > 0 ? terms : stops).values()];
};
