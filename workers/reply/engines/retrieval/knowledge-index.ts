import SearchableMap from 'minisearch/SearchableMap';
import { baseLanguage } from '../../../../src/turns/language/base.ts';
import { fold } from '../../../../src/turns/language/fold.ts';
import type { AssistantProfile, KnowledgeEntry } from '../engine.ts';
import { readTerms, type Term } from './terms.ts';

/** A question or one of its other wordings: what it speaks of, and how much that tells in all. */
export type Wording = { entry: number; mass: number };

/** Where a key stands: wordings by number, and entries whose answer or tags hold it. */
export type Postings = { wordings: number[]; answers: number[]; weight: number };

/** All entries of one language. A key is a stem, or `§` and a concept. */
export type KnowledgeGroup = {
  language: string;
  entries: KnowledgeEntry[];
  wordings: Wording[];
  postings: Map<string, Postings>;
  /** The stems, for words that are misspelt or cut short. */
  stems: SearchableMap<string>;
  /** folded word → stem, as the knowledge spells it: a word typed without diacritics finds the right stem. */
  spellings: Map<string, string>;
  /** What a word that the knowledge does not have would tell. */
  strangeWeight: number;
  /** What was asked exactly as it is stored. */
  exact: Map<string, number>;
};

/** Question words tell a little: they may settle a tie, never carry an answer. */
const WEAK_CONCEPTS = new Set(['time', 'where', 'today', 'what', 'item']);
const WEAK_SHARE = 0.4;
/** What is done tells less than what it is done to. */
const VERB_CONCEPTS = new Set([
  'sell',
  'buy',
  'create',
  'add',
  'change',
  'connect',
  'stop',
  'access',
  'keep',
  'forgot',
  'bring',
  'test',
  'used',
]);
const VERB_SHARE = 0.65;

export const conceptKey = (concept: string): string => `§${concept}`;
export const unitKey = (term: Term): string => (term.concept === null ? term.stem : conceptKey(term.concept));
export const shareOf = ({ concept }: Term): number => {
  if (concept === null) return 1;
  if (WEAK_CONCEPTS.has(concept)) return WEAK_SHARE;
  return VERB_CONCEPTS.has(concept) ? VERB_SHARE : 1;
};

export const plain = (text: string): string =>
  fold(text.slice(0, 1000))
    .replace(/[^\p{L}\p{M}\p{N}]+/gu, ' ')
    .trim();

const informationOf = (holding: number, all: number): number => Math.log(1 + (all - holding + 0.5) / (holding + 0.5));

/** `all` entries of the assistant set the scale: what is rare in a small language is not rarer than in a large one. */
const buildGroup = (language: string, entries: KnowledgeEntry[], all: number): KnowledgeGroup => {
  const group: KnowledgeGroup = {
    language,
    entries,
    wordings: [],
    postings: new Map(),
    stems: new SearchableMap<string>(),
    spellings: new Map(),
    strangeWeight: informationOf(0, all),
    exact: new Map(),
  };
  const at = (key: string): Postings => {
    const known = group.postings.get(key);
    if (known) return known;
    const made: Postings = { wordings: [], answers: [], weight: 0 };
    group.postings.set(key, made);
    return made;
  };
  const push = (list: number[], item: number): void => {
    if (list.at(-1) !== item) list.push(item);
  };
  const read = (text: string): Term[] => {
    const terms = readTerms(text, language);
    for (const term of terms) {
      if (!group.spellings.has(term.word)) group.spellings.set(term.word, term.stem);
      group.stems.set(term.stem, term.stem);
    }
    return terms;
  };

  const unitsOf: Term[][] = [];
  for (const [number, entry] of entries.entries()) {
    for (const wording of [entry.question, ...entry.variants]) {
      const asked = plain(wording);
      if (asked !== '' && !group.exact.has(asked)) group.exact.set(asked, number);
      const terms = read(wording);
      for (const term of terms)
        for (const key of new Set([term.stem, unitKey(term)])) push(at(key).wordings, group.wordings.length);
      unitsOf.push(terms);
      group.wordings.push({ entry: number, mass: 0 });
    }
    for (const term of read(`${entry.tags.join(' ')} ${entry.answer}`)) {
      for (const key of new Set([term.stem, unitKey(term)])) push(at(key).answers, number);
    }
  }

  for (const postings of group.postings.values()) {
    const holding = new Set(postings.wordings.map((wording) => group.wordings[wording]?.entry));
    for (const entry of postings.answers) holding.add(entry);
    // Half a look at answers: a word in many answers and few questions still tells questions apart.
    const asked = new Set(postings.wordings.map((wording) => group.wordings[wording]?.entry)).size;
    postings.weight = informationOf((asked + holding.size) / 2, all);
  }
  for (const [number, wording] of group.wordings.entries()) {
    for (const term of unitsOf[number] ?? [])
      wording.mass += (group.postings.get(unitKey(term))?.weight ?? 0) * shareOf(term);
  }
  return group;
};

export type KnowledgeIndex = { groups: KnowledgeGroup[] };

/** Entries are grouped by language, because a stem means something in one language only. */
export const buildIndex = ({ knowledge, languages }: AssistantProfile): KnowledgeIndex => {
  const byLanguage = Map.groupBy(knowledge, (entry) => baseLanguage(entry.language ?? languages[0] ?? 'en'));
  return { groups: [...byLanguage].map(([language, entries]) => buildGroup(language, entries, knowledge.length)) };
};
