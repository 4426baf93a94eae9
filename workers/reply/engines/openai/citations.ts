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
/** The mail addresses of a text, without the end of their sentence. */
const addressesIn = (text: string): string[] =>
  text
    .split(/[^\p{L}\p{M}\p{N}.@_%+-]/u)
    .filter((word) => word.includes('@'))
    .map((word) => (word.endsWith('.') ? word.slice(0, -1) : word));

/** Endings of a name differ by case and number, so its beginning decides. */
const LEAST_BEGINNING = 4;
const ENDING = 3;
const LONGEST_NAME = 40;
const beginningOf = (word: string): string => word.slice(0, Math.max(LEAST_BEGINNING, word.length - ENDING));

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

/** What a sentence of a reply cites and says: its addresses, then its numbers, and its names. */
type Claims = { citations: number[]; facts: string[]; names: string[] };

const claimsOf = (sentence: string, language: string): Claims => {
  const words = withoutCitations(sentence);
  const read = folded(words);
  return {
    citations: numbersCitedIn(sentence),
    facts: [...addressesIn(read), ...numbersIn(read)],
    names: namesIn(words, language),
  };
};

type Wanted = { facts: Set<string>; names: Set<string> };

/** Those of the wanted facts (addresses and numbers) and names (beginnings of words) that stand in these texts. */
function* findIn(texts: string[], wanted: Wanted): Generator<void, Wanted> {
  const found: Wanted = { facts: new Set(), names: new Set() };
  for (const text of texts) {
    const read = folded(text);
    for (const fact of [...addressesIn(read), ...numbersIn(read)]) if (wanted.facts.has(fact)) found.facts.add(fact);
    yield;
    for (const [word] of read.matchAll(WORD)) {
      if (word.length > LONGEST_NAME) continue;
      for (let end = Math.min(LEAST_BEGINNING, word.length); end <= word.length; end += 1) {
        const beginning = word.slice(0, end);
        if (wanted.names.has(beginning)) found.names.add(beginning);
      }
    }
    yield;
  }
  return found;
}

export type Checked = { cited: number[]; flags: Flag[] };

/**
 * Compares a provider’s reply, with its citations, with what the provider was given. A sentence is flagged if it cites a
 * number that was not given, or if it has a number, a name or an address that stands nowhere. Names are compared only in
 * a language of the given texts, because another language writes them differently. It yields between its steps, and
 * remembers only what the reply says, because a history may be long.
 */
export function* checkReply(reply: string, given: Given, language: string): Generator<void, Checked> {
  const base = baseLanguage(language);
  const hasLanguage = languagesOf(given).some((one) => one === null || baseLanguage(one) === base);
  const sentences: Claims[] = [];
  for (const { segment } of new Intl.Segmenter(base, { granularity: 'sentence' }).segment(reply.replace(ITEM, ''))) {
    sentences.push(claimsOf(segment, base));
    yield;
  }
  const found = yield* findIn(textsOf(given), {
    facts: new Set(sentences.flatMap(({ facts }) => facts)),
    names: new Set(sentences.flatMap(({ names }) => names.flatMap((name) => [name, beginningOf(name)]))),
  });

  const isGiven = (number: number): boolean => number >= 1 && number <= given.passages.length;
  const isKnown = (name: string): boolean => found.names.has(name) || found.names.has(beginningOf(name));
  const becauseOf = ({ citations, facts, names }: Claims): Flag['because'] | null => {
    if (!citations.every(isGiven)) return 'unknown source';
    const unknown = facts.find((fact) => !found.facts.has(fact));
    if (unknown !== undefined) return unknown.includes('@') ? 'address' : 'number';
    return hasLanguage && !names.every(isKnown) ? 'name' : null;
  };
  const flags = sentences.flatMap((claims, at): Flag[] => {
    const because = becauseOf(claims);
    return because ? [{ sentence: at + 1, because }] : [];
  });
  const cited = new Set(sentences.flatMap(({ citations }) => citations));
  if (given.passages.length > 0 && given.entries.length === 0 && cited.size === 0) {
    flags.unshift({ sentence: 0, because: 'uncited' });
  }
  return { cited: [...cited].filter(isGiven), flags: flags.slice(0, FLAGS_MAX) };
}
