import type { KnowledgeEntry } from '../engine.ts';
import type { KnowledgeGroup, KnowledgeIndex } from './knowledge-index.ts';
import { type LexicalEvidence, rankEntries } from './search.ts';
import { readTerms } from './terms.ts';

/**
 * The lexical evidence for an entry: once counting words with the same concept as equal (`withConcepts`), and once
 * counting only the same words (`literal`).
 */
export type EntryEvidence = {
  entry: KnowledgeEntry;
  group: KnowledgeGroup;
  withConcepts: LexicalEvidence;
  literal: LexicalEvidence;
};

export const NO_EVIDENCE: LexicalEvidence = {
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
