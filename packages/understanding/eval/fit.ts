import type { Calibration } from '../src/calibration.ts';
import { inOneStep } from '../src/embedder/token-vectors.ts';
import { probability, weighted } from '../src/similarity.ts';
import { decideLanguage } from '../src/language.ts';
import { baseLanguage } from '../src/fold.ts';
import {
  type Candidate,
  candidatesOf,
  collectLexicalEvidence,
  inLanguageOrder,
  lexicalConfidence,
  lexicalFeatures,
  searchGroup,
} from '../src/retrieval/search.ts';
import {
  adjustConfidence,
  adjustmentFeatures,
  type CounterEvidence,
  counterEvidenceOf,
  featuresInRanking,
  rankCandidates,
  withoutUnknownWords,
} from '../src/retrieval/hybrid-search.ts';
import { indexEntries } from '../src/retrieval/knowledge-index.ts';
import {
  BASES,
  isEntry,
  loadBase,
  loadQuestions,
  loadUnseen,
  type Question,
  type TextVectors,
  UNSEEN_BASES,
} from './measure.ts';

/** Solves a small symmetric system by Gaussian elimination. */
const solve = (matrix: number[][], right: number[]): number[] => {
  const rows = matrix.map((row, at) => [...row, right[at] ?? 0]);
  const size = rows.length;
  for (let at = 0; at < size; at += 1) {
    let pivot = at;
    for (let row = at + 1; row < size; row += 1) {
      if (Math.abs(rows[row]?.[at] ?? 0) > Math.abs(rows[pivot]?.[at] ?? 0)) pivot = row;
    }
    [rows[at], rows[pivot]] = [rows[pivot] as number[], rows[at] as number[]];
    const lead = rows[at] as number[];
    for (let row = 0; row < size; row += 1) {
      if (row === at) continue;
      const other = rows[row] as number[];
      const share = (other[at] as number) / (lead[at] as number);
      for (let column = at; column <= size; column += 1)
        other[column] = (other[column] as number) - share * (lead[column] as number);
    }
  }
  return rows.map((row, at) => (row[size] as number) / (row[at] as number));
};

const ROUNDS = 25;

/** Newton's method. `add` adds up the slope and the curvature of all samples at the given weights. */
const minimise = (
  size: number,
  ridge: (at: number) => number,
  add: (weights: number[], slope: number[], curve: number[][]) => void,
): number[] => {
  let weights = Array.from({ length: size }, () => 0);
  for (let round = 0; round < ROUNDS; round += 1) {
    const slope = weights.map((weight, at) => ridge(at) * weight);
    const curve = weights.map((_, at) => weights.map((__, other) => (at === other ? ridge(at) + 1e-9 : 0)));
    add(weights, slope, curve);
    const step = solve(curve, slope);
    weights = weights.map((weight, at) => weight - (step[at] ?? 0));
  }
  return weights;
};

export type Sample = { features: number[]; right: boolean; weight: number };

/** Logistic regression. The ridge penalty treats features as standardised, and skips the first (the bias). */
export const fitLogistic = (samples: Sample[], ridge: number): number[] => {
  const size = samples[0]?.features.length ?? 0;
  const total = samples.reduce((sum, { weight }) => sum + weight, 0);
  const spread = Array.from({ length: size }, (_, at) => {
    const mean = samples.reduce((sum, { features, weight }) => sum + weight * (features[at] ?? 0), 0) / total;
    return samples.reduce((sum, { features, weight }) => sum + weight * ((features[at] ?? 0) - mean) ** 2, 0) / total;
  });
  return minimise(
    size,
    (at) => (at === 0 ? 0 : ridge * (spread[at] ?? 0)),
    (weights, slope, curve) => {
      for (const { features, right, weight } of samples) {
        const p = probability(features, weights);
        const [miss, bend] = [(weight / total) * (p - (right ? 1 : 0)), (weight / total) * p * (1 - p)];
        for (let at = 0; at < size; at += 1) {
          const feature = features[at] as number;
          slope[at] = (slope[at] as number) + miss * feature;
          const row = curve[at] as number[];
          for (let other = 0; other < size; other += 1)
            row[other] = (row[other] as number) + bend * feature * (features[other] as number);
        }
      }
    },
  );
};

export type Choice = { features: number[][]; right: boolean[]; weight: number };

/** Fits a softmax choice between candidates by weighted sums. It maximises the probability of the right candidates. */
export const fitChoice = (choices: Choice[], ridge: number): number[] => {
  const size = choices[0]?.features[0]?.length ?? 0;
  return minimise(
    size,
    () => ridge,
    (weights, slope, curve) => {
      for (const { features, right, weight } of choices) {
        const ranks = features.map((one) => weighted(one, weights));
        const top = Math.max(...ranks);
        const chances = ranks.map((rank) => Math.exp(rank - top));
        const all = chances.reduce((a, b) => a + b, 0);
        const ofRight = chances.reduce((sum, chance, at) => sum + (right[at] ? chance : 0), 0);
        const mean = weights.map((_, at) =>
          features.reduce((sum, one, nth) => sum + ((chances[nth] ?? 0) / all) * (one[at] ?? 0), 0),
        );
        for (const [nth, one] of features.entries()) {
          const chance = (chances[nth] ?? 0) / all;
          const wanted = right[nth] ? (chances[nth] ?? 0) / ofRight : 0;
          for (let at = 0; at < size; at += 1) {
            slope[at] = (slope[at] as number) + ((chance - wanted) * (one[at] ?? 0) * weight) / choices.length;
            const row = curve[at] as number[];
            for (let other = 0; other < size; other += 1) {
              const bend = chance * ((one[at] ?? 0) - (mean[at] ?? 0)) * ((one[other] ?? 0) - (mean[other] ?? 0));
              row[other] = (row[other] as number) + (weight * bend) / choices.length;
            }
          }
        }
      }
    },
  );
};

const WORDS_RIDGE = 0.02;
const FOLDS = 5;

const wordSamples = (): Sample[] => {
  const samples: Sample[] = [];
  const bases = new Map(BASES.map((name) => [name, { base: loadBase(name), index: indexEntries(loadBase(name)) }]));
  for (const { base, half, expected, message } of loadQuestions()) {
    const known = bases.get(base);
    if (half !== 'tune' || !known) continue;
    const visitorLanguage = baseLanguage(decideLanguage({ message, allowed: known.base.languages }).language);
    let best: { features: number[]; entryId: string; confidence: number } | null = null;
    for (const group of inLanguageOrder(known.index, visitorLanguage)) {
      const { candidates, exact } = inOneStep(searchGroup(message, group, visitorLanguage));
      const [top] = candidates;
      if (!top || exact) continue;
      const confidence = lexicalConfidence(top.evidence);
      if (best !== null && confidence <= best.confidence) continue;
      best = { features: lexicalFeatures(top.evidence), entryId: group.entries[top.entry]?.entryId ?? '', confidence };
    }
    if (best) samples.push({ features: best.features, right: isEntry(best.entryId, expected), weight: 1 });
  }
  return samples;
};

const lossOf = (weights: number[], samples: Sample[]): number =>
  -samples.reduce(
    (sum, { features, right }) => sum + Math.log(Math.abs(1 - (right ? 1 : 0) - probability(features, weights))),
    0,
  ) / samples.length;

/** Fits the weights of `search.ts`, for lexical search. */
const fitWords = () => {
  const samples = wordSamples();
  const folds = Array.from({ length: FOLDS }, (_, fold) =>
    lossOf(
      fitLogistic(
        samples.filter((__, at) => at % FOLDS !== fold),
        WORDS_RIDGE,
      ),
      samples.filter((__, at) => at % FOLDS === fold),
    ),
  );
  const weights = fitLogistic(samples, WORDS_RIDGE);
  return {
    samples: samples.length,
    weights,
    logLoss: lossOf(weights, samples),
    unseen: folds.reduce((a, b) => a + b) / FOLDS,
  };
};

type Example = {
  base: string;
  /** False if the question is asked of other knowledge than it was written for. */
  isWhole: boolean;
  expected: string[];
  weight: number;
  candidates: Candidate[];
  /** The counter-evidence against each top candidate, by entry id. */
  counterEvidence: Map<string, CounterEvidence>;
};

const RIDGE = { score: 0.002, confidence: 0.01, counterEvidence: 0.01 };
/** Weight of a question whose right entry was removed. There are many of these, and they are artificial. */
const WITHOUT_ANSWER_WEIGHT = 0.05;
/** Weight of a question of a known domain. The word lists were written for these, so they are easier than real ones. */
const KNOWN_DOMAIN_WEIGHT = 0.75;
/** Each question is asked of small assistants too, with every n-th of the other entries, because many have few entries. */
const SMALL = { everyNth: [4, 13, 40], weight: 0.05, withoutAnswerWeight: 0.025 };
/** How many top candidates get counter-evidence. Other weights may rank any of them first. */
const COUNTER_EVIDENCE_FOR = 4;

/**
 * Asks each question of the `tune` half. A question with a right entry is asked again with that entry removed, and must
 * then not be answered.
 */
const examplesOf = async (vectors: TextVectors): Promise<Example[]> => {
  const examples: Example[] = [];
  const questions = [...loadQuestions(), ...loadUnseen()].filter(({ half }) => half === 'tune');
  for (const base of [...BASES, ...UNSEEN_BASES]) {
    const known = loadBase(base);
    const all = await vectors.vectorEntries(known.knowledge);
    const evaluate = async (
      { message, expected }: Question,
      { without = [], everyNth = 1 }: { without?: string[]; everyNth?: number },
    ) => {
      const isIn = (entryId: string, nth: number): boolean =>
        !isEntry(entryId, without) && (nth % everyNth === 0 || isEntry(entryId, expected));
      const knowledge = known.knowledge.filter(({ entryId }, nth) => isIn(entryId, nth));
      const index = indexEntries({ ...known, knowledge });
      const { language } = decideLanguage({ message, allowed: known.languages });
      const asked = { message, visitorLanguage: baseLanguage(language), index };
      const counterEvidence = new Map<string, CounterEvidence>();
      if (index.groups.some((group) => inOneStep(searchGroup(message, group, asked.visitorLanguage)).exact))
        return { candidates: [], counterEvidence };
      const semanticSearch = vectors.semanticSearchOf(all.filter(({ entryId }, nth) => isIn(entryId, nth)));
      const lexical = inOneStep(collectLexicalEvidence(message, index, asked.visitorLanguage));
      const whole = await semanticSearch(message, new Set(lexical.keys()));
      const candidates = whole ? candidatesOf(asked, lexical, whole) : [];
      for (const one of rankCandidates(candidates).slice(0, COUNTER_EVIDENCE_FOR)) {
        const rest = inOneStep(withoutUnknownWords(asked, one));
        const reduced =
          rest === null ? null : await semanticSearch(rest, new Set([one.entry.entryId]), { includedOnly: true });
        const found = whole && reduced ? counterEvidenceOf(one.entry.entryId, whole, reduced) : null;
        if (found) counterEvidence.set(one.entry.entryId, found);
      }
      return { candidates, counterEvidence };
    };
    for (const question of questions.filter((one) => one.base === base)) {
      const share = BASES.includes(base) ? KNOWN_DOMAIN_WEIGHT : 1;
      examples.push({
        base,
        isWhole: true,
        expected: question.expected,
        weight: share,
        ...(await evaluate(question, {})),
      });
      if (question.expected.length === 0) continue;
      examples.push({
        base,
        isWhole: false,
        expected: [],
        weight: share * WITHOUT_ANSWER_WEIGHT,
        ...(await evaluate(question, { without: question.expected })),
      });
      for (const everyNth of SMALL.everyNth) {
        for (const without of [[], question.expected]) {
          const weight = share * (without.length > 0 ? SMALL.withoutAnswerWeight : SMALL.weight);
          const cut = { isWhole: false, expected: without.length > 0 ? [] : question.expected, weight };
          examples.push({ base, ...cut, ...(await evaluate(question, { without, everyNth })) });
        }
      }
    }
  }
  return examples.filter(({ candidates }) => candidates.length > 0);
};

const fit = (examples: Example[]): Calibration => {
  const known = examples.filter(({ candidates, expected }) =>
    candidates.some(({ entry }) => isEntry(entry.entryId, expected)),
  );
  const score = fitChoice(
    known.map(({ candidates, expected, weight }) => ({
      weight,
      features: candidates.map(({ scoreFeatures }) => scoreFeatures),
      right: candidates.map(({ entry }) => isEntry(entry.entryId, expected)),
    })),
    RIDGE.score,
  );
  const samples = examples.map(({ candidates, expected, weight, counterEvidence }) => {
    const ranked = rankCandidates(candidates, { score, confidence: [], counterEvidence: [] });
    const entryId = ranked[0]?.entry.entryId ?? '';
    return {
      features: featuresInRanking(ranked, 0),
      right: isEntry(entryId, expected),
      weight,
      counterEvidence: counterEvidence.get(entryId),
    };
  });
  const confidence = fitLogistic(samples, RIDGE.confidence);
  const checkedSamples = samples.flatMap(({ features, counterEvidence, ...sample }) =>
    counterEvidence
      ? [{ ...sample, features: adjustmentFeatures(probability(features, confidence), counterEvidence) }]
      : [],
  );
  return { score, confidence, counterEvidence: fitLogistic(checkedSamples, RIDGE.counterEvidence) };
};

export type Prediction = { right: boolean; three: boolean; sure: number; answerable: boolean };

/** What a calibration predicts for the examples. */
const predict = (calibration: Calibration, examples: Example[]): Prediction[] =>
  examples.map(({ candidates, expected, counterEvidence }) => {
    const ranked = rankCandidates(candidates, calibration);
    const entryId = ranked[0]?.entry.entryId ?? '';
    const first = probability(featuresInRanking(ranked, 0), calibration.confidence);
    const against = counterEvidence.get(entryId);
    return {
      right: isEntry(entryId, expected),
      three: ranked.slice(0, 3).some(({ entry }) => isEntry(entry.entryId, expected)),
      sure: against ? adjustConfidence(first, against, calibration) : first,
      answerable: expected.length > 0,
    };
  });

/** Fits all examples. Also measures each domain with a fit to the other domains, because only unseen domains count. */
export const fitBoth = async (vectors: TextVectors) => {
  const examples = await examplesOf(vectors);
  const unseen = [...BASES, ...UNSEEN_BASES].map((domain) => ({
    domain,
    predictions: predict(
      fit(examples.filter(({ base }) => base !== domain)),
      examples.filter(({ base, isWhole }) => base === domain && isWhole),
    ),
  }));
  return { examples: examples.length, calibration: fit(examples), unseen };
};

export const rounded = (weights: number[]): string =>
  `[${weights.map((weight) => Number(weight.toFixed(2))).join(', ')}]`;
const percent = (of: Prediction[], is: (one: Prediction) => boolean): string =>
  `${((100 * of.filter(is).length) / of.length).toFixed(1)} %`.padStart(8);
const logLoss = (told: Prediction[]): number =>
  -told.reduce((sum, { right, sure }) => sum + Math.log(right ? sure : 1 - sure), 0) / told.length;

/**
 * Fits the engine's confidence to the `tune` half of each question set. It prints the weights for
 * `search.ts` (search by words only) and `hybrid-search.ts` (search by words and meaning), and how well such weights
 * work for questions that they were not fitted to.
 */
export const reportFit = async (vectors: TextVectors): Promise<Calibration> => {
  const words = fitWords();
  console.log(
    `words alone: ${words.samples} questions, log loss ${words.logLoss.toFixed(3)}, in five folds ${words.unseen.toFixed(3)}`,
  );
  console.log(`  weights ${rounded(words.weights)} (those in use were fitted before, and do as well)\n`);

  const { examples, calibration, unseen } = await fitBoth(vectors);
  console.log(`words and meaning by ${vectors.model}: ${examples} questions`);
  for (const [name, weights] of Object.entries(calibration)) console.log(`  ${name}: ${rounded(weights)},`);

  console.log('\neach domain by a fit to the other six:');
  for (const { domain, predictions } of unseen) {
    const known = predictions.filter(({ answerable }) => answerable);
    const first = percent(known, ({ right }) => right);
    const three = percent(known, (one) => one.three);
    console.log(
      `  ${domain.padEnd(9)} log loss ${logLoss(predictions).toFixed(3)}  first right ${first}  among three ${three}`,
    );
  }
  const all = unseen.flatMap(({ predictions }) => predictions);
  const [known, unknown] = [all.filter(({ answerable }) => answerable), all.filter(({ answerable }) => !answerable)];
  console.log(
    `  all       log loss ${logLoss(all).toFixed(3)}\n\nfrom       first right  first wrong  right among three  unanswerable`,
  );
  for (const least of [0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.65, 0.7, 0.72, 0.75, 0.8, 0.9]) {
    const right = percent(known, (one) => one.right && one.sure >= least);
    const wrong = percent(known, (one) => !one.right && one.sure >= least);
    const among = percent(known, (one) => one.three && one.sure >= least);
    const unanswerable = percent(unknown, ({ sure }) => sure >= least);
    console.log(`${String(least).padEnd(8)}    ${right}     ${wrong}           ${among}      ${unanswerable}`);
  }
  return calibration;
};
