import { conceptOf, misspeltConcept, relatedTo } from './concepts.ts';
import { conceptKey, type KnowledgeGroup } from './knowledge-index.ts';
import type { Term } from './terms.ts';

const CONCEPT_LIKENESS = 0.85;
const RELATED_LIKENESS = 0.45;
const TYPO_LIKENESS = 0.85;
const SECOND_TYPO_LIKENESS = 0.7;
const PREFIX_LIKENESS = 0.7;
const SHORTEST_FUZZY = 4;
const TWO_TYPOS_FROM = 8;

/** Which keys of the knowledge a term may stand for, and how surely. */
export const expandTerm = (term: Term, { postings, spellings, stems }: KnowledgeGroup): Map<string, number> => {
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
  const concept = misspeltConcept(term.word);
  if (concept !== null && postings.has(conceptKey(concept))) {
    found.set(conceptKey(concept), CONCEPT_LIKENESS * TYPO_LIKENESS);
  } else if (term.stem.length > SHORTEST_FUZZY) {
    for (const [longer] of stems.atPrefix(term.stem)) found.set(longer, PREFIX_LIKENESS);
  }
  return found;
};
