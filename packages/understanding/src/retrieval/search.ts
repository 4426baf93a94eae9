import { conceptOf, misspeltConcept, relatedTo } from './concepts.ts';
import { conceptKey, conceptWeight, type KnowledgeGroup, normaliseWording, type Postings } from './knowledge-index.ts';
import { readTerms, type Term } from './terms.ts';

const CONCEPT_WEIGHT = 0.85;
const RELATED_WEIGHT = 0.45;
const TYPO_WEIGHT = 0.85;
const SECOND_TYPO_WEIGHT = 0.7;
const PREFIX_WEIGHT = 0.7;
const SHORTEST_FUZZY = 4;
const TWO_TYPOS_FROM = 8;

/** Query expansion: the index keys that a term may mean, each with a weight from 0 to 1. */
export const expandTerm = (term: Term, { postings, spellings, stems }: KnowledgeGroup): Map<string, number> => {
  const found = new Map<string, number>();
  const stem = spellings.get(term.word) ?? term.stem;
  if (postings.has(stem)) found.set(stem, 1);
  if (term.concept !== null) {
    const key = conceptKey(term.concept);
    if (postings.has(key)) found.set(key, CONCEPT_WEIGHT);
    for (const related of relatedTo(term.concept)) {
      if (postings.has(conceptKey(related))) found.set(conceptKey(related), RELATED_WEIGHT);
    }
  }
  if (found.size > 0 || term.concept !== null || term.stem.length < SHORTEST_FUZZY) return found;
  const plainVowels = term.word.replace(/([aou])e/g, '$1');
  if (plainVowels !== term.word) {
    const spelling = spellings.get(plainVowels);
    const concept = conceptOf(plainVowels);
    if (spelling !== undefined && postings.has(spelling)) found.set(spelling, 1);
    if (concept !== null && postings.has(conceptKey(concept))) found.set(conceptKey(concept), CONCEPT_WEIGHT);
    if (found.size > 0) return found;
  }
  for (const [near, [, distance]] of stems.fuzzyGet(term.stem, term.stem.length >= TWO_TYPOS_FROM ? 2 : 1)) {
    if (near[0] === term.stem[0]) found.set(near, distance > 1 ? SECOND_TYPO_WEIGHT : TYPO_WEIGHT);
  }
  if (found.size > 0) return found;
  const concept = misspeltConcept(term.word);
  if (concept !== null && postings.has(conceptKey(concept))) {
    found.set(conceptKey(concept), CONCEPT_WEIGHT * TYPO_WEIGHT);
  } else if (term.stem.length > SHORTEST_FUZZY) {
    for (const [longer] of stems.atPrefix(term.stem)) found.set(longer, PREFIX_WEIGHT);
  }
  return found;
};

/**
 * How well the words of a message match an entry. In the shares, rare terms weigh more. `lexicalConfidence` combines
 * all values into one number.
 */
export type LexicalEvidence = {
  /** Share of the message that the entry's questions or its answer contain. */
  coverage: number;
  /** Share of the message that the entry's questions contain. */
  wordingCoverage: number;
  /** Share of the entry’s best matching question that the message contains. */
  wordingMatch: number;
  /** Share of the message that no entry contains. */
  unknownShare: number;
  /** How many terms of the message were found. */
  matchedTerms: number;
  /** The entry's score minus the best score of any other candidate. Negative for all candidates except the first. */
  lead: number;
  /** Share of the message that the entry contains, not counting terms that were added from the previous answer. */
  ownCoverage: number;
};
export type LexicalCandidate = { entry: number; score: number; evidence: LexicalEvidence };
type SearchResult = { candidates: LexicalCandidate[]; group: KnowledgeGroup; exact: boolean };

const ANSWER_SHARE = 0.6;
const MAX_CANDIDATES = 5;
/**
 * How many places a search reads, so that it is one short step. If thousands of entries have all words of a message,
 * there are more.
 */
const MAX_PLACES = 60_000;

/** Searches the entries of one language. `visitorLanguage` is the base language of the message. */
export const searchGroup = (message: string, group: KnowledgeGroup, visitorLanguage: string): SearchResult => {
  const exact = group.exact.get(normaliseWording(message));
  if (exact !== undefined) {
    const evidence = {
      coverage: 1,
      wordingCoverage: 1,
      wordingMatch: 1,
      unknownShare: 0,
      matchedTerms: 1,
      lead: 1,
      ownCoverage: 1,
    };
    return { candidates: [{ entry: exact, score: 1, evidence }], group, exact: true };
  }
  return { candidates: rankEntries(readTerms(message, group.language, visitorLanguage), group), group, exact: false };
};

type Found = { term: Term; isOwn: boolean; postings: [Postings, number][] };

/** Leaves out the commonest terms of a message if all together are in too many places. They distinguish the least. */
const withinPlaces = (terms: Found[]): Found[] => {
  const placesOf = ({ postings }: Found): number =>
    postings.reduce(
      (sum, [{ wordings, questionEntries, answerEntries }]) =>
        sum + wordings.length + questionEntries.length + answerEntries.length,
      0,
    );
  const rarestFirst = terms.map((one) => ({ one, places: placesOf(one) })).sort((a, b) => a.places - b.places);
  const kept = new Set<Found>();
  let left = MAX_PLACES;
  for (const { one, places } of rarestFirst) {
    left -= places;
    if (left < 0 && kept.size > 0) break;
    kept.add(one);
  }
  return kept.size === terms.length ? terms : terms.filter((one) => kept.has(one));
};

/**
 * Ranks the entries of a group for a message. For a follow-up question, `subject` has the terms of the last answered
 * entry.
 */
export const rankEntries = (
  own: Term[],
  group: KnowledgeGroup,
  subject?: { terms: Term[]; share: number },
): LexicalCandidate[] => {
  const { byWording, coverage, wordingCoverage, ownCoverage, matchedTerms } = group.accumulators;
  const accumulators = [byWording, coverage, wordingCoverage, ownCoverage, matchedTerms];
  for (const accumulator of accumulators) accumulator.clear();
  const weights = { all: 0, unknown: 0, own: 0 };
  const terms = [...own, ...(subject?.terms ?? [])].map((term, position): Found => {
    const postings: [Postings, number][] = [];
    for (const [key, similarity] of expandTerm(term, group)) {
      const found = group.postings.get(key);
      if (found) postings.push([found, similarity]);
    }
    return { term, isOwn: position < own.length, postings };
  });
  for (const { term, isOwn, postings: found } of withinPlaces(terms)) {
    const share = conceptWeight(term) * (isOwn ? 1 : (subject?.share ?? 0));
    const weight =
      share * (found.length === 0 ? group.unknownTermWeight : Math.max(...found.map(([postings]) => postings.weight)));
    weights.all += weight;
    if (found.length === 0) weights.unknown += weight;
    if (isOwn) weights.own += weight;
    for (const accumulator of accumulators) accumulator.nextTerm();
    for (const [postings, similarity] of found) {
      const inWording = similarity * weight;
      for (const wording of postings.wordings) byWording.add(wording, inWording);
      for (const entry of postings.questionEntries) {
        coverage.add(entry, inWording);
        wordingCoverage.add(entry, inWording);
        matchedTerms.add(entry, share);
        if (isOwn) ownCoverage.add(entry, weight);
      }
      for (const entry of postings.answerEntries) {
        coverage.add(entry, inWording * ANSWER_SHARE);
        matchedTerms.add(entry, share);
        if (isOwn) ownCoverage.add(entry, weight);
      }
    }
  }
  return weights.all === 0 ? [] : bestOf(group, weights);
};

/**
 * The best entries. The result is kept sorted during the scan, because sorting all of thousands of entries would cost
 * more than the search.
 */
const bestOf = (
  { accumulators, wordings }: KnowledgeGroup,
  weights: { all: number; unknown: number; own: number },
): LexicalCandidate[] => {
  const { nearest } = accumulators;
  nearest.clear();
  nearest.nextTerm();
  for (const number of accumulators.byWording.touched) {
    const weight = wordings.weight[number] ?? 0;
    if (weight > 0) nearest.add(wordings.entry[number] ?? 0, Math.min(1, accumulators.byWording.get(number) / weight));
  }
  const best: LexicalCandidate[] = [];
  for (const entry of accumulators.coverage.touched) {
    const coverage = accumulators.coverage.get(entry) / weights.all;
    const wordingCoverage = accumulators.wordingCoverage.get(entry) / weights.all;
    const wordingMatch = nearest.get(entry);
    const score = 0.6 * coverage + 0.15 * wordingCoverage + 0.25 * wordingMatch;
    const last = best.at(-1);
    const isBehind = last !== undefined && (score < last.score || (score === last.score && entry > last.entry));
    if (best.length === MAX_CANDIDATES && isBehind) continue;
    const evidence: LexicalEvidence = {
      coverage,
      wordingCoverage,
      wordingMatch,
      unknownShare: weights.unknown / weights.all,
      matchedTerms: accumulators.matchedTerms.get(entry),
      lead: 0,
      ownCoverage: weights.own === 0 ? 0 : accumulators.ownCoverage.get(entry) / weights.own,
    };
    best.push({ entry, score, evidence });
    best.sort((a, b) => b.score - a.score || a.entry - b.entry);
    best.length = Math.min(best.length, MAX_CANDIDATES);
  }
  for (const candidate of best) {
    const rival = best.find((other) => other !== candidate);
    candidate.evidence.lead = candidate.score - (rival?.score ?? 0);
  }
  return best;
};
