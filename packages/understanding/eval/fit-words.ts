import { baseLanguage } from '../src/lexicon.ts';
import { decideLanguage } from '../src/language.ts';
import { lexicalConfidence, lexicalFeatures } from '../src/retrieval/candidate.ts';
import { inLanguageOrder } from '../src/retrieval/lexical-search.ts';
import { indexEntries } from '../src/retrieval/knowledge-index.ts';
import { searchGroup } from '../src/retrieval/search.ts';
import { fitLogistic, probability, type Sample } from './fitting.ts';
import { BASES, isEntry, loadBase, loadQuestions } from './sets.ts';

const RIDGE = 0.02;
const FOLDS = 5;

const samplesOf = (): Sample[] => {
  const samples: Sample[] = [];
  const bases = new Map(BASES.map((name) => [name, { base: loadBase(name), index: indexEntries(loadBase(name)) }]));
  for (const { base, half, expected, message } of loadQuestions()) {
    const known = bases.get(base);
    if (half !== 'tune' || !known) continue;
    const visitorLanguage = baseLanguage(decideLanguage({ message, allowed: known.base.languages }).language);
    let best: { features: number[]; entryId: string; confidence: number } | null = null;
    for (const group of inLanguageOrder(known.index, visitorLanguage)) {
      const { candidates, exact } = searchGroup(message, group, visitorLanguage);
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

const logLoss = (weights: number[], samples: Sample[]): number =>
  -samples.reduce(
    (sum, { features, right }) => sum + Math.log(Math.abs(1 - (right ? 1 : 0) - probability(weights, features))),
    0,
  ) / samples.length;

/** Fits the weights of `confidence.ts`, for lexical search. */
export const fitWords = () => {
  const samples = samplesOf();
  const folds = Array.from({ length: FOLDS }, (_, fold) =>
    logLoss(
      fitLogistic(
        samples.filter((__, at) => at % FOLDS !== fold),
        RIDGE,
      ),
      samples.filter((__, at) => at % FOLDS === fold),
    ),
  );
  const weights = fitLogistic(samples, RIDGE);
  return {
    samples: samples.length,
    weights,
    logLoss: logLoss(weights, samples),
    unseen: folds.reduce((a, b) => a + b) / FOLDS,
  };
};
