import { type Calibration, localCosine, localDifference, type ModelCalibration } from './calibration.ts';
import { createLoopShare } from './embedder/token-vectors.ts';

export type TextKind = 'question' | 'variant' | 'answer';

/** A text of an entry that is compared with questions. */
export type ComparedText = { kind: TextKind; text: string };

/**
 * Only this many characters of an answer are compared, because the start of an answer says what it is about. More text
 * costs time and makes the vector less precise.
 */
const ANSWER_CHARS = 300;
/** A long answer is cut between words, unless its last word has more characters than this. */
const LONG_WORD = 60;

const beginningOf = (answer: string): string => {
  if (answer.length <= ANSWER_CHARS) return answer;
  const cut = answer.slice(0, ANSWER_CHARS);
  const end = Math.max(cut.lastIndexOf(' '), cut.lastIndexOf('\n'));
  return (ANSWER_CHARS - end < LONG_WORD ? cut.slice(0, end) : cut).toWellFormed();
};

/** The texts of an entry that get a vector, in the order of the vectors: question, distinct variants, answer. */
export const comparedTexts = ({
  question,
  variants,
  answer,
}: {
  question: string;
  variants: readonly string[];
  answer: string;
}): ComparedText[] => [
  { kind: 'question', text: question },
  ...[...new Set(variants)].filter((one) => one !== question).map((text): ComparedText => ({ kind: 'variant', text })),
  // The question is added, because an answer alone often does not say what it is about.
  { kind: 'answer', text: `${question} ${beginningOf(answer)}` },
];

/** Vectors in 8 bits, one after the other. */
export type VectorRows = {
  dimensions: number;
  values: Int8Array;
  /** One divided by the length of each vector. 0: it has none yet. */
  inverses: Float32Array;
};

/** A vector in 8 bits. Its length does not matter, so it uses all of the 8 bits. */
export const quantised = (vector: Float32Array): Int8Array<ArrayBuffer> => {
  const length = vector.length;
  let largest = 1e-9;
  for (let at = 0; at < length; at += 1) largest = Math.max(largest, Math.abs(vector[at] as number));
  const values = new Int8Array(length);
  for (let at = 0; at < length; at += 1) values[at] = Math.round(((vector[at] as number) / largest) * 127);
  return values;
};

export const emptyRows = (count: number, dimensions: number): VectorRows => ({
  dimensions,
  values: new Int8Array(count * dimensions),
  inverses: new Float32Array(count),
});

export const setRow = ({ dimensions, values, inverses }: VectorRows, row: number, vector: Int8Array): void => {
  values.set(vector, row * dimensions);
  let squares = 0;
  for (const value of vector) squares += value * value;
  inverses[row] = squares === 0 ? 0 : 1 / Math.sqrt(squares);
};

export const rowOf = ({ dimensions, values }: VectorRows, row: number): Int8Array =>
  values.subarray(row * dimensions, (row + 1) * dimensions);

/** The rows of `count` vectors that are given one after the other. */
export const rowsOf = (vectors: Float32Array, count: number): VectorRows => {
  const dimensions = vectors.length / count;
  const rows = emptyRows(count, dimensions);
  for (let row = 0; row < count; row += 1)
    setRow(rows, row, quantised(vectors.subarray(row * dimensions, (row + 1) * dimensions)));
  return rows;
};

/** The largest number of a compared vector, and how many numbers a sum of its products has room for. */
const COMPARED = { largest: 32_767, dimensions: 2_048 };

/**
 * Compares a vector with rows, in whole numbers, which is faster. Four independent sums are faster than one, because each
 * addition to a sum waits for the previous one.
 */
export const cosineTo = (query: Float32Array): ((rows: VectorRows, row: number) => number) => {
  const largest = query.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-9);
  const scale = (COMPARED.largest * Math.min(1, COMPARED.dimensions / query.length)) / largest;
  const asked = Int16Array.from(query, (value) => Math.round(value * scale));
  const inverse = 1 / Math.max(1, Math.hypot(...asked));
  return ({ dimensions, values, inverses }, row) => {
    const from = row * dimensions;
    let a = 0;
    let b = 0;
    let c = 0;
    let d = 0;
    for (let at = 0; at < dimensions; at += 4) {
      a = (a + Math.imul(asked[at] as number, values[from + at] as number)) | 0;
      b = (b + Math.imul(asked[at + 1] as number, values[from + at + 1] as number)) | 0;
      c = (c + Math.imul(asked[at + 2] as number, values[from + at + 2] as number)) | 0;
      d = (d + Math.imul(asked[at + 3] as number, values[from + at + 3] as number)) | 0;
    }
    return (a + b + c + d) * (inverses[row] as number) * inverse;
  };
};

/** An entry's vectors in memory. `kinds` lists the kind of each. */
export type VectorEntry = { entryId: string; hash: string; kinds: TextKind[]; rows: VectorRows };

const ENTRIES_PER_TIME_CHECK = 32;

/** The cosine of an entry's most similar question, and the cosine of its answer (null if the answer has no vector). */
export type EntrySimilarity = { entryId: string; question: number; answer: number | null };
/**
 * The distribution of the cosines of all entries. A single cosine means little without it, because all cosines lie
 * close together and shift with each question.
 */
export type Distribution = { count: number; mean: number; deviation: number };
export type Similarities = {
  entries: EntrySimilarity[];
  question: Distribution;
  answer: Distribution;
  /** Weights that were fitted to the model. Undefined: those of the local model. */
  weights?: Calibration;
};

/** The same as the local model would give it, with the weights that were fitted to the model. */
export const calibrated = (similarities: Similarities, calibration: ModelCalibration | null): Similarities => {
  if (!calibration) return similarities;
  const { cosines, entries: weights } = calibration;
  const all = ({ count, mean, deviation }: Distribution): Distribution => ({
    count,
    mean: localCosine(mean, cosines),
    deviation: localDifference(deviation, cosines),
  });
  return {
    entries: similarities.entries.map(({ entryId, question, answer }) => ({
      entryId,
      question: localCosine(question, cosines),
      answer: answer === null ? null : localCosine(answer, cosines),
    })),
    question: all(similarities.question),
    answer: all(similarities.answer),
    weights,
  };
};

/** With `includedOnly`, only the entries that the caller names are compared. */
export type SimilarityOptions = { includedOnly?: boolean };

/**
 * Compares a text with the vectors of all entries. The entries of `include` are always in the result. Null if no vector
 * is available right now: words alone decide then.
 */
export type SemanticSearch = (
  text: string,
  include: ReadonlySet<string>,
  options?: SimilarityOptions,
) => Promise<Similarities | null>;

const NEAREST = 8;
/** After this time, the loop yields to other turns. It is shorter than a turn that needs no model takes. */
const SLICE_MS = 0.5;

export const createDistribution = () => {
  let count = 0;
  let sum = 0;
  let squares = 0;
  return {
    add: (value: number): void => {
      count += 1;
      sum += value;
      squares += value * value;
    },
    result: (): Distribution => {
      const mean = count === 0 ? 0 : sum / count;
      return { count, mean, deviation: Math.sqrt(Math.max(0, count === 0 ? 0 : squares / count - mean * mean)) };
    },
  };
};

/** What ranks candidates and tells how likely the first one is, for entries and passages alike: weighted sums of features. */
export const weighted = (features: readonly number[], weights: readonly number[]): number =>
  features.reduce((sum, feature, at) => sum + feature * (weights[at] ?? 0), 0);

export const probability = (features: readonly number[], weights: readonly number[]): number =>
  1 / (1 + Math.exp(-weighted(features, weights)));

/** The candidates with their scores, the best first. */
export const rankByScore = <One extends { scoreFeatures: readonly number[] }>(
  candidates: readonly One[],
  weights: readonly number[],
): (One & { score: number })[] =>
  candidates
    .map((one) => ({ ...one, score: weighted(one.scoreFeatures, weights) }))
    .toSorted((one, other) => other.score - one.score);

/** How far the candidate at `position` leads its best rival, and the logarithm of its share among all candidates. */
export const standingIn = (
  ranked: readonly { score: number }[],
  position: number,
): { lead: number | null; share: number } => {
  const { score: own = 0 } = ranked[position] ?? {};
  const rival = ranked[position === 0 ? 1 : 0];
  const all = ranked.reduce((sum, { score }) => sum + Math.exp(score - own), 0);
  return { lead: rival ? own - rival.score : null, share: -Math.log(all) };
};

/** The best of many by a score, the best first. */
export const createBest = <One>(most: number) => {
  const kept: { one: One; score: number }[] = [];
  return {
    kept,
    /** A score must be above this one to be kept. */
    get least(): number {
      return kept.length < most ? Number.NEGATIVE_INFINITY : (kept[kept.length - 1]?.score ?? Number.NEGATIVE_INFINITY);
    },
    add: (one: One, score: number): void => {
      const before = kept.findIndex((other) => other.score < score);
      kept.splice(before === -1 ? kept.length : before, 0, { one, score });
      if (kept.length > most) kept.pop();
    },
  };
};

const sumOf = ({ question, answer }: EntrySimilarity): number => question + (answer ?? question);

/**
 * Compares a question with all entries. Returns the most similar entries, the entries of `include`, and the
 * distributions of all cosines. With `includedOnly`, only the entries of `include` are compared.
 */
export const measureSimilarity = async (
  entries: readonly VectorEntry[],
  query: Float32Array,
  include: ReadonlySet<string>,
  { includedOnly = false }: SimilarityOptions = {},
): Promise<Similarities> => {
  const [allQuestions, allAnswers] = [createDistribution(), createDistribution()];
  const nearest = createBest<EntrySimilarity>(NEAREST);
  const included: EntrySimilarity[] = [];
  const cosineOf = cosineTo(query);
  const share = createLoopShare(SLICE_MS);
  for (const [nth, { entryId, kinds, rows }] of entries.entries()) {
    if (nth % ENTRIES_PER_TIME_CHECK === ENTRIES_PER_TIME_CHECK - 1 && share.isOver()) await share.next();
    if (includedOnly && !include.has(entryId)) continue;
    if (rows.dimensions !== query.length) continue; // made by another model
    let asked = Number.NEGATIVE_INFINITY;
    let answer: number | null = null;
    for (let row = 0; row < kinds.length; row += 1) {
      const cosine = cosineOf(rows, row);
      if (kinds[row] === 'answer') answer = cosine;
      else if (cosine > asked) asked = cosine;
    }
    if (asked === Number.NEGATIVE_INFINITY) continue;
    allQuestions.add(asked);
    if (answer !== null) allAnswers.add(answer);
    const near: EntrySimilarity = { entryId, question: asked, answer };
    if (include.has(entryId)) included.push(near);
    else if (sumOf(near) > nearest.least) nearest.add(near, sumOf(near));
  }
  return {
    entries: [...included, ...nearest.kept.map(({ one }) => one)],
    question: allQuestions.result(),
    answer: allAnswers.result(),
  };
};
