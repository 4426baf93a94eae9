import { conceptOf, misspeltConcept, relatedTo } from './concepts.ts';
import { conceptKey, type KnowledgeGroup } from './knowledge-index.ts';
import type { Term } from './terms.ts';

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
