import SearchableMap from 'minisearch/SearchableMap';
import { baseLanguage, foldBeginning } from '../fold.ts';
import { readTerms, type Term } from './terms.ts';

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
  touched: number[] = [];

  constructor(size: number) {
    this.#sums = new Float64Array(size);
    this.#latest = new Float64Array(size);
    this.#latestTerm = new Uint32Array(size);
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
    if (sum === 0) this.touched.push(document);
    this.#sums[document] = sum + value - before;
    this.#latest[document] = value;
    this.#latestTerm[document] = this.#term;
  }

  get(document: number): number {
    return this.#sums[document] ?? 0;
  }

  clear(): void {
    for (const document of this.touched) this.#sums[document] = 0;
    this.touched = [];
  }
}

/** Questions and variants by number: `entry` is the entry's number in its group, `weight` the sum of its terms' weights. */
type Wordings = { entry: Uint32Array; weight: Float64Array };

/**
 * The places where a key occurs: wordings (`wordings`), the entries of those wordings (`questionEntries`), and entries
 * with the key in their answer or tags (`answerEntries`). All are numbers.
 */
export type Postings = {
  wordings: readonly number[];
  questionEntries: readonly number[];
  answerEntries: readonly number[];
  weight: number;
};

/** The lexical index of all entries of one language. A key is a stem, or `§` followed by a concept. */
export type KnowledgeGroup = {
  language: string;
  entries: IndexedEntry[];
  wordings: Wordings;
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
type Accumulators = Record<
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
const termKey = (term: Term): string => (term.concept === null ? term.stem : conceptKey(term.concept));
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

const NONE: readonly number[] = [];

/** A list begins with one place, because most lists stay that short, and `push` to an empty list makes 17 places. */
const appended = (list: readonly number[], item: number): readonly number[] => {
  if (list.length === 0) return [item];
  if (list.at(-1) !== item) (list as number[]).push(item); // made by this function
  return list;
};

/** Estimated memory of parts of an index, measured with `--expose-gc`. */
const BYTES = { key: 600, place: 16, wording: 120, entry: 500, text: 40 };

/** Counts the estimated memory of an index. Beyond the limit, further texts are left out. */
const createBudget = (maxBytes: number) => {
  let bytes = 0;
  let leftOut = 0;
  return {
    add: (more: number): void => {
      bytes += more;
    },
    isSpent: (): boolean => bytes > maxBytes,
    leaveOut: (texts: number): void => {
      leftOut += texts;
    },
    result: () => ({ bytes, leftOut }),
  };
};
type Budget = ReturnType<typeof createBudget>;

/** Collects postings, stems and spellings from the texts of one language. */
const createReader = (language: string, budget: Budget) => {
  const postings = new Map<string, Postings>();
  const stems = new SearchableMap<string>();
  const spellings = new Map<string, string>();
  const read = (text: string, addTo: (keyPostings: Postings) => void): Term[] => {
    const terms = readTerms(text, language);
    for (const term of terms) {
      if (!spellings.has(term.word)) spellings.set(term.word, term.stem);
      stems.set(term.stem, term.stem);
      for (const key of indexKeysOf(term)) {
        let keyPostings = postings.get(key);
        if (!keyPostings) {
          keyPostings = { wordings: NONE, questionEntries: NONE, answerEntries: NONE, weight: 0 };
          postings.set(key, keyPostings);
          budget.add(BYTES.key);
        }
        budget.add(BYTES.place);
        addTo(keyPostings);
      }
    }
    return terms;
  };
  return { postings, stems, spellings, read };
};

/**
 * The texts of an entry that are read in one pass: variants `from` to `to`, and perhaps the question and the answer.
 */
type Pass = { question: boolean; answer: boolean; from: number; to: number };
const WHOLE: Pass[] = [{ question: true, answer: true, from: 0, to: Number.POSITIVE_INFINITY }];
const BY_WORTH: Pass[] = [
  { question: true, answer: false, from: 0, to: 0 },
  { question: false, answer: true, from: 0, to: 0 },
  { question: false, answer: false, from: 0, to: 5 },
  { question: false, answer: false, from: 5, to: 15 },
  { question: false, answer: false, from: 15, to: Number.POSITIVE_INFINITY },
];

/**
 * Builds the index of one language. `all` is the number of the assistant's entries in all languages, so that term
 * weights are comparable between languages.
 */
function* buildGroup(
  language: string,
  entries: IndexedEntry[],
  { all, budget, passes }: { all: number; budget: Budget; passes: Pass[] },
): Generator<void, KnowledgeGroup> {
  const { postings, stems, spellings, read } = createReader(language, budget);
  const exact = new Map<string, number>();
  const wordingEntries: number[] = [];
  /** The postings and weights of all terms of all wordings. The terms of a wording end at its number in `termEnds`. */
  const [terms, shares, termEnds]: [Postings[], number[], number[]] = [[], [], []];
  const readWording = (entry: number, wording: string): void => {
    const normalised = normaliseWording(wording);
    if (normalised !== '' && !exact.has(normalised)) exact.set(normalised, entry);
    const nth = wordingEntries.length;
    const found = read(wording, (keyPostings) => {
      keyPostings.wordings = appended(keyPostings.wordings, nth);
      keyPostings.questionEntries = appended(keyPostings.questionEntries, entry);
    });
    wordingEntries.push(entry);
    for (const term of found) {
      const keyPostings = postings.get(termKey(term));
      if (!keyPostings) continue;
      terms.push(keyPostings);
      shares.push(conceptWeight(term));
    }
    termEnds.push(terms.length);
    budget.add(BYTES.wording + normalised.length);
  };

  for (const pass of passes) {
    for (const [entry, { question, variants, answer, tags }] of entries.entries()) {
      const chosen = [...(pass.question ? [question] : []), ...variants.slice(pass.from, pass.to)];
      for (const wording of chosen) {
        if (budget.isSpent()) budget.leaveOut(1);
        else readWording(entry, wording);
        yield;
      }
      if (!pass.answer) continue;
      if (budget.isSpent()) budget.leaveOut(1);
      else {
        read(`${tags.join(' ')} ${answer}`, (keyPostings) => {
          keyPostings.answerEntries = appended(keyPostings.answerEntries, entry);
        });
      }
      yield;
    }
  }

  for (const keyPostings of postings.values()) {
    // If an entry is read in several passes, it is in the list several times.
    if (passes.length > 1) keyPostings.questionEntries = [...new Set(keyPostings.questionEntries)];
    // An occurrence in an answer counts half, because a word in many answers but few questions still distinguishes
    // questions.
    const entriesWithKey = new Set([...keyPostings.questionEntries, ...keyPostings.answerEntries]).size;
    keyPostings.weight = inverseDocumentFrequency((keyPostings.questionEntries.length + entriesWithKey) / 2, all);
    yield;
  }
  const wordings: Wordings = {
    entry: Uint32Array.from(wordingEntries),
    weight: new Float64Array(wordingEntries.length),
  };
  for (let nth = 0; nth < wordingEntries.length; nth += 1) {
    for (let at = termEnds[nth - 1] ?? 0; at < (termEnds[nth] ?? 0); at += 1) {
      wordings.weight[nth] = (wordings.weight[nth] ?? 0) + (terms[at]?.weight ?? 0) * (shares[at] ?? 0);
    }
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
    accumulators: createAccumulators(wordingEntries.length, entries.length),
  };
}

/** The index of an assistant's entries. It returns the entries as they were given, with all their fields. */
export type KnowledgeIndex<Known extends IndexedEntry = IndexedEntry> = {
  groups: KnowledgeGroup[];
  /** Maps an entry id to the entry and its group. */
  entriesById: Map<string, { entry: Known; group: KnowledgeGroup }>;
  /** Estimated memory, with the texts of the entries. */
  bytes: number;
  /** How many questions, variants and answers were left out, because they did not fit into `maxBytes`. */
  leftOut: number;
};

export const countWordings = (knowledge: readonly Pick<IndexedEntry, 'variants'>[]): number =>
  knowledge.reduce((sum, { variants }) => sum + 1 + variants.length, 0);

function* buildWithin<Known extends IndexedEntry>(
  { knowledge, languages }: Knowledge<Known>,
  { maxBytes, passes }: { maxBytes: number; passes: Pass[] },
): Generator<void, KnowledgeIndex<Known>> {
  const budget = createBudget(maxBytes);
  for (const { question, variants, answer } of knowledge) {
    budget.add(BYTES.entry + question.length + answer.length + BYTES.text * variants.length);
    for (const variant of variants) budget.add(variant.length);
    yield;
  }
  const byLanguage = Map.groupBy(knowledge, (entry) => baseLanguage(entry.language ?? languages[0] ?? 'en'));
  const groups: KnowledgeGroup[] = [];
  const entriesById: KnowledgeIndex<Known>['entriesById'] = new Map();
  for (const [language, entries] of byLanguage) {
    const group = yield* buildGroup(language, entries, { all: knowledge.length, budget, passes });
    groups.push(group);
    for (const entry of entries) entriesById.set(entry.entryId, { entry, group });
  }
  return { groups, entriesById, ...budget.result() };
}

/**
 * Builds the index in small steps, so that the caller can yield to other work. Entries are grouped by language, because
 * stemming depends on the language. If the index exceeds `maxBytes`, it is built again from what is worth most.
 */
export function* indexInSteps<Known extends IndexedEntry>(
  knowledge: Knowledge<Known>,
  maxBytes = Number.POSITIVE_INFINITY,
): Generator<void, KnowledgeIndex<Known>> {
  let index: KnowledgeIndex<Known> | null = yield* buildWithin(knowledge, { maxBytes, passes: WHOLE });
  if (index.leftOut === 0) return index;
  index = null; // its memory is needed for the second try
  return yield* buildWithin(knowledge, { maxBytes, passes: BY_WORTH });
}

/** Builds the index without yielding. */
export const indexEntries = <Known extends IndexedEntry>(knowledge: Knowledge<Known>): KnowledgeIndex<Known> => {
  const steps = indexInSteps(knowledge);
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
  }
};
