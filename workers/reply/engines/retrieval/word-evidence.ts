import type { KnowledgeEntry } from '../engine.ts';
import type { KnowledgeGroup, KnowledgeIndex } from './knowledge-index.ts';
import { type Evidence, rankEntries } from './search.ts';
import { readTerms } from './terms.ts';

/** What the words say for an entry: with the concepts they stand for, and as they stand. */
export type WordEvidence = { entry: KnowledgeEntry; group: KnowledgeGroup; known: Evidence; literal: Evidence };

export const NO_EVIDENCE: Evidence = { covered: 0, asked: 0, wording: 0, strange: 1, matched: 0, lead: 0, fresh: 0 };

/** The likeliest entries of each language by words alone. */
export const readWords = (message: string, index: KnowledgeIndex, spoken: string): Map<string, WordEvidence> => {
  const found = new Map<string, WordEvidence>();
  for (const group of index.groups) {
    const terms = readTerms(message, group.language, spoken);
    const literal = terms.map((term) => ({ ...term, concept: null }));
    for (const [kind, read] of [['known', terms] as const, ['literal', literal] as const]) {
      for (const { entry: number, evidence } of rankEntries(read, group)) {
        const entry = group.entries[number];
        if (!entry) continue;
        const before = found.get(entry.entryId) ?? { entry, group, known: NO_EVIDENCE, literal: NO_EVIDENCE };
        found.set(entry.entryId, { ...before, [kind]: evidence });
      }
    }
  }
  return found;
};
