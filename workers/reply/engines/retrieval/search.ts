import { expand } from './expand.ts';
import { type KnowledgeGroup, type Postings, plain, shareOf } from './knowledge-index.ts';
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

const ANSWER_SHARE = 0.6;
const MAX_CANDIDATES = 5;

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
  const { byWording, covered, asked, fresh, matched } = group.boards;
  const boards = [byWording, covered, asked, fresh, matched];
  for (const board of boards) board.clear();
  const mass = { all: 0, strange: 0, fresh: 0 };
  for (const [place, term] of [...own, ...(subject?.terms ?? [])].entries()) {
    const isOwn = place < own.length;
    const share = shareOf(term) * (isOwn ? 1 : (subject?.share ?? 0));
    const found: [Postings, number][] = [];
    for (const [key, likeness] of expand(term, group)) {
      const postings = group.postings.get(key);
      if (postings) found.push([postings, likeness]);
    }
    const weight =
      share * (found.length === 0 ? group.strangeWeight : Math.max(...found.map(([postings]) => postings.weight)));
    mass.all += weight;
    if (found.length === 0) mass.strange += weight;
    if (isOwn) mass.fresh += weight;
    for (const board of boards) board.nextTerm();
    for (const [postings, likeness] of found) {
      const inWording = likeness * weight;
      for (const wording of postings.wordings) byWording.count(wording, inWording);
      for (const entry of postings.askedBy) {
        covered.count(entry, inWording);
        asked.count(entry, inWording);
        matched.count(entry, share);
        if (isOwn) fresh.count(entry, weight);
      }
      for (const entry of postings.answers) {
        covered.count(entry, inWording * ANSWER_SHARE);
        matched.count(entry, share);
        if (isOwn) fresh.count(entry, weight);
      }
    }
  }
  return mass.all === 0 ? [] : bestOf(group, mass);
};

/** The few best entries; sorting thousands for them would cost more than finding them. */
const bestOf = (
  { boards, wordings }: KnowledgeGroup,
  mass: { all: number; strange: number; fresh: number },
): Candidate[] => {
  const { nearest } = boards;
  nearest.clear();
  nearest.nextTerm();
  for (const number of boards.byWording.touched) {
    const wording = wordings[number];
    if (wording && wording.mass > 0)
      nearest.count(wording.entry, Math.min(1, boards.byWording.of(number) / wording.mass));
  }
  const best: Candidate[] = [];
  for (const entry of boards.covered.touched) {
    const coveredShare = boards.covered.of(entry) / mass.all;
    const askedShare = boards.asked.of(entry) / mass.all;
    const wording = nearest.of(entry);
    const rank = 0.6 * coveredShare + 0.15 * askedShare + 0.25 * wording;
    const last = best.at(-1);
    const isBehind = last !== undefined && (rank < last.rank || (rank === last.rank && entry > last.entry));
    if (best.length === MAX_CANDIDATES && isBehind) continue;
    const evidence: Evidence = {
      covered: coveredShare,
      asked: askedShare,
      wording,
      strange: mass.strange / mass.all,
      matched: boards.matched.of(entry),
      lead: 0,
      fresh: mass.fresh === 0 ? 0 : boards.fresh.of(entry) / mass.fresh,
    };
    best.push({ entry, rank, evidence });
    best.sort((a, b) => b.rank - a.rank || a.entry - b.entry);
    best.length = Math.min(best.length, MAX_CANDIDATES);
  }
  for (const candidate of best) {
    const rival = best.find((other) => other !== candidate);
    candidate.evidence.lead = candidate.rank - (rival?.rank ?? 0);
  }
  return best;
};
