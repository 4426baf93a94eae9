import SearchableMap from 'minisearch/SearchableMap';
import { baseLanguage } from '../../../../src/turns/language.ts';
import { fold } from '../../../../src/turns/language/fold.ts';
import type { AssistantProfile, KnowledgeEntry } from '../engine.ts';
import { readTerms, type Term } from './terms.ts';

/** A question or one of its other wordings. */
export type Wording = { entry: number; terms: Set<number>; mass: number };

/** All entries of one language: their terms, where those stand, and how much each tells. */
export type KnowledgeGroup = {
  language: string;
  entries: KnowledgeEntry[];
  wordings: Wording[];
  /** term → its number; concepts stand here too, as `§name`. */
  vocabulary: SearchableMap<number>;
  numberOf: Map<string, number>;
  /** How much a term tells, by number. */
  idf: number[];
  /** term number → wordings that hold it. */
  inWordings: number[][];
  /** term number → entries whose answer or tags hold it. */
  inAnswers: number[][];
  /** folded word → stem, as the knowledge spells it: a word typed without diacritics finds the right stem. */
  spellings: Map<string, string>;
  maxIdf: number;
  /** folded, word by word → entry: what was asked exactly as it is stored. */
  exact: Map<string, number>;
};

export const conceptKey = (concept: string): string => `§${concept}`;

export const plain = (text: string): string =>
  fold(text)
    .replace(/[^\p{L}\p{M}\p{N}]+/gu, ' ')
    .trim();

const keysOf = (term: Term): string[] => (term.concept === null ? [term.stem] : [term.stem, conceptKey(term.concept)]);

const buildGroup = (language: string, entries: KnowledgeEntry[]): KnowledgeGroup => {
  const group: KnowledgeGroup = {
    language,
    entries,
    wordings: [],
    vocabulary: new SearchableMap<number>(),
    numberOf: new Map(),
    idf: [],
    inWordings: [],
    inAnswers: [],
    spellings: new Map(),
    maxIdf: Math.log(1 + (entries.length + 0.5) / 0.5),
    exact: new Map(),
  };
  const base = baseLanguage(language);
  const number = (key: string): number => {
    const known = group.numberOf.get(key);
    if (known !== undefined) return known;
    const next = group.inWordings.length;
    group.numberOf.set(key, next);
    if (!key.startsWith('§')) group.vocabulary.set(key, next);
    group.inWordings.push([]);
    group.inAnswers.push([]);
    return next;
  };
  const entriesWith: Set<number>[] = [];
  const numbersIn = (text: string, entry: number): Set<number> => {
    const numbers = new Set<number>();
    for (const term of readTerms(text, base)) {
      if (!group.spellings.has(term.word)) group.spellings.set(term.word, term.stem);
      for (const key of keysOf(term)) numbers.add(number(key));
    }
    for (const each of numbers) (entriesWith[each] ??= new Set()).add(entry);
    return numbers;
  };

  for (const [at, entry] of entries.entries()) {
    for (const wording of [entry.question, ...entry.variants]) {
      const asked = plain(wording);
      if (asked !== '' && !group.exact.has(asked)) group.exact.set(asked, at);
      const terms = numbersIn(wording, at);
      for (const term of terms) group.inWordings[term]?.push(group.wordings.length);
      group.wordings.push({ entry: at, terms, mass: 0 });
    }
    for (const term of numbersIn(`${entry.tags.join(' ')} ${entry.answer}`, at)) group.inAnswers[term]?.push(at);
  }

  const count = entries.length;
  group.idf = group.inWordings.map((_, term) => {
    const holding = entriesWith[term]?.size ?? 0;
    return Math.log(1 + (count - holding + 0.5) / (holding + 0.5));
  });
  for (const wording of group.wordings) for (const term of wording.terms) wording.mass += group.idf[term] ?? 0;
  return group;
};

export type KnowledgeIndex = { groups: KnowledgeGroup[] };

/** Entries are grouped by language, because a stem means something in one language only. */
export const buildIndex = ({ knowledge, languages }: AssistantProfile): KnowledgeIndex => {
  const byLanguage = new Map<string, KnowledgeEntry[]>();
  for (const entry of knowledge) {
    const language = entry.language ?? languages[0] ?? 'en';
    const base = baseLanguage(language);
    const group = byLanguage.get(base);
    if (group) group.push(entry);
    else byLanguage.set(base, [entry]);
  }
  return { groups: [...byLanguage].map(([language, entries]) => buildGroup(language, entries)) };
};
