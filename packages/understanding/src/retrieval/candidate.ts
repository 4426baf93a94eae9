import { words as wordsIn } from '../fold.ts';
import type { Distribution, EntrySimilarity, Similarities } from '../similarity.ts';
import type { IndexedEntry, KnowledgeGroup, KnowledgeIndex } from './knowledge-index.ts';
import { type LexicalCandidate, type LexicalEvidence, rankEntries, searchGroup } from './search.ts';
import { readTerms } from './terms.ts';

/**
 * The lexical evidence for an entry: once counting words with the same concept as equal (`withConcepts`), and once
 * counting only the same words (`literal`).
 */
export type EntryEvidence = {
  entry: IndexedEntry;
  group: KnowledgeGroup;
  withConcepts: LexicalEvidence;
  literal: LexicalEvidence;
};

const NO_EVIDENCE: LexicalEvidence = {
  coverage: 0,
  wordingCoverage: 0,
  wordingMatch: 0,
  unknownShare: 1,
  matchedTerms: 0,
  lead: 0,
  ownCoverage: 0,
};

/** The most likely entries of each language, judged by word matches. Keys are entry ids. */
export const collectLexicalEvidence = (
  message: string,
  index: KnowledgeIndex,
  visitorLanguage: string,
): Map<string, EntryEvidence> => {
  const found = new Map<string, EntryEvidence>();
  for (const group of index.groups) {
    const terms = readTerms(message, group.language, visitorLanguage);
    const literal = terms.map((term) => ({ ...term, concept: null }));
    for (const [kind, read] of [['withConcepts', terms] as const, ['literal', literal] as const]) {
      for (const { entry: number, evidence } of rankEntries(read, group)) {
        const entry = group.entries[number];
        if (!entry) continue;
        const before = found.get(entry.entryId) ?? { entry, group, withConcepts: NO_EVIDENCE, literal: NO_EVIDENCE };
        found.set(entry.entryId, { ...before, [kind]: evidence });
      }
    }
  }
  return found;
};

/** The features of the lexical confidence, in the order of `WEIGHTS`. The first feature is the bias. */
export const lexicalFeatures = ({
  coverage,
  wordingCoverage,
  wordingMatch,
  unknownShare,
  matchedTerms,
  lead,
}: LexicalEvidence): number[] => [
  1,
  coverage,
  wordingCoverage,
  wordingMatch,
  unknownShare,
  Math.min(3, matchedTerms),
  Math.min(0.4, lead),
  coverage * wordingMatch,
];

/** Fitted on the `--tune` half of the evaluation set by `npm run eval -- fit`. */
const WEIGHTS = [-3.18, 1.76, 0.98, 0.81, -1.31, 0.93, 3.21, 1.19];

/** The probability that an entry is the answer, judged by word matches only. */
export const lexicalConfidence = (evidence: LexicalEvidence): number => {
  const sum = lexicalFeatures(evidence).reduce((total, feature, at) => total + feature * (WEIGHTS[at] ?? 0), 0);
  return 1 / (1 + Math.exp(-sum));
};

/** An entry with the probability that it is the answer. */
export type Hit = {
  entry: IndexedEntry;
  group: KnowledgeGroup;
  confidence: number;
  score: number;
  /** The confidence by word matches only. Set only after a hybrid search. */
  words?: number;
  /** The best cosine. Set only after a hybrid search. */
  cosine?: number;
};

/** The most hits of a search. A reply offers at most so many questions. */
export const MAX_HITS = 3;
/** The confidence of a hit in another language is multiplied by this factor, if the visitor's language has hits too. */
const FOREIGN_SHARE = 0.75;

export const toHits = (
  candidates: LexicalCandidate[],
  group: KnowledgeGroup,
  confidence = (of: LexicalCandidate): number => lexicalConfidence(of.evidence),
): Hit[] =>
  candidates.slice(0, MAX_HITS).flatMap((candidate) => {
    const entry = group.entries[candidate.entry];
    return entry ? [{ entry, group, confidence: confidence(candidate), score: candidate.score }] : [];
  });

/** The groups of an index. The group in the visitor's language is first. */
export const inLanguageOrder = ({ groups }: KnowledgeIndex, visitorLanguage: string): KnowledgeGroup[] =>
  [...groups].sort((a, b) => Number(b.language === visitorLanguage) - Number(a.language === visitorLanguage));

/**
 * The best hits of one language. This is the visitor's language if its confidence reaches the threshold. Otherwise the
 * other languages are searched until one reaches the threshold, and the highest confidence decides.
 */
export const searchLexical = (
  message: string,
  index: KnowledgeIndex,
  visitorLanguage: string,
  threshold: number,
): Hit[] => {
  let best: Hit[] = [];
  for (const group of inLanguageOrder(index, visitorLanguage)) {
    const { candidates, exact } = searchGroup(message, group, visitorLanguage);
    const share = best.length > 0 && group.language !== visitorLanguage ? FOREIGN_SHARE : 1;
    const hits = toHits(candidates, group, (candidate) => (exact ? 1 : share * lexicalConfidence(candidate.evidence)));
    if ((hits[0]?.confidence ?? 0) > (best[0]?.confidence ?? 0)) best = hits;
    if ((best[0]?.confidence ?? 0) >= threshold) break;
  }
  return best;
};

/** An entry that may be the answer. The order of the features is the order of the weights in `hybrid-search.ts`. */
export type Candidate = {
  entry: IndexedEntry;
  group: KnowledgeGroup;
  /** The confidence by word matches only, and the best cosine (0 if there is no vector). */
  words: number;
  cosine: number;
  scoreFeatures: number[];
  confidenceFeatures: number[];
};

export type Question = { message: string; visitorLanguage: string; index: KnowledgeIndex };

/**
 * The number of measurements that the typical cosines in `PRIOR` count as. They are mixed with the measured cosines,
 * because a small assistant has too few of its own.
 */
const PRIOR_COUNT = 3;
const PRIOR: Distribution = { count: PRIOR_COUNT, mean: 0.81, deviation: 0.022 };

const pooled = (one: Distribution, other: Distribution): Distribution => {
  const count = one.count + other.count;
  const mean = (one.count * one.mean + other.count * other.mean) / count;
  const squares = [one, other].reduce(
    (sum, each) => sum + each.count * (each.deviation ** 2 + (each.mean - mean) ** 2),
    0,
  );
  return { count, mean, deviation: Math.sqrt(squares / count) };
};

/** Differences of cosines are small. This factor brings them near 1, the size of the other features. */
const SCALE = 20;
const MAX_WORDS = 12;

/** The share of the message that no entry of this language contains. It is the same for all entries of the language. */
const unknownShareIn = (lexical: ReadonlyMap<string, EntryEvidence>, group: KnowledgeGroup) => {
  const evidence = [...lexical.values()].filter((one) => one.group === group);
  return {
    withConcepts: evidence.find(({ withConcepts }) => withConcepts !== NO_EVIDENCE)?.withConcepts.unknownShare ?? 1,
    literal: evidence.find(({ literal }) => literal !== NO_EVIDENCE)?.literal.unknownShare ?? 1,
  };
};

/** Every entry that is similar to the message or shares a term with it. */
export const candidatesOf = (
  { message, visitorLanguage, index }: Question,
  lexical: ReadonlyMap<string, EntryEvidence>,
  similarities: Similarities,
): Candidate[] => {
  const [questions, answers] = [pooled(similarities.question, PRIOR), pooled(similarities.answer, PRIOR)];
  const similar = new Map(similarities.entries.map((near): [string, EntrySimilarity] => [near.entryId, near]));
  const length = Math.min(MAX_WORDS, wordsIn(message.slice(0, 400)).length) / MAX_WORDS;

  const unknownShares = new Map(index.groups.map((group) => [group, unknownShareIn(lexical, group)]));
  return [...new Set([...similar.keys(), ...lexical.keys()])].flatMap((entryId): Candidate[] => {
    const found = index.entriesById.get(entryId);
    if (!found) return []; // the index is newer than the vectors
    const { entry, group } = found;
    const isVisitorLanguage = group.language === visitorLanguage ? 1 : 0;
    const unknownShare = unknownShares.get(group) ?? { withConcepts: 1, literal: 1 };
    const near = similar.get(entryId);
    const evidence = lexical.get(entryId);
    const { withConcepts, literal } = evidence ?? { withConcepts: NO_EVIDENCE, literal: NO_EVIDENCE };
    const words = evidence && withConcepts !== NO_EVIDENCE ? lexicalConfidence(withConcepts) : 0;
    const byQuestion = near ? near.question - questions.mean : 0;
    const byAnswer = near?.answer == null ? 0 : near.answer - answers.mean;
    const cosine = Math.max(near?.question ?? 0, near?.answer ?? 0);
    return [
      {
        entry,
        group,
        words,
        cosine,
        scoreFeatures: [SCALE * byQuestion, SCALE * byAnswer, words, withConcepts.coverage, isVisitorLanguage],
        confidenceFeatures: [
          byQuestion / questions.deviation,
          byAnswer / answers.deviation,
          SCALE * byQuestion,
          SCALE * byAnswer,
          SCALE * (cosine - PRIOR.mean),
          words,
          withConcepts.coverage,
          unknownShare.withConcepts,
          literal === NO_EVIDENCE ? 0 : lexicalConfidence(literal),
          literal.coverage,
          unknownShare.literal,
          Math.min(3, literal.matchedTerms),
          isVisitorLanguage,
          length,
          // A question about something else is about equally far from all entries.
          SCALE * questions.deviation,
          SCALE * (answers.mean - PRIOR.mean),
        ],
      },
    ];
  });
};
