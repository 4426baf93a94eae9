import SearchableMap from 'minisearch/SearchableMap';
import { inOneStep } from '../embedder/token-vectors.ts';
import { baseLanguage, foldBeginning } from '../fold.ts';
import {
  readTerms,
  conceptKey,
  inverseDocumentFrequency,
  isConceptKey,
  PLACE,
  shareOfKey,
  type WordIndex,
  WordReader,
  wordsLanguageOf,
} from './terms.ts';

/** An entry of the knowledge: a question, its variants and the answer. */
export type IndexedEntry = {
  entryId: string;
  question: string;
  variants: string[];
  answer: string;
  /** BCP 47 tag of question and answer. Null if the author chose no language. */
  language: string | null;
  tags: string[];
};

/** What an index is made of. Entries without a language have the first of `languages`. */
export type Knowledge<Known extends IndexedEntry = IndexedEntry> = {
  knowledge: readonly Known[];
  languages: readonly string[];
};

/**
 * Adds up scores by document number. `clear` resets only the numbers that were used, because most searches use only a
 * few of many.
 */
class Accumulator {
  readonly #sums: Float64Array;
  /**
   * For each document, the best value added by the most recent term that matched it. A second array has the number of
   * that term.
   */
  readonly #latest: Float64Array;
  readonly #latestTerm: Uint32Array;
  #term = 0;
  readonly #touched: Uint32Array;
  #count = 0;

  constructor(size: number) {
    this.#sums = new Float64Array(size);
    this.#latest = new Float64Array(size);
    this.#latestTerm = new Uint32Array(size);
    this.#touched = new Uint32Array(size);
  }

  /** The documents with a score, in the order of their first terms. */
  get touched(): Uint32Array {
    return this.#touched.subarray(0, this.#count);
  }

  /** Starts the next term. If one term matches a document in several ways, only the best match counts. */
  nextTerm(): void {
    this.#term += 1;
  }

  add(document: number, value: number): void {
    const isFirst = this.#latestTerm[document] !== this.#term;
    const before = isFirst ? 0 : (this.#latest[document] ?? 0);
    if (value <= before) return;
    const sum = this.#sums[document] ?? 0;
    if (sum === 0) {
      this.#touched[this.#count] = document;
      this.#count += 1;
    }
    this.#sums[document] = sum + value - before;
    this.#latest[document] = value;
    this.#latestTerm[document] = this.#term;
  }

  get(document: number): number {
    return this.#sums[document] ?? 0;
  }

  clear(): void {
    for (let nth = 0; nth < this.#count; nth += 1) this.#sums[this.#touched[nth] as number] = 0;
    this.#count = 0;
  }
}

/** The bits of a place. The times of a key count the terms of a wording that it stands for in the wording's weight. */
export const IN_ANSWER = PLACE.first;

/**
 * The lexical index of all entries of one language. Its texts are the wordings of entries, and for each entry its answer
 * with the tags.
 */
export type KnowledgeGroup = {
  language: string;
  entries: IndexedEntry[];
  words: WordIndex;
  /** For each text, the number of its entry, and the sum of the weights of a wording's terms. */
  entryOf: Uint32Array;
  wordingWeights: Float64Array;
  /** The weight of each key, by its number. */
  weights: Float64Array;
  /** All stems by their first letter, to find misspelt and shortened words. No map is so large that a look takes long. */
  stems: Map<string, SearchableMap<string>[]>;
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

/** Scores of the running search. All searches share them, because no search yields while it adds scores up. */
type Accumulators = Record<
  'coverage' | 'wordingCoverage' | 'matchedTerms' | 'ownCoverage' | 'nearest' | 'byWording',
  Accumulator
>;

const createAccumulators = (texts: number, entries: number): Accumulators => ({
  byWording: new Accumulator(texts),
  coverage: new Accumulator(entries),
  wordingCoverage: new Accumulator(entries),
  matchedTerms: new Accumulator(entries),
  ownCoverage: new Accumulator(entries),
  nearest: new Accumulator(entries),
});

export const normaliseWording = (text: string): string =>
  foldBeginning(text, 1000)
    .replace(/[^\p{L}\p{M}\p{N}]+/gu, ' ')
    .trim();

/** Estimated memory of parts of an index, measured with `--expose-gc`. */
const BYTES = { word: 350, text: 120, entry: 500, variant: 40 };

/** The estimated memory of an index. Beyond `most`, further texts are left out. */
type Budget = { most: number; bytes: number; leftOut: number };

/** Up to how many variants of each entry are read before those of the next. */
const VARIANTS = [0, 5, 15, Number.POSITIVE_INFINITY];

type Text = [entry: number, text: string, bits: number];

/** The texts of entries, those that are worth most first, because the last ones may be left out. */
function* textsByWorth(entries: readonly IndexedEntry[]): Generator<Text> {
  for (const [entry, { question }] of entries.entries()) yield [entry, question, 0];
  for (const [entry, { tags, answer }] of entries.entries()) yield [entry, `${tags.join(' ')} ${answer}`, IN_ANSWER];
  for (const [nth, to] of VARIANTS.entries())
    for (const [entry, { variants }] of entries.entries())
      for (const variant of variants.slice(VARIANTS[nth - 1] ?? 0, to)) yield [entry, variant, 0];
}

const STEMS_IN_A_MAP = 500;

function* stemsOf({ terms }: WordIndex): Generator<void, KnowledgeGroup['stems']> {
  const byLetter = new Map<string, string[]>();
  for (const key of terms.keys()) {
    if (isConceptKey(key)) continue;
    const own = byLetter.get(key.charAt(0));
    if (own) own.push(key);
    else byLetter.set(key.charAt(0), [key]);
    yield;
  }
  const stems: KnowledgeGroup['stems'] = new Map();
  for (const [letter, keys] of byLetter) {
    const maps: SearchableMap<string>[] = [];
    for (let from = 0; from < keys.length; from += STEMS_IN_A_MAP) {
      maps.push(SearchableMap.from(keys.slice(from, from + STEMS_IN_A_MAP).map((key): [string, string] => [key, key])));
      yield;
    }
    stems.set(letter, maps);
  }
  return stems;
}

/**
 * Builds the index of one language. `all` is the number of the assistant's entries in all languages, so that term
 * weights are comparable between languages.
 */
function* buildGroup(
  language: string,
  entries: IndexedEntry[],
  { all, budget }: { all: number; budget: Budget },
): Generator<void, KnowledgeGroup> {
  const reader = new WordReader();
  const spellings = new Map<string, string>();
  const exact = new Map<string, number>();
  const texts: number[] = [];
  for (const [entry, text, bits] of textsByWorth(entries)) {
    yield;
    if (budget.bytes > budget.most) {
      budget.leftOut += 1;
      continue;
    }
    const before = reader.bytes;
    if (bits === 0) {
      const normalised = normaliseWording(text);
      if (normalised !== '' && !exact.has(normalised)) exact.set(normalised, entry);
      budget.bytes += normalised.length;
    }
    for (const { word, stem, concept } of readTerms(text, language)) {
      if (!spellings.has(word)) {
        spellings.set(word, stem);
        budget.bytes += BYTES.word;
      }
      reader.note(stem, texts.length, concept === null ? bits + 1 : bits);
      if (concept !== null) reader.note(conceptKey(concept), texts.length, bits + 1);
    }
    texts.push(entry);
    budget.bytes += BYTES.text + reader.bytes - before;
  }

  const words = yield* reader.finish();
  const stems = yield* stemsOf(words);
  const entryOf = Uint32Array.from(texts);
  const weights = new Float64Array(words.terms.size);
  const wordingWeights = new Float64Array(texts.length);
  /** The last key that each entry has in a wording, and anywhere. */
  const [latestAsked, latest] = [new Int32Array(entries.length).fill(-1), new Int32Array(entries.length).fill(-1)];
  for (const [key, term] of words.terms) {
    const places = words.places.subarray(words.starts[term], words.starts[term + 1]);
    let count = 0;
    // An occurrence in an answer counts half, because a word in many answers but few questions still distinguishes
    // questions.
    const countIn = (seen: Int32Array, entry: number): void => {
      if (seen[entry] !== term) count += 0.5;
      seen[entry] = term;
    };
    for (const place of places) {
      const entry = entryOf[place >>> PLACE.bits] as number;
      countIn(latest, entry);
      if ((place & IN_ANSWER) === 0) countIn(latestAsked, entry);
    }
    weights[term] = inverseDocumentFrequency(count, all);
    const weight = weights[term] * shareOfKey(key);
    for (const place of places) {
      const text = place >>> PLACE.bits;
      wordingWeights[text] = (wordingWeights[text] as number) + (place & PLACE.times) * weight;
    }
    yield;
  }
  return {
    language,
    entries,
    words,
    entryOf,
    wordingWeights,
    weights,
    stems,
    spellings,
    exact,
    unknownTermWeight: inverseDocumentFrequency(0, all),
    accumulators: createAccumulators(texts.length, entries.length),
  };
}

/** The index of an assistant's entries. It returns the entries as they were given, with all their fields. */
export type KnowledgeIndex<Known extends IndexedEntry = IndexedEntry> = {
  groups: KnowledgeGroup[];
  /** Maps an entry id to the entry and its group. */
  entriesById: Map<string, { entry: Known; group: KnowledgeGroup }>;
  /** Estimated memory, with the texts of the entries. */
  bytes: number;
  /** The part of it that the entries have. */
  entryBytes: number;
  /** How many questions, variants and answers were left out, because they did not fit into `maxBytes`. */
  leftOut: number;
};

/** True if the words of both languages are read in the same way. */
export const isOfLanguage = ({ language }: Pick<KnowledgeGroup, 'language'>, other: string): boolean =>
  wordsLanguageOf(language) === wordsLanguageOf(other);

export const countWordings = (knowledge: readonly Pick<IndexedEntry, 'variants'>[]): number =>
  knowledge.reduce((sum, { variants }) => sum + 1 + variants.length, 0);

/**
 * Builds the index in small steps, so that the caller can yield to other work. Entries are grouped by language, because
 * stemming depends on the language. Each question searches every group, so languages without words of their own share one.
 */
export function* indexInSteps<Known extends IndexedEntry>(
  { knowledge, languages }: Knowledge<Known>,
  maxBytes = Number.POSITIVE_INFINITY,
): Generator<void, KnowledgeIndex<Known>> {
  const budget: Budget = { most: maxBytes, bytes: 0, leftOut: 0 };
  for (const { question, variants, answer } of knowledge) {
    budget.bytes += BYTES.entry + question.length + answer.length + BYTES.variant * variants.length;
    for (const variant of variants) budget.bytes += variant.length;
    yield;
  }
  const entryBytes = budget.bytes;
  const languageOf = (entry: Known | undefined): string => baseLanguage(entry?.language ?? languages[0] ?? 'en');
  const byWords = Map.groupBy(knowledge, (entry) => wordsLanguageOf(languageOf(entry)));
  const groups: KnowledgeGroup[] = [];
  const entriesById: KnowledgeIndex<Known>['entriesById'] = new Map();
  for (const entries of byWords.values()) {
    const group = yield* buildGroup(languageOf(entries[0]), entries, { all: knowledge.length, budget });
    groups.push(group);
    for (const entry of entries) entriesById.set(entry.entryId, { entry, group });
  }
  return { groups, entriesById, bytes: budget.bytes, entryBytes, leftOut: budget.leftOut };
}

/** Builds the index without yielding. */
export const indexEntries = <Known extends IndexedEntry>(knowledge: Knowledge<Known>): KnowledgeIndex<Known> =>
  inOneStep(indexInSteps(knowledge));
