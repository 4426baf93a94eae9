import { conceptKey, type KnowledgeGroup, plain } from './knowledge-index.ts';
import { readTerms, type Term } from './terms.ts';

export type Hit = { entry: number; score: number };
export type Found = { hits: Hit[]; group: KnowledgeGroup; terms: Term[] };

const CONCEPT_LIKENESS = 0.8;
const TYPO_LIKENESS = 0.8;
const PREFIX_LIKENESS = 0.7;
const ANSWER_WEIGHT = 0.5;

/** Which terms of the knowledge a visitor's term may stand for, and how surely. */
const expand = (term: Term, group: KnowledgeGroup): Map<number, number> => {
  const found = new Map<number, number>();
  const add = (number: number | undefined, likeness: number): void => {
    if (number !== undefined && likeness > (found.get(number) ?? 0)) found.set(number, likeness);
  };
  add(group.numberOf.get(term.stem), 1);
  add(group.numberOf.get(group.spellings.get(term.word) ?? ''), 1);
  if (term.concept !== null) add(group.numberOf.get(conceptKey(term.concept)), CONCEPT_LIKENESS);
  if (found.size > 0 || term.stem.length < 4 || term.concept !== null) return found;
  const edits = term.stem.length >= 8 ? 2 : 1;
  for (const [, [number, distance]] of group.vocabulary.fuzzyGet(term.stem, edits)) {
    add(number, TYPO_LIKENESS - 0.1 * (distance - 1));
  }
  if (term.stem.length >= 5)
    for (const [, number] of group.vocabulary.atPrefix(term.stem)) add(number, PREFIX_LIKENESS);
  return found;
};

export const searchGroup = (message: string, group: KnowledgeGroup): Found => {
  const terms = readTerms(message, group.language);
  const exact = group.exact.get(plain(message));
  if (exact !== undefined) return { hits: [{ entry: exact, score: 1 }], group, terms };

  let mass = 0;
  const asked = new Map<number, number>();
  const answered = new Map<number, number>();
  const covered = new Map<number, number>();
  for (const term of terms) {
    const expansions = expand(term, group);
    let weight = 0;
    for (const number of expansions.keys()) weight = Math.max(weight, group.idf[number] ?? 0);
    if (expansions.size === 0) weight = group.maxIdf;
    mass += weight;
    const inWordings = new Map<number, number>();
    const inAnswers = new Map<number, number>();
    for (const [number, likeness] of expansions) {
      for (const wording of group.inWordings[number] ?? []) {
        inWordings.set(wording, Math.max(likeness, inWordings.get(wording) ?? 0));
        covered.set(wording, (covered.get(wording) ?? 0) + likeness * (group.idf[number] ?? 0));
      }
      for (const entry of group.inAnswers[number] ?? [])
        inAnswers.set(entry, Math.max(likeness, inAnswers.get(entry) ?? 0));
    }
    for (const [wording, likeness] of inWordings) asked.set(wording, (asked.get(wording) ?? 0) + likeness * weight);
    for (const [entry, likeness] of inAnswers) answered.set(entry, (answered.get(entry) ?? 0) + likeness * weight);
  }
  if (mass === 0) return { hits: [], group, terms };

  const best = new Map<number, number>();
  for (const [at, matched] of asked) {
    const wording = group.wordings[at];
    if (!wording) continue;
    const ofMessage = matched / mass;
    const ofWording = wording.mass === 0 ? 0 : Math.min(1, (covered.get(at) ?? 0) / wording.mass);
    const inAnswer = ((answered.get(wording.entry) ?? 0) / mass) * ANSWER_WEIGHT;
    const score = Math.min(1, 0.7 * Math.max(ofMessage, (ofMessage + inAnswer) / 1.2) + 0.3 * ofWording);
    if (score > (best.get(wording.entry) ?? 0)) best.set(wording.entry, score);
  }
  const hits = [...best]
    .map(([entry, score]) => ({ entry, score }))
    .sort((a, b) => b.score - a.score || a.entry - b.entry);
  return { hits: hits.slice(0, 3), group, terms };
};
