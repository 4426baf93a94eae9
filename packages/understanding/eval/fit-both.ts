import { baseLanguage } from '../src/lexicon.ts';
import { decideLanguage } from '../src/language.ts';
import {
  adjustConfidence,
  type Calibration,
  counterEvidenceOf,
  featuresInRanking,
  rankCandidates,
  withoutUnknownWords,
} from '../src/retrieval/hybrid-search.ts';
import { candidatesOf, collectLexicalEvidence, type Candidate } from '../src/retrieval/candidate.ts';
import { indexEntries } from '../src/retrieval/knowledge-index.ts';
import { searchGroup } from '../src/retrieval/search.ts';
import { fitChoice, fitLogistic, logit, probability } from './fitting.ts';
import { BASES, isEntry, loadBase, loadQuestions, loadUnseen, type Question, UNSEEN_BASES } from './sets.ts';
import type { TextVectors } from './vectors.ts';

type Example = {
  base: string;
  withoutAnswer: boolean;
  expected: string[];
  weight: number;
  candidates: Candidate[];
  /** The counter-evidence against each top candidate, by entry id. */
  counterEvidence: Map<string, number[]>;
};

const RIDGE = { score: 0.002, confidence: 0.005, counterEvidence: 0.01 };
/** Weight of a question whose right entry was removed. There are many of these, and they are artificial. */
const WITHOUT_ANSWER_WEIGHT = 0.05;
/** Weight of a question of a known domain. The word lists were written for these, so they are easier than real ones. */
const KNOWN_DOMAIN_WEIGHT = 0.5;
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
    const evaluate = async ({ message }: Question, without: string[]) => {
      const knowledge = known.knowledge.filter(({ entryId }) => !isEntry(entryId, without));
      const index = indexEntries({ ...known, knowledge });
      const { language } = decideLanguage({ message, allowed: known.languages });
      const asked = { message, visitorLanguage: baseLanguage(language), index };
      const counterEvidence = new Map<string, number[]>();
      if (index.groups.some((group) => searchGroup(message, group, asked.visitorLanguage).exact))
        return { candidates: [], counterEvidence };
      const semanticSearch = vectors.semanticSearchOf(all.filter(({ entryId }) => !isEntry(entryId, without)));
      const lexical = collectLexicalEvidence(message, index, asked.visitorLanguage);
      const whole = await semanticSearch(message, new Set(lexical.keys()));
      const candidates = whole ? candidatesOf(asked, lexical, whole) : [];
      for (const one of rankCandidates(candidates).slice(0, COUNTER_EVIDENCE_FOR)) {
        const rest = withoutUnknownWords(asked, one);
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
        withoutAnswer: false,
        expected: question.expected,
        weight: share,
        ...(await evaluate(question, [])),
      });
      if (question.expected.length === 0) continue;
      examples.push({
        base,
        withoutAnswer: true,
        expected: [],
        weight: share * WITHOUT_ANSWER_WEIGHT,
        ...(await evaluate(question, question.expected)),
      });
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
    counterEvidence ? [{ ...sample, features: [1, logit(probability(confidence, features)), ...counterEvidence] }] : [],
  );
  return { score, confidence, counterEvidence: fitLogistic(checkedSamples, RIDGE.counterEvidence) };
};

export type Prediction = { right: boolean; three: boolean; sure: number; answerable: boolean };

/** What a calibration predicts for the examples. */
const predict = (calibration: Calibration, examples: Example[]): Prediction[] =>
  examples.map(({ candidates, expected, counterEvidence }) => {
    const ranked = rankCandidates(candidates, calibration);
    const entryId = ranked[0]?.entry.entryId ?? '';
    const first = probability(calibration.confidence, featuresInRanking(ranked, 0));
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
      examples.filter(({ base, withoutAnswer }) => base === domain && !withoutAnswer),
    ),
  }));
  return { examples: examples.length, calibration: fit(examples), unseen };
};
