import type { FoundPassage } from '@parley/understanding';
import { baseLanguage } from '@parley/understanding/text';
import type { ReadPassage } from '../../../../src/sources/passages.ts';
import type { EngineEntry } from '../engine.ts';

// Every step here takes linear time, because a provider may send anything.

/** Passages in a provider’s prompt have numbers, which the provider repeats where it used them: `[1]` or `[2, 3]`. */
const CITATION = /\[ ?\d{1,2}(?: ?, ?\d{1,2}){0,9} ?\](?!\()/g;

/** The text as the visitor sees it. The white space before a citation goes too. */
export const withoutCitations = (text: string): string => {
  const kept: string[] = [];
  let from = 0;
  for (const { 0: cited, index } of text.matchAll(CITATION)) {
    kept.push(text.slice(from, index).trimEnd());
    from = index + cited.length;
  }
  return [...kept, text.slice(from)].join('');
};

const numbersCitedIn = (text: string): number[] =>
  [...text.matchAll(CITATION)].flatMap(([cited]) => (cited.match(/\d+/g) ?? []).map(Number));

/** What a reply may say: passages by their number, from 1, the entries, and what the visitor and the business said. */
export type Given = { passages: FoundPassage<ReadPassage>[]; entries: EngineEntry[]; said: string[] };

/** Why a sentence of a reply may be invented. `uncited`: the whole reply names none of the passages that it had. */
export type Flag = { sentence: number; because: 'unknown source' | 'number' | 'name' | 'address' | 'uncited' };

/** A reply's `why` is bounded. */
const FLAGS_MAX = 10;

const folded = (text: string): string => text.normalize('NFKC').toLowerCase();

/** The numbers of a text: `1,500` is one, and 9:30 are two. A zero says nothing. */
const numbersIn = (text: string): string[] =>
  (text.replace(/(?<=\d)[.,’'\u00a0\u202f](?=\d{3}(?!\d))/g, '').match(/\d+/g) ?? [])
    .map((digits) => digits.replace(/^0+/, ''))
    .filter((digits) => digits !== '');

const WORD = /[\p{L}\p{N}][\p{L}\p{M}\p{N}]*/gu;
/** The mail addresses of a sentence, without the end of the sentence. */
const addressesIn = (sentence: string): string[] =>
  sentence
    .split(/[\s<>()[\],;:]/)
    .filter((word) => word.includes('@'))
    .map((word) => (/[.!?]$/.test(word) ? word.slice(0, -1) : word));

/** Endings of a name differ by case and number, so its beginning decides. */
const LEAST_BEGINNING = 4;
const ENDING = 3;
const LONGEST_NAME = 40;
const beginningOf = (word: string): string => word.slice(0, Math.max(LEAST_BEGINNING, word.length - ENDING));

/** Every beginning of the words in these texts. */
const beginningsIn = (texts: string[]): Set<string> => {
  const found = new Set<string>();
  for (const text of texts) {
    for (const [word] of folded(text).matchAll(WORD)) {
      if (word.length > LONGEST_NAME) continue;
      for (let end = Math.min(LEAST_BEGINNING, word.length); end <= word.length; end += 1)
        found.add(word.slice(0, end));
    }
  }
  return found;
};

/** A word after one of these begins a sentence, a list item or a quote, so its capital letter says nothing. */
const OPENING = '.!?:;•*("“„«‘–—-';
const isAfterOpening = (sentence: string, index: number): boolean => {
  let before = index - 1;
  while (before >= 0 && /\s/.test(sentence.charAt(before))) before -= 1;
  return before < 0 || OPENING.includes(sentence.charAt(before));
};
const CAPITAL = /^\p{Lu}/u;
/** Words with two capital letters, or with letters and a digit, count as names in all languages. */
const isAlwaysName = (word: string): boolean =>
  (word.match(/\p{Lu}/gu)?.length ?? 0) > 1 || (/\p{L}/u.test(word) && /\d/.test(word));
const NO_NAMES = new Set(['i', 'ok', 'faq']);

/** The names of a sentence. German writes every noun with a capital letter. */
const namesIn = (sentence: string, language: string): string[] =>
  [...sentence.matchAll(WORD)]
    .filter(({ 0: word, index }) => {
      if (word.length > LONGEST_NAME) return false;
      if (isAlwaysName(word)) return true;
      return language !== 'de' && word.length > 1 && CAPITAL.test(word) && !isAfterOpening(sentence, index);
    })
    .map(([word]) => folded(word))
    .filter((word) => !NO_NAMES.has(word));

/** The number before a list item, and a mark of Markdown. */
const ITEM = /^[^\S\n]*(?:\d{1,2}[.)]|[-*•])[^\S\n]/gm;

const languagesOf = ({ passages, entries }: Given): (string | null)[] => [
  ...passages.map(({ passage }) => passage.language),
  ...entries.map((entry) => entry.language),
];

const textsOf = ({ passages, entries, said }: Given): string[] => [
  ...passages.map(({ passage: { title, path, text } }) => [title, ...path, text].join('\n')),
  ...entries.map(({ question, variants, answer }) => [question, ...variants, answer].join('\n')),
  ...said,
];

/**
 * Compares a provider’s reply, with its citations, with what the provider was given. A sentence is flagged if it cites a
 * number that was not given, or if it has a number, a name or an address that stands nowhere. Names are compared only in
 * a language of the given texts, because another language writes them differently.
 */
export const checkReply = (reply: string, given: Given, language: string): { cited: number[]; flags: Flag[] } => {
  const texts = textsOf(given);
  const all = folded(texts.join('\n'));
  const numbers = new Set(numbersIn(all));
  const beginnings = beginningsIn(texts);
  const base = baseLanguage(language);
  const hasLanguage = languagesOf(given).some((one) => one === null || baseLanguage(one) === base);
  const cited = new Set<number>();
  const flags: Flag[] = [];

  const becauseOf = (sentence: string): Flag['because'] | null => {
    const citations = numbersCitedIn(sentence);
    for (const number of citations) cited.add(number);
    if (citations.some((number) => number < 1 || number > given.passages.length)) return 'unknown source';
    const words = withoutCitations(sentence);
    if (addressesIn(words).some((address) => !all.includes(folded(address)))) return 'address';
    if (numbersIn(folded(words)).some((number) => !numbers.has(number))) return 'number';
    const isKnown = (name: string): boolean => beginnings.has(name) || beginnings.has(beginningOf(name));
    return hasLanguage && !namesIn(words, base).every(isKnown) ? 'name' : null;
  };

  const sentences = new Intl.Segmenter(base, { granularity: 'sentence' });
  let nth = 0;
  for (const { segment } of sentences.segment(reply.replace(ITEM, ''))) {
    nth += 1;
    const because = becauseOf(segment);
    if (because) flags.push({ sentence: nth, because });
  }
  const isKnown = (number: number): boolean => number >= 1 && number <= given.passages.length;
  if (given.passages.length > 0 && given.entries.length === 0 && cited.size === 0) {
    flags.unshift({ sentence: 0, because: 'uncited' });
  }
  return { cited: [...cited].filter(isKnown), flags: flags.slice(0, FLAGS_MAX) };
};
