import { foldBeginning, UNSPACED } from '../language/fold.ts';
import { segmentWords } from '../language/segments.ts';

/** Longer texts are cut before they are read. */
const MAX_LENGTH = 10_000;
/** Longer words are cut. A search word is cut in the same way, so that it still matches. */
const LONGEST_WORD = 64;
const MAX_QUERY_WORDS = 12;

const WORD = /[\p{L}\p{M}\p{N}]+/gu;
/** Chinese and Japanese characters. They are read in pairs, so that a search also finds a part of a longer word. */
const PAIRED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}ー]/u;
const RUNS =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}ー]+|[^\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}ー]+/gu;

const segmenter = new Intl.Segmenter('th', { granularity: 'word' });

/** All pairs of neighbouring characters, and the last character alone: a search for it is a search for a prefix. */
const pairsOf = (run: string): string[] => {
  const characters = [...run];
  return characters.map((character, at) => `${character}${characters[at + 1] ?? ''}`);
};

const partsOf = (word: string): string[] => {
  if (!UNSPACED.test(word)) return [word];
  return (word.match(RUNS) ?? []).flatMap((run) => {
    if (PAIRED.test(run)) return pairsOf(run);
    return UNSPACED.test(run) ? segmentWords(segmenter, run) : [run];
  });
};

const readWords = (text: string): string[] =>
  (foldBeginning(text, MAX_LENGTH).match(WORD) ?? [])
    .flatMap(partsOf)
    .map((word) => (word.length > LONGEST_WORD ? word.slice(0, LONGEST_WORD).toWellFormed() : word));

/** The distinct words of a text, folded. */
export const searchWordsOf = (text: string): Set<string> => new Set(readWords(text));

/**
 * The words of a search. The last word is a prefix, because the operator may still be typing it. Null if the text has
 * no word.
 */
export const readSearch = (text: string): { words: string[]; prefix: string } | null => {
  const all = readWords(text).slice(0, MAX_QUERY_WORDS);
  const prefix = all.pop();
  if (prefix === undefined) return null;
  // The last character of a pair-wise read run is part of the pair before it.
  const before = all.at(-1);
  const isTail = before !== undefined && PAIRED.test(prefix) && [...prefix].length === 1 && before.endsWith(prefix);
  if (isTail) return { words: [...new Set(all.slice(0, -1))], prefix: before };
  return { words: [...new Set(all)].filter((word) => word !== prefix), prefix };
};
