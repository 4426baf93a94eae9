import SearchableMap from 'minisearch/SearchableMap';
import { baseLanguage } from '../../../../src/language/base.ts';
import { foldBeginning } from '../../../../src/language/fold.ts';
import type { AssistantProfile, KnowledgeEntry } from '../engine.ts';
import { Accumulator } from './accumulator.ts';
import { readTerms, type Term } from './terms.ts';

/** A question or one of its variants. `entry` is the entry's number in its group, `weight` the sum of its terms' weights. */
export type Wording = { entry: number; weight: number };

/**
 * The places where a key occurs: wordings (`wordings`), the entries of those wordings (`questionEntries`), and entries
 * with the key in their answer or tags (`answerEntries`). All are numbers.
 */
export type Postings = { wordings: number[]; questionEntries: number[]; answerEntries: number[]; weight: number };

/** The lexical index of all entries of one language. A key is a stem, or `§` followed by a concept. */
export type KnowledgeGroup = {
  language: string;
  entries: KnowledgeEntry[];
  wordings: Wording[];
  postings: Map<string, Postings>;
  /** All stems, to find misspelt and shortened words. */
  stems: SearchableMap<string>;
  /**
   * Maps a folded word to the stem of the word as the knowledge spells it. A message without diacritics thus finds the
   * right stem.
   */
  spellings: Map<string, string>;
  /** Weight of a term that no entry contains. */
  unknownTermWeight: number;
  /** Maps a normalised wording to its entry number, for messages that repeat a stored wording. */
  exact: Map<string, number>;
  accumulators: Accumulators;
};

/** Scores of the running search. All searches share them, because a search is synchronous. */
export type Accumulators = Record<
  'coverage' | 'wordingCoverage' | 'matchedTerms' | 'ownCoverage' | 'nearest' | 'byWording',
  Accumulator
>;

const createAccumulators = (wordings: number, entries: number): Accumulators => ({
  byWording: new Accumulator(wordings),
  coverage: new Accumulator(entries),
  wordingCoverage: new Accumulator(entries),
  matchedTerms: new Accumulator(entries),
  ownCoverage: new Accumulator(entries),
  nearest: new Accumulator(entries),
});

/** Concepts of question words. They have little weight, so that they can break a tie but not decide an answer. */
const WEAK_CONCEPTS = new Set(['time', 'where', 'today', 'what', 'item']);
const WEAK_SHARE = 0.4;
/** Concepts of verbs. They have less weight than nouns. */
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
export const termKey = (term: Term): string => (term.concept === null ? term.stem : conceptKey(term.concept));
export const conceptWeight = ({ concept }: Term): number => {
  if (concept === null) return 1;
  if (WEAK_CONCEPTS.has(concept)) return WEAK_SHARE;
  return VERB_CONCEPTS.has(concept) ? VERB_SHARE : 1;
};

export const normaliseWording = (text: string): string =>
  foldBeginning(text, 1000)
    .replace(/[^\p{L}\p{M}\p{N}]+/gu, ' ')
    .trim();

const inverseDocumentFrequency = (containing: number, all: number): number =>
  Math.log(1 + (all - containing + 0.5) / (containing + 0.5));

const indexKeysOf = (term: Term): string[] =>
  term.concept === null ? [term.stem] : [term.stem, conceptKey(term.concept)];

const append = (list: number[], item: number): void => {
  if (list.at(-1) !== item) list.push(item);
};

/** Collects postings, stems and spellings from the texts of one language. */
const createReader = (language: string) => {
  const postings = new Map<string, Postings>();
  const stems = new SearchableMap<string>();
  const spellings = new Map<string, string>();
  const read = (text: string, addTo: (keyPostings: Postings) => void): Term[] => {
    const terms = readTerms(text, language);
    for (const term of terms) {
      if (!spellings.has(term.word)) spellings.set(term.word, term.stem);
      stems.set(term.stem, term.stem);
      for (const key of indexKeysOf(term)) {
        const keyPostings = postings.get(key) ?? { wordings: [], questionEntries: [], answerEntries: [], weight: 0 };
        postings.set(key, keyPostings);
        addTo(keyPostings);
      }
    }
    return terms;
  };
  return { postings, stems, spellings, read };
};

/**
 * Builds the index of one language. `all` is the number of the assistant's entries in all languages, so that term
 * weights are comparable between languages.
 */
function* buildGroup(language: string, entries: KnowledgeEntry[], all: number): Generator<void, KnowledgeGroup> {
  const { postings, stems, spellings, read } = createReader(language);
  const exact = new Map<string, number>();
  const readWordings: { entry: number; terms: Term[] }[] = [];
  for (const [entry, { question, variants, answer, tags }] of entries.entries()) {
    for (const wording of [question, ...variants]) {
      const normalised = normaliseWording(wording);
      if (normalised !== '' && !exact.has(normalised)) exact.set(normalised, entry);
      const terms = read(wording, (keyPostings) => {
        append(keyPostings.wordings, readWordings.length);
        append(keyPostings.questionEntries, entry);
      });
      readWordings.push({ entry, terms });
      yield;
    }
    read(`${tags.join(' ')} ${answer}`, (keyPostings) => append(keyPostings.answerEntries, entry));
    yield;
  }

  for (const keyPostings of postings.values()) {
    // An occurrence in an answer counts half, because a word in many answers but few questions still distinguishes
    // questions.
    const entriesWithKey = new Set([...keyPostings.questionEntries, ...keyPostings.answerEntries]).size;
    keyPostings.weight = inverseDocumentFrequency((keyPostings.questionEntries.length + entriesWithKey) / 2, all);
    yield;
  }
  const weightOf = (terms: Term[]): number =>
    terms.reduce((sum, term) => sum + (postings.get(termKey(term))?.weight ?? 0) * conceptWeight(term), 0);
  const wordings: Wording[] = [];
  for (const { entry, terms } of readWordings) {
    wordings.push({ entry, weight: weightOf(terms) });
    yield;
  }
  return {
    language,
    entries,
    wordings,
    postings,
    stems,
    spellings,
    exact,
    unknownTermWeight: inverseDocumentFrequency(0, all),
    accumulators: createAccumulators(wordings.length, entries.length),
  };
}

export type KnowledgeIndex = {
  groups: KnowledgeGroup[];
  /** Maps an entry id to the entry and its group. */
  entriesById: Map<string, { entry: KnowledgeEntry; group: KnowledgeGroup }>;
};

/**
 * Builds the index in small steps, so that the caller can yield to other work. Entries are grouped by language, because
 * stemming depends on the language.
 */
export function* buildIndexInSteps({ knowledge, languages }: AssistantProfile): Generator<void, KnowledgeIndex> {
  const byLanguage = Map.groupBy(knowledge, (entry) => baseLanguage(entry.language ?? languages[0] ?? 'en'));
  const groups: KnowledgeGroup[] = [];
  for (const [language, entries] of byLanguage) groups.push(yield* buildGroup(language, entries, knowledge.length));
  const entriesById: KnowledgeIndex['entriesById'] = new Map();
  for (const group of groups) for (const entry of group.entries) entriesById.set(entry.entryId, { entry, group });
  return { groups, entriesById };
}

/** Builds the index without yielding. */
export const buildIndex = (profile: AssistantProfile): KnowledgeIndex => {
  const steps = buildIndexInSteps(profile);
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
  }
};
