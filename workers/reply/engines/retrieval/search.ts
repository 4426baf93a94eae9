import { conceptOf, nearConcept, relatedTo } from './concepts.ts';
import { conceptKey, type KnowledgeGroup, type Postings, plain, shareOf } from './knowledge-index.ts';
import { readTerms, type Term } from './terms.ts';

/** What speaks for an entry; `confidenceOf` turns it into one number. */
export type Evidence = {
  /** Share of the message's information found in the entry's wordings, or in its answer. */
  covered: number;
  /** The same, looking at the wordings only. */
  asked: number;
  /** Share of the nearest wording that the message names. */
  wording: number;
  /** Share of the message's information that this knowledge has never heard of. */
  strange: number;
  /** Things of the message that were found. */
  matched: number;
  /** Lead over the best of the others; negative for all but the first. */
  lead: number;
  /** Share of the message's own information found, the subject of a follow-up left out. */
  fresh: number;
};
export type Candidate = { entry: number; rank: number; evidence: Evidence };
export type Found = { candidates: Candidate[]; group: KnowledgeGroup; exact: boolean };

const CONCEPT_LIKENESS = 0.85;
const RELATED_LIKENESS = 0.45;
const TYPO_LIKENESS = 0.85;
const SECOND_TYPO_LIKENESS = 0.7;
const PREFIX_LIKENESS = 0.7;
const ANSWER_SHARE = 0.6;
const SHORTEST_FUZZY = 4;
const TWO_TYPOS_FROM = 8;
const MAX_CANDIDATES = 5;

/** Which keys of the knowledge a term may stand for, and how surely. */
const expand = (term: Term, { postings, spellings, stems }: KnowledgeGroup): Map<string, number> => {
  const found = new Map<string, number>();
  const stem = spellings.get(term.word) ?? term.stem;
  if (postings.has(stem)) found.set(stem, 1);
  if (term.concept !== null) {
    const key = conceptKey(term.concept);
    if (postings.has(key)) found.set(key, CONCEPT_LIKENESS);
    for (const related of relatedTo(term.concept)) {
      if (postings.has(conceptKey(related))) found.set(conceptKey(related), RELATED_LIKENESS);
    }
  }
  if (found.size > 0 || term.concept !== null || term.stem.length < SHORTEST_FUZZY) return found;
  const plainVowels = term.word.replace(/([aou])e/g, '$1');
  if (plainVowels !== term.word) {
    const spelling = spellings.get(plainVowels);
    const concept = conceptOf(plainVowels);
    if (spelling !== undefined && postings.has(spelling)) found.set(spelling, 1);
    if (concept !== null && postings.has(conceptKey(concept))) found.set(conceptKey(concept), CONCEPT_LIKENESS);
    if (found.size > 0) return found;
  }
  for (const [near, [, distance]] of stems.fuzzyGet(term.stem, term.stem.length >= TWO_TYPOS_FROM ? 2 : 1)) {
    if (near[0] === term.stem[0]) found.set(near, distance > 1 ? SECOND_TYPO_LIKENESS : TYPO_LIKENESS);
  }
  if (found.size > 0) return found;
  const concept = nearConcept(term.word);
  if (concept !== null && postings.has(conceptKey(concept))) {
    found.set(conceptKey(concept), CONCEPT_LIKENESS * TYPO_LIKENESS);
  } else if (term.stem.length > SHORTEST_FUZZY) {
    for (const [longer] of stems.atPrefix(term.stem)) found.set(longer, PREFIX_LIKENESS);
  }
  return found;
};

const raise = (table: Map<number, number>, key: number, value: number): void => {
  if (value > (table.get(key) ?? 0)) table.set(key, value);
};
const add = (table: Map<number, number>, key: number, value: number): void => {
  table.set(key, (table.get(key) ?? 0) + value);
};

/** `spoken` is the base language of the message. */
export const searchGroup = (message: string, group: KnowledgeGroup, spoken: string): Found => {
  const exact = group.exact.get(plain(message));
  if (exact !== undefined) {
    const evidence = { covered: 1, asked: 1, wording: 1, strange: 0, matched: 1, lead: 1, fresh: 1 };
    return { candidates: [{ entry: exact, rank: 1, evidence }], group, exact: true };
  }
  return { candidates: rankEntries(readTerms(message, group.language, spoken), group), group, exact: false };
};

/** Ranks the entries of a group for a message; `subject` is what the conversation was about before. */
export const rankEntries = (
  own: Term[],
  group: KnowledgeGroup,
  subject?: { terms: Term[]; share: number },
): Candidate[] => {
  const terms = subject ? [...own, ...subject.terms] : own;
  const byEntryFresh = new Map<number, number>();
  let freshMass = 0;
  let mass = 0;
  let strange = 0;
  const byWording = new Map<number, number>();
  const byEntry = new Map<number, number>();
  const byEntryAsked = new Map<number, number>();
  const matched = new Map<number, number>();
  for (const [place, term] of terms.entries()) {
    const isOwn = place < own.length;
    const expansions = expand(term, group);
    const found: [Postings, number][] = [];
    for (const [key, likeness] of expansions) {
      const postings = group.postings.get(key);
      if (postings) found.push([postings, likeness]);
    }
    const share = shareOf(term) * (isOwn ? 1 : (subject?.share ?? 0));
    const weight =
      share * (found.length === 0 ? group.strangeWeight : Math.max(...found.map(([postings]) => postings.weight)));
    mass += weight;
    if (isOwn) freshMass += weight;
    if (found.length === 0) strange += weight;
    const inWordings = new Map<number, number>();
    const inEntries = new Map<number, number>();
    const askedIn = new Map<number, number>();
    for (const [postings, likeness] of found) {
      for (const wording of postings.wordings) {
        raise(inWordings, wording, likeness);
        const entry = group.wordings[wording]?.entry ?? -1;
        raise(inEntries, entry, likeness);
        raise(askedIn, entry, likeness);
      }
      for (const entry of postings.answers) raise(inEntries, entry, likeness * ANSWER_SHARE);
    }
    for (const [wording, likeness] of inWordings) add(byWording, wording, likeness * weight);
    for (const [entry, likeness] of askedIn) add(byEntryAsked, entry, likeness * weight);
    for (const [entry, likeness] of inEntries) {
      add(byEntry, entry, likeness * weight);
      if (isOwn) add(byEntryFresh, entry, (likeness >= ANSWER_SHARE / 2 ? 1 : likeness) * weight);
      add(matched, entry, share);
    }
  }
  if (mass === 0) return [];

  const wordingShare = new Map<number, number>();
  for (const [number, sum] of byWording) {
    const wording = group.wordings[number];
    if (wording && wording.mass > 0) raise(wordingShare, wording.entry, Math.min(1, sum / wording.mass));
  }
  const candidates = [...byEntry].map(([entry, sum]) => {
    const evidence: Evidence = {
      covered: sum / mass,
      asked: (byEntryAsked.get(entry) ?? 0) / mass,
      wording: wordingShare.get(entry) ?? 0,
      strange: strange / mass,
      matched: matched.get(entry) ?? 0,
      lead: 0,
      fresh: freshMass === 0 ? 0 : (byEntryFresh.get(entry) ?? 0) / freshMass,
    };
    return { entry, rank: 0.6 * evidence.covered + 0.15 * evidence.asked + 0.25 * evidence.wording, evidence };
  });
  candidates.sort((a, b) => b.rank - a.rank || a.entry - b.entry);
  const best = candidates.slice(0, MAX_CANDIDATES);
  for (const candidate of best) {
    const rival = best.find((other) => other !== candidate);
    candidate.evidence.lead = candidate.rank - (rival?.rank ?? 0);
  }
  return best;
};
