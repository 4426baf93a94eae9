import { type Calibration, ENTRY_WEIGHTS } from '../calibration.ts';
import { inTurns, type LoopShare } from '../embedder/token-vectors.ts';
import { fold, foldBeginning, words } from '../fold.ts';
import { type SemanticSearch, type Similarities, probability, rankByScore, standingIn } from '../similarity.ts';
import {
  anEffort,
  type Candidate,
  candidatesOf,
  collectLexicalEvidence,
  type EntryEvidence,
  expandTerm,
  type Hit,
  inLanguageOrder,
  MAX_HITS,
  type Question,
  rankEntries,
  type TermsByGroup,
  toHits,
} from './search.ts';
import { isOfLanguage, type KnowledgeIndex } from './knowledge-index.ts';
import { readTerms, type Term, PLACE, placesOf } from './terms.ts';

/** A message before the current one. A reply's `why` is what `decideReply` gave with it. */
export type EarlierMessage = { role: string; content: string; why?: unknown };
/** Reads the latest messages before the current one, oldest first. Most messages need none. */
export type ReadEarlier = (messages: number) => Promise<EarlierMessage[]>;

/** Kind and entries of an assistant's reply, read from its `why`. */
type LastReply = { kind: string; entryIds: string[] };

/** How many earlier messages are searched for the subject. */
const LOOK_BACK = 6;
/** Kinds of replies that do not change the subject. */
const ASIDES = new Set(['greeting', 'thanks', 'yes', 'no', 'contact', 'whoAmI']);

/** Kinds of replies that give an entry's answer. */
const ANSWERS = new Set(['answer', 'hedge']);

const readWhy = (why: unknown): LastReply | null => {
  if (typeof why !== 'object' || why === null) return null;
  const { kind, hits } = why as { kind?: unknown; hits?: unknown };
  const entryIds = (Array.isArray(hits) ? hits : []).flatMap((hit: unknown) => {
    const entryId = typeof hit === 'object' && hit !== null ? (hit as { entryId?: unknown }).entryId : null;
    return typeof entryId === 'string' ? [entryId] : [];
  });
  return { kind: typeof kind === 'string' ? kind : 'answer', entryIds };
};

/** The assistant's last reply, or null. */
export const findLastReply = async (history: ReadEarlier): Promise<LastReply | null> => {
  const last = (await history(LOOK_BACK)).findLast(({ role }) => role === 'assistant');
  return last ? readWhy(last.why) : null;
};

/** The minimum and maximum number of words of a follow-up. A single word counts as a new subject. */
const FOLLOW_UP_WORDS = { least: 2, most: 8 };

/**
 * The visitor's previous question. Null if that question was not answered, or if the current message is too short or
 * too long for a follow-up.
 */
const findPreviousQuestion = async (message: string, history: ReadEarlier): Promise<string | null> => {
  const length = words(fold(message.slice(0, 200))).length;
  if (length < FOLLOW_UP_WORDS.least || length > FOLLOW_UP_WORDS.most) return null;
  const earlier = await history(LOOK_BACK);
  const answered = earlier.findLastIndex(
    ({ role, why }) => role === 'assistant' && !ASIDES.has(readWhy(why)?.kind ?? ''),
  );
  if (!ANSWERS.has(readWhy(earlier[answered]?.why)?.kind ?? '')) return null;
  return earlier.slice(0, answered).findLast(({ role }) => role === 'user')?.content ?? null;
};

/** The id of the entry that was answered last. Small talk after that answer is ignored. */
const subjectOf = (earlier: EarlierMessage[]): string | null => {
  for (const message of earlier.slice(-LOOK_BACK).toReversed()) {
    const word = message.role === 'assistant' ? readWhy(message.why) : null;
    if (!word || ASIDES.has(word.kind)) continue;
    return ANSWERS.has(word.kind) ? (word.entryIds[0] ?? null) : null;
  }
  return null;
};

/** Words that begin a follow-up, as in "and on Sundays?". */
const CUES = new Set(
  'and what_about how_about also or but then und auch oder was_ist_mit wie_ist_es et aussi ou y tambien o que_tal e anche ed invece en ook och aussi og ja a_co a oraz i также и а і а_що ve peki ya ayrica kaj in in_kaj si dar es och_sa at och_om og_hva og_hvad και y_que e_se e_per und_wie und_was dan bagaimana_dengan con_y_si con và còn thế_còn'
    .split(' ')
    .map((cue) => fold(cue.replaceAll('_', ' '))),
);
const CUE_PATTERN = /^(?:那|那么|那麼|还有|還有|じゃあ|では|それで|그럼|그리고|แล้ว|و(?!\p{L}{4})|और|ו)/u;

const startsWithCue = (message: string): boolean => {
  const folded = foldBeginning(message, 200).trim();
  const tokens = words(folded);
  return [1, 2, 3].some((length) => CUES.has(tokens.slice(0, length).join(' '))) || CUE_PATTERN.test(folded);
};

const SHORT = 3;
const SUBJECT_SHARE = 0.5;
const MIN_NEW_SHARE = 0.5;
const CUED_CONFIDENCE = 0.6;
const UNCUED_CONFIDENCE = 0.5;
const NEW_CONFIDENCE = 0.35;

function* searchWithSubject({ message, visitorLanguage, index }: Question, subject: string): Generator<void, Hit[]> {
  const cued = startsWithCue(message);
  for (const group of inLanguageOrder(index, visitorLanguage)) {
    const previous = group.entries.find(({ entryId }) => entryId === subject);
    if (!previous) continue;
    const fresh = readTerms(message, group.language, visitorLanguage);
    if (fresh.length === 0 || fresh.length > (cued ? 2 * SHORT : SHORT)) return [];
    const known = new Set(fresh.map(({ stem }) => stem));
    const subjectTerms: Term[] = [];
    for (const wording of [previous.question, ...previous.variants]) {
      const terms = readTerms(wording, group.language);
      subjectTerms.push(...terms.filter(({ stem }) => !known.has(stem) && known.add(stem)));
      yield;
    }
    const candidates = yield* rankEntries(fresh, group, { subject: { terms: subjectTerms, share: SUBJECT_SHARE } });
    const found = candidates.filter(({ evidence }) => evidence.ownCoverage >= MIN_NEW_SHARE);
    const base = cued ? CUED_CONFIDENCE : UNCUED_CONFIDENCE;
    return toHits(found, group, ({ evidence }) => Math.min(0.95, base + NEW_CONFIDENCE * evidence.ownCoverage));
  }
  return [];
}

/**
 * Lexical search for a follow-up. The terms of the last answered entry are added with half the weight. Most terms of
 * the message itself must be found.
 */
export const searchFollowUp = async (question: Question, history: ReadEarlier, share: LoopShare): Promise<Hit[]> => {
  const subject = subjectOf(await history(LOOK_BACK));
  return subject === null ? [] : inTurns(searchWithSubject(question, subject), share);
};

/** How much nearer the reduced message is to an entry's questions and to its answer than the whole message. */
export type CounterEvidence = { question: number; answer: number };

type RankedCandidate = Candidate & { score: number; confidence: number };

/** The candidates with their scores, the best first. */
export const rankCandidates = (candidates: Candidate[], { score }: Calibration = ENTRY_WEIGHTS) =>
  rankByScore(candidates, score);

/** Stands beside a candidate without others: the runner-up of five entries that do not answer scores about 0. */
const RIVAL = { score: 0 };

/**
 * The features from which the confidence of the candidate at `position` is computed: a constant 1 for the bias, the
 * lead over the best rival, the share among all candidates, and the candidate's own features.
 */
export const featuresInRanking = (ranked: readonly (Candidate & { score: number })[], position: number): number[] => {
  const { lead, share } = standingIn(ranked.length === 1 ? [...ranked, RIVAL] : ranked, position);
  return [1, lead ?? 0, share, ...(ranked[position]?.confidenceFeatures ?? [])];
};

/** Evidence for and against an entry has a weight each: as the positive and as the negative part of the change. */
export const adjustmentFeatures = (confidence: number, { question, answer }: CounterEvidence): number[] => {
  const change = question + answer;
  return [1, Math.log(confidence / (1 - confidence)), Math.max(0, change), Math.min(0, change)];
};

/** Adjusts a confidence by counter-evidence. The result can be higher or lower than before. */
export const adjustConfidence = (
  confidence: number,
  counterEvidence: CounterEvidence,
  calibration: Calibration = ENTRY_WEIGHTS,
): number => probability(adjustmentFeatures(confidence, counterEvidence), calibration.counterEvidence);

/** Ranks the candidates by words and vectors together. The confidence is the probability that the entry is the answer. */
const rankWithConfidence = (candidates: Candidate[], calibration: Calibration = ENTRY_WEIGHTS): RankedCandidate[] => {
  const ranked = rankCandidates(candidates, calibration);
  return ranked.map((one, position) => ({
    ...one,
    confidence: probability(featuresInRanking(ranked, position), calibration.confidence),
  }));
};

const LEAST_WORDS = 2;
/** Cosine differences are small. This factor scales them to about 1, like the factor in `search.ts`. */
const SCALE = 20;

/** The terms that the entry does not contain. Words that are in too many places are in this entry too. */
function* unknownTerms(terms: Term[], { group, entry }: Candidate): Generator<void, Term[]> {
  const number = group.entries.indexOf(entry);
  const effort = anEffort();
  const unknown: Term[] = [];
  for (const term of terms) {
    const keys = yield* expandTerm({ ...term, concept: null }, group, effort);
    const isIn = [...keys.keys()].some((key) => {
      const places = placesOf(group.words, key);
      effort.places -= places.length;
      return effort.places < 0 || places.some((place) => group.entryOf[place >>> PLACE.bits] === number);
    });
    if (!isIn) unknown.push(term);
    yield;
  }
  return unknown;
}

/**
 * The message without the words that the entry does not contain. Null if no word is removed, if too few words remain,
 * or if the entry is in another language.
 */
export function* withoutUnknownWords(
  { message, visitorLanguage }: Question,
  candidate: Candidate,
): Generator<void, string | null> {
  if (!isOfLanguage(candidate.group, visitorLanguage)) return null;
  const terms = readTerms(message, candidate.group.language, visitorLanguage);
  const unknown = yield* unknownTerms(terms, candidate);
  const unknownWords = new Set(unknown.flatMap(({ word }) => word.split(' ')));
  if (unknownWords.size === 0) return null;
  const words = message.split(/\s+/).filter(Boolean);
  const rest = words.filter((word) => !unknownWords.has(fold(word).replace(/[^\p{L}\p{M}\p{N}]/gu, '')));
  return rest.length < LEAST_WORDS || rest.length === words.length ? null : rest.join(' ');
}

/**
 * Compares the entry's similarity to the full message with its similarity to the reduced message. If the reduced
 * message is more similar, that is evidence against the entry: an entry on renewing books does not contain "passport",
 * and is more similar to "how do I renew my" than to the full question. If it is less similar, the entry probably says
 * the same in other words.
 */
export const counterEvidenceOf = (
  entryId: string,
  full: Similarities,
  reduced: Similarities,
): CounterEvidence | null => {
  const [before, after] = [full, reduced].map(({ entries }) => entries.find((near) => near.entryId === entryId));
  if (!before || !after) return null;
  return {
    question: SCALE * (after.question - before.question),
    answer: SCALE * ((after.answer ?? after.question) - (before.answer ?? before.question)),
  };
};

type HybridQuery = {
  message: string;
  /** The message without contact details. */
  question: string;
  visitorLanguage: string;
  index: KnowledgeIndex;
  history: ReadEarlier;
  semanticSearch: SemanticSearch;
  /** The entry that words alone would answer with. Null if there is none. */
  byWords: string | null;
  /** The terms of the question that lexical search has read. */
  known: TermsByGroup;
  share: LoopShare;
};
type Found = { ranked: RankedCandidate[]; similarities: Similarities };

/** Counter-evidence is measured only for a confidence in this range, because outside it cannot change the reply. */
const CHECKED_CONFIDENCE = { from: 0.15, to: 0.95 };

const searchMessage = async (
  { semanticSearch, question, visitorLanguage, index, share }: HybridQuery,
  lexical: ReadonlyMap<string, EntryEvidence>,
): Promise<Found | null> => {
  const query: Question = { message: question, visitorLanguage, index };
  const similarities = await semanticSearch(question, new Set(lexical.keys()));
  if (!similarities) return null;
  const [first, ...others] = rankWithConfidence(candidatesOf(query, lexical, similarities), similarities.weights);
  if (!first) return { ranked: [], similarities };
  const { from, to } = CHECKED_CONFIDENCE;
  const isChecked = first.confidence >= from && first.confidence <= to;
  const reducedMessage = isChecked ? await inTurns(withoutUnknownWords(query, first), share) : null;
  const reduced =
    reducedMessage === null
      ? null
      : await semanticSearch(reducedMessage, new Set([first.entry.entryId]), { includedOnly: true });
  const counterEvidence = reduced ? counterEvidenceOf(first.entry.entryId, similarities, reduced) : null;
  const best = counterEvidence
    ? { ...first, confidence: adjustConfidence(first.confidence, counterEvidence, similarities.weights) }
    : first;
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
  const { semanticSearch, index, visitorLanguage, share } = query;
  const message = `${previous} ${query.question}`;
  const lexical = await inTurns(collectLexicalEvidence(message, index, visitorLanguage), share);
  const together = await semanticSearch(message, new Set(lexical.keys()));
  const candidates = together ? candidatesOf({ message, index, visitorLanguage }, lexical, together) : [];
  const [first, ...others] = rankWithConfidence(candidates, together?.weights);
  if (!together || !first) return [];
  const alone = await semanticSearch(previous, new Set([first.entry.entryId]), { includedOnly: true });
  const drop = (alone && counterEvidenceOf(first.entry.entryId, together, alone))?.answer ?? Number.POSITIVE_INFINITY;
  const { maxDrop, factor } = FOLLOW_UP_LIMITS[isNew ? 'unknown' : 'known'];
  return drop > maxDrop ? [] : [{ ...first, confidence: first.confidence * factor }, ...others];
};

/**
 * The most likely entries by words and vectors. Null if the model gave no vector in time, or if the entry that words would
 * answer with has none yet, because without one it would be ranked as unrelated.
 */
export const searchHybrid = async (query: HybridQuery): Promise<Hit[] | null> => {
  const { question, index, visitorLanguage, known, share } = query;
  const lexical = await inTurns(collectLexicalEvidence(question, index, visitorLanguage, known), share);
  const previous = await findPreviousQuestion(query.message, query.history);
  const [alone, withPrevious] = await Promise.all([
    searchMessage(query, lexical),
    previous === null ? [] : searchWithPrevious(query, previous, hasNewWords(lexical)),
  ]);
  if (!alone) return null;
  const { byWords } = query;
  const isMissing = byWords !== null && !alone.similarities.entries.some(({ entryId }) => entryId === byWords);
  if (isMissing && lexical.has(byWords)) return null;
  const isFollowUp = (withPrevious[0]?.confidence ?? 0) > (alone.ranked[0]?.confidence ?? 0);
  return (isFollowUp ? withPrevious : alone.ranked).slice(0, MAX_HITS);
};
