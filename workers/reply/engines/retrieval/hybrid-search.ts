import type { Similarities } from '../../vectors/similarity.ts';
import type { TurnContext } from '../engine.ts';
import { rankWithConfidence, adjustConfidence, type RankedCandidate } from './calibration.ts';
import { counterEvidenceOf, withoutUnknownWords } from './counter-evidence.ts';
import { candidatesOf, type Question } from './candidate.ts';
import type { Hit } from './lexical-search.ts';
import { findPreviousQuestion } from './follow-up.ts';
import type { KnowledgeIndex } from './knowledge-index.ts';
import { collectLexicalEvidence, type EntryEvidence } from './lexical-evidence.ts';

type HybridQuery = { turn: TurnContext; question: string; visitorLanguage: string; index: KnowledgeIndex };
type Found = { ranked: RankedCandidate[]; similarities: Similarities };

const MAX_HITS = 3;
/** Counter-evidence is measured only for a confidence in this range, because outside it cannot change the reply. */
const CHECKED_CONFIDENCE = { from: 0.35, to: 0.95 };

const searchMessage = async (
  { turn, visitorLanguage, index }: HybridQuery,
  message: string,
  lexical: ReadonlyMap<string, EntryEvidence> = collectLexicalEvidence(message, index, visitorLanguage),
): Promise<Found | null> => {
  const query: Question = { message, visitorLanguage, index };
  const similarities = await turn.semanticSearch?.(message, new Set(lexical.keys()));
  if (!similarities) return null;
  const [first, ...others] = rankWithConfidence(candidatesOf(query, lexical, similarities));
  if (!first) return { ranked: [], similarities };
  const { from, to } = CHECKED_CONFIDENCE;
  const isChecked = first.confidence >= from && first.confidence <= to;
  const reducedMessage = isChecked ? withoutUnknownWords(query, first) : null;
  const reduced =
    reducedMessage === null
      ? null
      : await turn.semanticSearch?.(reducedMessage, new Set([first.entry.entryId]), { includedOnly: true });
  const counterEvidence = reduced ? counterEvidenceOf(first.entry.entryId, similarities, reduced) : null;
  const best = counterEvidence ? { ...first, confidence: adjustConfidence(first.confidence, counterEvidence) } : first;
  return { ranked: [best, ...others], similarities };
};

/**
 * Limits for a follow-up, which is searched together with the previous question. The entry's similarity may be lower
 * for both questions together than for the previous question alone, but at most by `maxDrop`. A message with new words
 * ("and a climbing wall?") is probably not a follow-up. It therefore gets a smaller `maxDrop`, and its confidence is
 * multiplied by a smaller `factor`.
 */
const FOLLOW_UP_LIMITS = { known: { maxDrop: 0.3, factor: 1 }, unknown: { maxDrop: 0.1, factor: 0.65 } };
const UNKNOWN_SHARE = 0.5;

const hasNewWords = (lexical: ReadonlyMap<string, EntryEvidence>): boolean =>
  ![...lexical.values()].some(({ withConcepts }) => withConcepts.unknownShare < UNKNOWN_SHARE);

/** Searches for the message and the previous question together. */
const searchWithPrevious = async (query: HybridQuery, previous: string, isNew: boolean): Promise<Hit[]> => {
  const { turn, index, visitorLanguage } = query;
  const message = `${previous} ${query.question}`;
  const lexical = collectLexicalEvidence(message, index, visitorLanguage);
  const together = await turn.semanticSearch?.(message, new Set(lexical.keys()));
  const candidates = together ? candidatesOf({ message, index, visitorLanguage }, lexical, together) : [];
  const [first, ...others] = rankWithConfidence(candidates);
  if (!together || !first) return [];
  const alone = await turn.semanticSearch?.(previous, new Set([first.entry.entryId]), { includedOnly: true });
  const [, drop = Number.POSITIVE_INFINITY] = (alone && counterEvidenceOf(first.entry.entryId, together, alone)) ?? [];
  const { maxDrop, factor } = FOLLOW_UP_LIMITS[isNew ? 'unknown' : 'known'];
  return drop > maxDrop ? [] : [{ ...first, confidence: first.confidence * factor }, ...others];
};

/** The most likely entries by words and vectors. Null if the model gave no vector in time. */
export const searchHybrid = async (query: HybridQuery): Promise<Hit[] | null> => {
  const lexical = collectLexicalEvidence(query.question, query.index, query.visitorLanguage);
  const previous = await findPreviousQuestion(query.turn);
  const [alone, withPrevious] = await Promise.all([
    searchMessage(query, query.question, lexical),
    previous === null ? [] : searchWithPrevious(query, previous, hasNewWords(lexical)),
  ]);
  if (!alone) return null;
  const isFollowUp = (withPrevious[0]?.confidence ?? 0) > (alone.ranked[0]?.confidence ?? 0);
  return (isFollowUp ? withPrevious : alone.ranked).slice(0, MAX_HITS);
};
