import { lexicalConfidence } from './candidate.ts';
import type { IndexedEntry, KnowledgeGroup, KnowledgeIndex } from './knowledge-index.ts';
import { type LexicalCandidate, searchGroup } from './search.ts';

/** An entry that may be the answer, with the probability that it is. */
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

const MAX_HITS = 3;
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
