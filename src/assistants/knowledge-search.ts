import { stopwords as dutch } from '@orama/stopwords/dutch';
import { stopwords as english } from '@orama/stopwords/english';
import { stopwords as french } from '@orama/stopwords/french';
import { stopwords as german } from '@orama/stopwords/german';
import { stopwords as italian } from '@orama/stopwords/italian';
import { stopwords as portuguese } from '@orama/stopwords/portuguese';
import { stopwords as spanish } from '@orama/stopwords/spanish';
import type { KnowledgeEntry } from './assistant.ts';

// For people who look after the knowledge. What a visitor's message finds is the engine's business, and much finer.

const segmenter = new Intl.Segmenter(undefined, { granularity: 'word' });

const fold = (text: string): string => text.normalize('NFKD').replaceAll(/\p{M}/gu, '').toLowerCase();

const wordsOf = (text: string): string[] =>
  [...segmenter.segment(fold(text))].filter(({ isWordLike }) => isWordLike).map(({ segment }) => segment);

const textOf = ({ question, variants, answer, tags }: KnowledgeEntry): string =>
  fold([question, ...variants, answer, ...tags].join('\n'));

/** Entries that hold every word of the search somewhere, also as a part of a word; case and accents do not matter. */
export const searchKnowledge = (entries: KnowledgeEntry[], search: string): KnowledgeEntry[] => {
  const wanted = fold(search).split(/\s+/).filter(Boolean);
  return entries.filter((entry) => {
    const text = textOf(entry);
    return wanted.every((word) => text.includes(word));
  });
};

const STOPS = Object.entries({
  en: english,
  de: german,
  fr: french,
  es: spanish,
  it: italian,
  pt: portuguese,
  nl: dutch,
});
const STOPS_OF = new Map(STOPS.map(([language, stops]) => [language, new Set(stops.flatMap(wordsOf))]));
/** Left out as stop words elsewhere; here they are what tells two questions apart. */
const TELLING = new Set(
  `who what when where why which how not no wer was wann wo wohin woher warum welche welcher wie wieviel nicht kein keine
  qui que quoi quand ou pourquoi comment combien quel quelle pas quien cuando donde como cuanto cual por chi quando dove
  perche come quanto quale non quem onde porque qual nao wie wat wanneer waar waarom welke hoe niet geen`.split(/\s+/),
);

/** How much of their words two questions share to be taken for the same. */
const ALIKE = 0.8;
const CONFLICTS_MAX = 100;

/** Pairs looked at; where very many entries ask alike, the first hundred conflicts are among them. */
const COMPARISONS_MAX = 50_000;

type Phrasing = { entry: KnowledgeEntry; text: string; words: Set<string> };

const phrasingsOf = (entry: KnowledgeEntry): Phrasing[] => {
  const stops = STOPS_OF.get(entry.language?.split('-')[0] ?? 'en') ?? new Set();
  return [entry.question, ...entry.variants].map((text) => {
    const all = wordsOf(text);
    const told = all.filter((word) => TELLING.has(word) || !stops.has(word));
    return { entry, text, words: new Set(told.length > 0 ? told : all) };
  });
};

const likeness = (a: Set<string>, b: Set<string>): number => {
  const shared = [...a].filter((word) => b.has(word)).length;
  return shared / (a.size + b.size - shared);
};

const mayMeet = (a: KnowledgeEntry, b: KnowledgeEntry): boolean =>
  a.language === null || b.language === null || a.language.split('-')[0] === b.language.split('-')[0];

export type KnowledgeConflict = {
  entryIds: [string, string];
  questions: [string, string];
  /** Words shared, of all words of both: from 0.8 to 1. */
  likeness: number;
};

/**
 * Entries that ask nearly the same and answer differently: a hint, found by the words alone. A question (or variant) is its
 * folded words without stop words; two are nearly the same where they share four fifths of them. To be that alike, two
 * must share one of the rarest words of each: only those are compared.
 */
export const findConflicts = (entries: KnowledgeEntry[]): KnowledgeConflict[] => {
  const phrasings = entries.flatMap(phrasingsOf);
  const uses = new Map<string, number>();
  for (const { words } of phrasings) for (const word of words) uses.set(word, (uses.get(word) ?? 0) + 1);
  const rarest = ({ words }: Phrasing): string[] =>
    [...words]
      .toSorted((a, b) => (uses.get(a) ?? 0) - (uses.get(b) ?? 0) || (a < b ? -1 : 1))
      .slice(0, words.size - Math.ceil(ALIKE * words.size) + 1);

  const met = new Map<string, Phrasing[]>();
  const found = new Map<string, KnowledgeConflict>();
  /** What is the same but for its punctuation says the same; taken apart once, and only where it is asked for. */
  const said = new Map<KnowledgeEntry, string>();
  const saysOf = (entry: KnowledgeEntry): string => {
    const says = said.get(entry) ?? wordsOf(entry.answer).join(' ');
    said.set(entry, says);
    return says;
  };
  let comparisons = 0;
  for (const one of phrasings) {
    const keys = rarest(one);
    for (const other of new Set(keys.flatMap((word) => met.get(word) ?? []))) {
      const [a, b] = [other.entry, one.entry];
      if (a === b || !mayMeet(a, b)) continue;
      comparisons += 1;
      const id = `${a.entryId} ${b.entryId}`;
      const alike = likeness(one.words, other.words);
      if (alike < ALIKE || alike <= (found.get(id)?.likeness ?? 0) || saysOf(a) === saysOf(b)) continue;
      found.set(id, { entryIds: [a.entryId, b.entryId], questions: [other.text, one.text], likeness: alike });
    }
    if (comparisons > COMPARISONS_MAX) break;
    for (const word of keys) {
      const known = met.get(word);
      if (known) known.push(one);
      else met.set(word, [one]);
    }
  }
  return [...found.values()].toSorted((a, b) => b.likeness - a.likeness).slice(0, CONFLICTS_MAX);
};
