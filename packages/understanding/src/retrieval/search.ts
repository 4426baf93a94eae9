import { words as wordsIn } from '../fold.ts';
import { type Distribution, type EntrySimilarity, type Similarities, probability } from '../similarity.ts';
import {
  IN_ANSWER,
  type IndexedEntry,
  type KnowledgeGroup,
  type KnowledgeIndex,
  isOfLanguage,
  normaliseWording,
} from './knowledge-index.ts';
import { conceptOf, conceptWeight, misspeltConcept, relatedTo } from './concepts.ts';
import { readTerms, type Term, conceptKey, isConceptKey, PLACE } from './terms.ts';

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

/** The terms of one message as each group reads it. */
export type TermsByGroup = Map<KnowledgeGroup, Term[]>;

const termsIn = (group: KnowledgeGroup, message: string, visitorLanguage: string, known: TermsByGroup): Term[] => {
  const terms = known.get(group) ?? readTerms(message, group.language, visitorLanguage);
  known.set(group, terms);
  return terms;
};

/**
 * The most likely entries of each language, judged by word matches. Keys are entry ids. `known`: what `searchLexical` has
 * read of the message.
 */
export function* collectLexicalEvidence(
  message: string,
  index: KnowledgeIndex,
  visitorLanguage: string,
  known: TermsByGroup = new Map(),
): Generator<void, Map<string, EntryEvidence>> {
  const found = new Map<string, EntryEvidence>();
  const efforts = { withConcepts: anEffort(), literal: anEffort() };
  for (const group of index.groups) {
    const terms = termsIn(group, message, visitorLanguage, known);
    const literal = terms.map((term) => ({ ...term, concept: null }));
    for (const [kind, read] of [['withConcepts', terms] as const, ['literal', literal] as const]) {
      for (const { entry: number, evidence } of yield* rankEntries(read, group, { effort: efforts[kind] })) {
        const entry = group.entries[number];
        if (!entry) continue;
        const before = found.get(entry.entryId) ?? { entry, group, withConcepts: NO_EVIDENCE, literal: NO_EVIDENCE };
        found.set(entry.entryId, { ...before, [kind]: evidence });
      }
    }
  }
  return found;
}

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
export const lexicalConfidence = (evidence: LexicalEvidence): number => probability(lexicalFeatures(evidence), WEIGHTS);

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

/** The maximum number of hits of a search, and of questions that a reply offers. */
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
  [...groups].sort((a, b) => Number(isOfLanguage(b, visitorLanguage)) - Number(isOfLanguage(a, visitorLanguage)));

/**
 * The best hits of one language. This is the visitor's language if its confidence reaches the threshold. Otherwise the
 * other languages are searched until one reaches the threshold, and the highest confidence decides. `known` gets the
 * terms of the message.
 */
export function* searchLexical(
  message: string,
  index: KnowledgeIndex,
  visitorLanguage: string,
  threshold: number,
  known: TermsByGroup = new Map(),
): Generator<void, Hit[]> {
  let best: Hit[] = [];
  const reading = { wording: normaliseWording(message), known, effort: anEffort() };
  for (const group of inLanguageOrder(index, visitorLanguage)) {
    const { candidates, exact } = yield* searchGroup(message, group, visitorLanguage, reading);
    const share = best.length > 0 && !isOfLanguage(group, visitorLanguage) ? FOREIGN_SHARE : 1;
    const hits = toHits(candidates, group, (candidate) => (exact ? 1 : share * lexicalConfidence(candidate.evidence)));
    if ((hits[0]?.confidence ?? 0) > (best[0]?.confidence ?? 0)) best = hits;
    if ((best[0]?.confidence ?? 0) >= threshold) break;
  }
  return best;
}

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
    const isVisitorLanguage = isOfLanguage(group, visitorLanguage) ? 1 : 0;
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

const CONCEPT_WEIGHT = 0.85;
const RELATED_WEIGHT = 0.45;
const TYPO_WEIGHT = 0.85;
const SECOND_TYPO_WEIGHT = 0.7;
const PREFIX_WEIGHT = 0.7;
const SHORTEST_FUZZY = 4;
const TWO_TYPOS_FROM = 8;
/**
 * The most that a search of all languages does: the stems with which it compares the words that it does not know, and the
 * places that it reads.
 */
const MOST = { stems: 20_000, places: 120_000 };

/** What a search may still do. */
export type Effort = typeof MOST;
export const anEffort = (): Effort => ({ ...MOST });

/** The stems that begin like this one, a map at a time, while the search may compare them. */
function* stemsLike(stem: string, { stems }: KnowledgeGroup, effort: Effort) {
  for (const some of stems.get(stem.charAt(0)) ?? []) {
    if (effort.stems <= 0) return;
    effort.stems -= some.size;
    yield some;
  }
}

/**
 * Query expansion: the index keys that a term may mean, each with a weight from 0 to 1. A term that is misspelt or
 * shortened is compared with stems, which is a step for each map of them.
 */
export function* expandTerm(term: Term, group: KnowledgeGroup, effort: Effort): Generator<void, Map<string, number>> {
  const {
    words: { terms },
    spellings,
  } = group;
  const found = new Map<string, number>();
  const stem = spellings.get(term.word) ?? term.stem;
  if (terms.has(stem)) found.set(stem, 1);
  if (term.concept !== null) {
    const key = conceptKey(term.concept);
    if (terms.has(key)) found.set(key, CONCEPT_WEIGHT);
    for (const related of relatedTo(term.concept)) {
      if (terms.has(conceptKey(related))) found.set(conceptKey(related), RELATED_WEIGHT);
    }
  }
  if (found.size > 0 || term.concept !== null || term.stem.length < SHORTEST_FUZZY) return found;
  const plainVowels = term.word.replace(/([aou])e/g, '$1');
  if (plainVowels !== term.word) {
    const spelling = spellings.get(plainVowels);
    const concept = conceptOf(plainVowels);
    if (spelling !== undefined && terms.has(spelling)) found.set(spelling, 1);
    if (concept !== null && terms.has(conceptKey(concept))) found.set(conceptKey(concept), CONCEPT_WEIGHT);
    if (found.size > 0) return found;
  }
  if (effort.stems <= 0) return found; // nothing is left to compare, and no misspelt concept is looked for
  for (const some of stemsLike(term.stem, group, effort)) {
    for (const [near, [, distance]] of some.fuzzyGet(term.stem, term.stem.length >= TWO_TYPOS_FROM ? 2 : 1))
      found.set(near, distance > 1 ? SECOND_TYPO_WEIGHT : TYPO_WEIGHT);
    yield;
  }
  if (found.size > 0) return found;
  const concept = misspeltConcept(term.word);
  if (concept !== null && terms.has(conceptKey(concept))) {
    found.set(conceptKey(concept), CONCEPT_WEIGHT * TYPO_WEIGHT);
  } else if (term.stem.length > SHORTEST_FUZZY) {
    for (const some of stemsLike(term.stem, group, effort)) {
      for (const longer of some.atPrefix(term.stem).keys()) found.set(longer, PREFIX_WEIGHT);
      yield;
    }
  }
  return found;
}

/**
 * How well the words of a message match an entry. In the shares, rare terms weigh more. `lexicalConfidence` combines
 * all values into one number.
 */
type LexicalEvidence = {
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
  /** In a follow-up: the share of the message that the entry contains, without the terms of the previous answer. */
  ownCoverage: number;
};
type LexicalCandidate = { entry: number; score: number; evidence: LexicalEvidence };
type SearchResult = { candidates: LexicalCandidate[]; group: KnowledgeGroup; exact: boolean };

const ANSWER_SHARE = 0.6;
const MAX_CANDIDATES = 5;
/**
 * The most places that a search reads in a language, the rarest words first. Only the places of the rarest word are read
 * even if there are more.
 */
const MAX_PLACES = 40_000;

/**
 * Searches the entries of one language. `visitorLanguage` is the base language of the message. A search of several
 * languages gives what they share.
 */
export function* searchGroup(
  message: string,
  group: KnowledgeGroup,
  visitorLanguage: string,
  { wording = normaliseWording(message), known = new Map<KnowledgeGroup, Term[]>(), effort = anEffort() } = {},
): Generator<void, SearchResult> {
  const exact = group.exact.get(wording);
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
  const terms = termsIn(group, message, visitorLanguage, known);
  return { candidates: yield* rankEntries(terms, group, { effort }), group, exact: false };
}

type Found = { term: Term; isOwn: boolean; weight: number; keys: [key: number, similarity: number][]; places: number };

/** Leaves out the commonest terms of a message, which distinguish the least, if all together are in too many places. */
const withinPlaces = (terms: Found[], effort: Effort): Found[] => {
  let left = Math.min(MAX_PLACES, effort.places);
  const kept = new Set<Found>();
  for (const one of terms.toSorted((a, b) => a.places - b.places)) {
    left -= one.places;
    if (left < 0 && kept.size > 0) break;
    effort.places -= one.places;
    kept.add(one);
  }
  return terms.filter((one) => kept.has(one));
};

/** The terms of an entry are spelt as its index spells them. */
const AS_SPELT: Effort = { stems: 0, places: 0 };

/**
 * Ranks the entries of a group for a message. For a follow-up question, `subject` has the terms of the last answered
 * entry.
 */
export function* rankEntries(
  own: Term[],
  group: KnowledgeGroup,
  { subject, effort = anEffort() }: { subject?: { terms: Term[]; share: number }; effort?: Effort } = {},
): Generator<void, LexicalCandidate[]> {
  const {
    entryOf,
    words: { starts, places },
  } = group;
  const terms: Found[] = [];
  for (const [position, term] of [...own, ...(subject?.terms ?? [])].entries()) {
    const isOwn = position < own.length;
    const found: Found = { term, isOwn, weight: 0, keys: [], places: 0 };
    for (const [name, similarity] of yield* expandTerm(term, group, isOwn ? effort : AS_SPELT)) {
      const key = group.words.terms.get(name);
      if (key === undefined) continue;
      const count = (starts[key + 1] as number) - (starts[key] as number);
      // The word itself comes first. A misspelt one may be any of many words, which all texts may have.
      if (found.keys.length > 0 && !isConceptKey(name) && found.places + count > MAX_PLACES) continue;
      found.keys.push([key, similarity]);
      found.weight = Math.max(found.weight, group.weights[key] as number);
      found.places += count;
    }
    terms.push(found);
    yield;
  }
  // From here on to the end, the accumulators are of this search.
  const { byWording, coverage, wordingCoverage, ownCoverage, matchedTerms } = group.accumulators;
  const accumulators = [byWording, coverage, wordingCoverage, ownCoverage, matchedTerms];
  for (const accumulator of accumulators) accumulator.clear();
  const weights = { all: 0, unknown: 0, own: 0 };
  for (const { term, isOwn, weight: found, keys } of withinPlaces(terms, effort)) {
    const share = conceptWeight(term.concept) * (isOwn ? 1 : (subject?.share ?? 0));
    const weight = share * (keys.length === 0 ? group.unknownTermWeight : found);
    weights.all += weight;
    if (keys.length === 0) weights.unknown += weight;
    if (isOwn) weights.own += weight;
    for (const accumulator of accumulators) accumulator.nextTerm();
    for (const [key, similarity] of keys) {
      const inWording = similarity * weight;
      const end = starts[key + 1] as number;
      let last = -1;
      for (let at = starts[key] as number; at < end; at += 1) {
        const place = places[at] as number;
        const entry = entryOf[place >>> PLACE.bits] as number;
        if ((place & IN_ANSWER) !== 0) coverage.add(entry, inWording * ANSWER_SHARE);
        else {
          byWording.add(place >>> PLACE.bits, inWording);
          if (entry === last) continue; // another wording of the same entry
          last = entry;
          coverage.add(entry, inWording);
          wordingCoverage.add(entry, inWording);
        }
        matchedTerms.add(entry, share);
        if (subject && isOwn) ownCoverage.add(entry, weight);
      }
    }
  }
  return weights.all === 0 ? [] : bestOf(group, weights);
}

/**
 * The best entries. The result is kept sorted during the scan, because sorting all of thousands of entries would cost
 * more than the search.
 */
const bestOf = (
  { accumulators, entryOf, wordingWeights }: KnowledgeGroup,
  weights: { all: number; unknown: number; own: number },
): LexicalCandidate[] => {
  const { nearest } = accumulators;
  nearest.clear();
  nearest.nextTerm();
  for (const number of accumulators.byWording.touched) {
    const weight = wordingWeights[number] ?? 0;
    if (weight > 0) nearest.add(entryOf[number] ?? 0, Math.min(1, accumulators.byWording.get(number) / weight));
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
