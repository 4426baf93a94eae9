/**
 * Text in, decision out. Index the entries of an assistant (`indexEntries`), then ask what to reply to a message
 * (`decideReply`). With an embedder (`openEmbedder`) and stored vectors (`measureSimilarity`), it also searches by
 * meaning. `@parley/understanding/text` has what every process needs.
 */
import { fold, words } from './fold.ts';
import { decideLanguage } from './language.ts';
import { baseLanguage, LEXICON, type SmallTalk } from './lexicon.ts';
import { type Hit, searchLexical } from './retrieval/candidate.ts';
import { findContactDetails, withoutContactDetails } from './retrieval/contact-details.ts';
import { findLastReply, type ReadEarlier, searchFollowUp } from './retrieval/follow-up.ts';
import { asksForHuman, asksWhoThisIs } from './retrieval/human-request.ts';
import { searchHybrid } from './retrieval/hybrid-search.ts';
import type { IndexedEntry, KnowledgeIndex } from './retrieval/knowledge-index.ts';
import type { SemanticSearch } from './similarity.ts';

export {
  type CountEmbedding,
  type Embedder,
  type EmbedderLog,
  localModel,
  openEmbedder,
  unavailableEmbedder,
} from './embedder/embedder.ts';
export {
  type ModelBackend,
  ModelError,
  normalised,
  type OpenModel,
  type SharedVectors,
  TextsRefused,
} from './embedder/backend.ts';
export { findContactDetails } from './retrieval/contact-details.ts';
export type { EarlierMessage, ReadEarlier } from './retrieval/follow-up.ts';
export {
  countWordings,
  type IndexedEntry,
  indexEntries,
  indexInSteps,
  type Knowledge,
  type KnowledgeIndex,
} from './retrieval/knowledge-index.ts';
export {
  measureSimilarity,
  scan,
  type SemanticSearch,
  type Similarities,
  type SimilarityOptions,
  type VectorEntry,
  type VectorHit,
} from './similarity.ts';

/** How sure an assistant must be before it answers. */
export type Answering = 'careful' | 'balanced' | 'direct';

/** A visitor's message, and what the decision on it may use. */
export type Inquiry<Known extends IndexedEntry = IndexedEntry> = {
  /** The visitor's text, exactly as sent. */
  message: string;
  /** BCP 47 tag of the visitor's language. */
  language: string;
  /** The index of the knowledge. Null if there is none. */
  index: KnowledgeIndex<Known> | null;
  answering: Answering;
  /** The least confidence for a sure answer. Null: `answering` decides. */
  threshold: number | null;
  history: ReadEarlier;
  /** True if the message says that the hedged answer before it was not meant. */
  isRejection?: boolean;
  /** Is called only if the words do not decide. Without it, the words decide alone. */
  semanticSearch?: SemanticSearch | undefined;
};

/** How the entries were found. `words only`: the model was too busy, too slow or not there, so the words decided. */
export type FoundBy = 'wording' | 'words' | 'words only' | 'both';

/** Why a decision was made, as compact JSON without text of the visitor. A later decision reads it in the history. */
export type Explanation = {
  kind: ReplyDecision['kind'];
  /** Language of the reply. */
  language: string;
  /** Missing if nothing was found, unless for lack of the model. */
  by?: FoundBy;
  /** The best entries. `score` is the confidence; a hybrid search adds `words` and `meaning`, the cosine. */
  hits: { entryId: string; score: number; words?: number; meaning?: number }[];
  /** True if the visitor said that the hedged answer before this reply was not meant. */
  rejected?: true;
  threshold: number;
  ms: number;
};

/** What to reply. `confidence` is the probability, from 0 to 1, that the first entry is the answer. */
export type ReplyDecision<Known extends IndexedEntry = IndexedEntry> = { why: Explanation } & (
  | {
      kind: 'answer';
      entry: Known;
      confidence: number;
      /** BCP 47 tag of the answer. `isForeign` means that the reply must say so: the visitor wrote in another language. */
      language: string;
      isForeign: boolean;
    }
  /** Probably the answer. The visitor may choose one of the other entries instead. */
  | { kind: 'hedge'; entry: Known; others: Known[]; confidence: number; language: string; isForeign: boolean }
  /** The visitor chooses between the questions of these entries. A long shot also offers a person. */
  | { kind: 'askBack'; entries: Known[]; confidence: number; isLongShot: boolean }
  /** No entry is likely enough. */
  | { kind: 'unsure'; confidence: number }
  /** A request for a person, contact details, "Are you a robot?", small talk, or a question although there is no entry. */
  | { kind: 'human' | 'contact' | 'whoAmI' | 'noKnowledge' | SmallTalk }
);

/**
 * The least confidence for a sure answer: after lexical search, and after hybrid search. Fitted on the `--tune` half of
 * each evaluation set, so that a balanced assistant is sure of a wrong answer for at most 3 % of the questions.
 */
const THRESHOLDS: Readonly<Record<Answering, { words: number; both: number }>> = {
  careful: { words: 0.9, both: 0.85 },
  balanced: { words: 0.8, both: 0.74 },
  direct: { words: 0.7, both: 0.6 },
};
/** The least confidence for a hedged answer, as a share of the threshold. */
const HEDGE_SHARE = { words: 0.75, both: 0.55 };
/** The least confidence for offering questions, as a share of the threshold. Below it, no question is plausible. */
const OFFER_SHARE = { words: 0.5, both: 0.24 };
/** Each offered question is at least this likely. Only hybrid search knows how likely the others are. */
const PLAUSIBLE = 0.02;
/**
 * If the confidence is below this share of the threshold, the offered questions come with a button to talk to a person.
 */
const LONG_SHOT_SHARE = 0.5;
/** If several hits differ by less than this in score, the visitor chooses between their questions. */
const TIE_MARGIN = 0.1;
/** After lexical search, a question is offered only if its hit has at least this share of the best score. */
const OFFER_SCORE_SHARE = 0.6;

/** The best hit and those within the tie margin. */
const nearTies = (hits: Hit[]): Hit[] => hits.filter(({ score }) => (hits[0]?.score ?? 0) - score < TIE_MARGIN);

type Context<Known extends IndexedEntry> = {
  inquiry: Inquiry<Known>;
  threshold: number;
  startedAt: number;
  hits: Hit[];
  by: FoundBy;
};

const rounded = (value: number, digits: number): number => Number(value.toFixed(digits));

const explain = (
  { inquiry, threshold, startedAt, hits, by }: Context<IndexedEntry>,
  kind: ReplyDecision['kind'],
  language = inquiry.language,
): Explanation => ({
  kind,
  language,
  ...((hits.length > 0 || by === 'words only') && { by }),
  hits: hits.map(({ entry, confidence, words: wordsAlone, cosine }) => ({
    entryId: entry.entryId,
    score: rounded(confidence, 2),
    ...(wordsAlone !== undefined && { words: rounded(wordsAlone, 2) }),
    ...(cosine !== undefined && { meaning: rounded(cosine, 3) }),
  })),
  threshold,
  ms: rounded(performance.now() - startedAt, 3),
});

/** True if the answer is in another language than the visitor's. False if the visitor wrote in the answer's language. */
const isForeign = (answerLanguage: string, { message, language }: Inquiry): boolean => {
  const base = baseLanguage(answerLanguage);
  if (base === baseLanguage(language)) return false;
  const written = decideLanguage({ message, allowed: [answerLanguage, language] });
  return !(written.decided && baseLanguage(written.language) === base);
};

/** The entries of hits, as the index was given them. */
const entriesOf = <Known extends IndexedEntry>({ index }: Inquiry<Known>, hits: Hit[]): Known[] =>
  hits.flatMap(({ entry }) => index?.entriesById.get(entry.entryId)?.entry ?? []);

const unsure = <Known extends IndexedEntry>(context: Context<Known>): ReplyDecision<Known> => ({
  kind: 'unsure',
  confidence: context.hits[0]?.confidence ?? 0,
  why: explain(context, 'unsure'),
});

/** The visitor rejected a hedged answer, and is asked for other words. */
const rejected = <Known extends IndexedEntry>(context: Context<Known>): ReplyDecision<Known> => {
  const decision = unsure({ ...context, hits: [] });
  return { ...decision, why: { ...decision.why, rejected: true } };
};

/** Gives the entry of the hit: as the answer, or hedged, with other hits for the visitor to choose from. */
const answer = <Known extends IndexedEntry>(
  context: Context<Known>,
  hit: Hit,
  others: Hit[] | null = null,
): ReplyDecision<Known> => {
  const { inquiry } = context;
  const [entry] = entriesOf(inquiry, [hit]);
  if (!entry) return unsure(context);
  const language = entry.language ?? hit.group.language;
  const given = { entry, confidence: hit.confidence, language, isForeign: isForeign(language, inquiry) };
  return others === null
    ? { ...given, kind: 'answer', why: explain(context, 'answer', language) }
    : { ...given, kind: 'hedge', others: entriesOf(inquiry, others), why: explain(context, 'hedge', language) };
};

const askBack = <Known extends IndexedEntry>(
  context: Context<Known>,
  hits: Hit[],
  isLongShot = false,
): ReplyDecision<Known> => ({
  kind: 'askBack',
  entries: entriesOf(context.inquiry, hits),
  confidence: hits[0]?.confidence ?? 0,
  isLongShot,
  why: explain(context, 'askBack'),
});

const plain = <Known extends IndexedEntry>(
  context: Context<Known>,
  kind: Exclude<ReplyDecision['kind'], 'answer' | 'hedge' | 'askBack' | 'unsure'>,
): ReplyDecision<Known> => ({ kind, why: explain(context, kind) });

/** Chooses between an answer, a hedged answer, several questions for the visitor to choose from, and an unsure reply. */
const choose = <Known extends IndexedEntry>(
  context: Context<Known>,
  hasContactDetails: boolean,
): ReplyDecision<Known> => {
  const { hits, threshold } = context;
  const [best] = hits;
  const isBoth = context.by === 'both';
  if (best && best.confidence >= threshold) {
    // After hybrid search, near ties are not checked, because the confidence already includes the lead over the other
    // hits.
    const close = best.confidence < 1 && !isBoth ? nearTies(hits) : [best];
    return close.length > 1 ? askBack(context, close) : answer(context, best);
  }
  if (hasContactDetails) return plain(context, 'contact');
  if (!best) return unsure(context);
  const by = isBoth ? 'both' : 'words';
  const plausible = hits.filter((hit) =>
    hit === best ? true : isBoth ? hit.confidence >= PLAUSIBLE : hit.score >= best.score * OFFER_SCORE_SHARE,
  );
  if (best.confidence >= threshold * HEDGE_SHARE[by] && (isBoth || nearTies(hits).length === 1)) {
    return answer(context, best, plausible.slice(1));
  }
  if (best.confidence >= threshold * OFFER_SHARE[by]) {
    return askBack(context, plausible, best.confidence < threshold * LONG_SHOT_SHARE);
  }
  return unsure(context);
};

const KINDS: readonly SmallTalk[] = ['goodbye', 'thanks', 'no', 'yes', 'greeting'];
const spaced = (text: string): string => words(fold(text)).join(' ');

/**
 * Maps a phrase to its kind in each language. If a phrase has different kinds in different languages, the visitor's
 * language decides.
 */
const phrases = new Map<string, Map<string, SmallTalk>>();
for (const [language, entry] of Object.entries(LEXICON)) {
  for (const kind of KINDS) {
    for (const phrase of entry[kind].split('|').map(spaced)) {
      const meanings = phrases.get(phrase) ?? new Map<string, SmallTalk>();
      if (!meanings.has(language)) meanings.set(language, kind);
      phrases.set(phrase, meanings);
    }
  }
}

const LONGEST_PHRASE = 4;
const MAX_WORDS = 8;

/** The kind of small talk that a message is. Null if the message is anything else. */
export const readSmallTalk = (message: string, language: string): SmallTalk | null => {
  if (message.length > 120) return null;
  const tokens = words(fold(message)).map((word) => word.replace(/(.)\1{2,}/gu, '$1'));
  if (tokens.length === 0 || tokens.length > MAX_WORDS) return null;
  const said = new Set<SmallTalk>();
  for (let at = 0; at < tokens.length; ) {
    let length = Math.min(LONGEST_PHRASE, tokens.length - at);
    let meanings: Map<string, SmallTalk> | undefined;
    for (; length > 0 && !meanings; length -= 1) meanings = phrases.get(tokens.slice(at, at + length).join(' '));
    const meaning = meanings?.get(language) ?? meanings?.values().next().value;
    if (!meaning) return null;
    said.add(meaning);
    at += length + 1;
  }
  return KINDS.find((kind) => said.has(kind)) ?? null;
};

/**
 * At or above this lexical confidence, the model is not asked. Lower limits gave wrong answers in domains outside the
 * tuning data.
 */
const SURE_BY_WORDS = 0.95;

/** An inquiry with the hits of the lexical search. */
type LexicalReading<Known extends IndexedEntry> = {
  context: Context<Known>;
  visitorLanguage: string;
  hasContactDetails: boolean;
  /** The message without contact details. */
  question: string;
  hits: Hit[];
};

const read = <Known extends IndexedEntry>(inquiry: Inquiry<Known>): LexicalReading<Known> => {
  const { message, index } = inquiry;
  const visitorLanguage = baseLanguage(inquiry.language);
  const threshold = inquiry.threshold ?? THRESHOLDS[inquiry.answering].words;
  const context: Context<Known> = { inquiry, threshold, startedAt: performance.now(), hits: [], by: 'words' };
  const hasContactDetails = findContactDetails(message) !== null;
  const question = hasContactDetails ? withoutContactDetails(message) : message;
  const hits = index ? searchLexical(question, index, visitorLanguage, threshold) : [];
  return { context, visitorLanguage, hasContactDetails, question, hits };
};

/** True if word matches alone decide. Without a model, any hit at the threshold is enough. */
const isSure = ({ hits, context: { inquiry, threshold } }: LexicalReading<IndexedEntry>): boolean =>
  (hits[0]?.confidence ?? 0) >= (inquiry.semanticSearch ? Math.max(threshold, SURE_BY_WORDS) : threshold);

const decideSmallTalk = async <Known extends IndexedEntry>(
  context: Context<Known>,
  smallTalk: SmallTalk,
): Promise<ReplyDecision<Known>> => {
  const { history, index } = context.inquiry;
  const last = smallTalk === 'yes' || smallTalk === 'no' ? await findLastReply(history) : null;
  if (smallTalk === 'no') return last?.kind === 'hedge' ? rejected(context) : plain(context, smallTalk);
  if (last?.kind === 'unsure') return plain(context, 'human');
  if (last?.kind === 'askBack') {
    const meant = index?.entriesById.get(last.entryIds[0] ?? '');
    if (meant) {
      const hit = { ...meant, confidence: 1, score: 1 };
      return answer({ ...context, hits: [hit] }, hit);
    }
  }
  return plain(context, smallTalk);
};

/**
 * Decides what to reply to a message: by lexical search first, and by hybrid search if the lexical confidence is too
 * low.
 */
export const decideReply = async <Known extends IndexedEntry>(
  inquiry: Inquiry<Known>,
): Promise<ReplyDecision<Known>> => {
  const reading = read(inquiry);
  const { context, visitorLanguage, hasContactDetails, question, hits } = reading;
  const { message, index, history, semanticSearch } = inquiry;
  // A message that repeats a stored wording gets its answer even if the message is small talk, because the author
  // wrote an answer for it.
  if (hits[0]?.confidence === 1) return answer({ ...context, hits, by: 'wording' }, hits[0]);

  if (inquiry.isRejection) return rejected(context);
  if (asksForHuman(message)) return plain(context, 'human');
  if (asksWhoThisIs(message)) return plain(context, 'whoAmI');
  const smallTalk = readSmallTalk(message, visitorLanguage);
  if (smallTalk) return decideSmallTalk(context, smallTalk);
  if (!index) return plain(context, hasContactDetails ? 'contact' : 'noKnowledge');

  const sure = isSure(reading);
  if (!sure && semanticSearch) {
    const found = await searchHybrid({ message, question, visitorLanguage, index, history, semanticSearch });
    const threshold = inquiry.threshold ?? THRESHOLDS[inquiry.answering].both;
    if (found) return choose({ ...context, threshold, hits: found, by: 'both' }, hasContactDetails);
    context.by = 'words only';
  }
  const continued = sure ? [] : await searchFollowUp(inquiry, index, visitorLanguage);
  const better = (continued[0]?.confidence ?? 0) > (hits[0]?.confidence ?? 0);
  return choose({ ...context, hits: better ? continued : hits }, hasContactDetails);
};

/** True if `decideReply` needs no model for this inquiry. */
export const decidesByWords = (inquiry: Inquiry): boolean => {
  if (!inquiry.semanticSearch) return true;
  const reading = read(inquiry);
  const { message } = inquiry;
  return (
    inquiry.isRejection === true ||
    isSure(reading) ||
    asksForHuman(message) ||
    asksWhoThisIs(message) ||
    readSmallTalk(message, reading.visitorLanguage) !== null
  );
};
