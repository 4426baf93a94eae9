/**
 * Text in, decision out. Index the entries of an assistant (`indexEntries`), then ask what to reply to a message
 * (`decideReply`). With an embedder (`openEmbedder`) and stored vectors (`measureSimilarity`), it also searches by
 * meaning. `@parley/understanding/text` has what every process needs.
 */
import { createLoopShare, inTurns, type LoopShare } from './embedder/token-vectors.ts';
import { baseLanguage, fold, LEXICON, type SmallTalk, words } from './fold.ts';
import { decideLanguage } from './language.ts';
import { type Hit, MAX_HITS, searchLexical, type TermsByGroup } from './retrieval/search.ts';
import {
  askedBesideContactDetails,
  asksForHuman,
  asksWhoThisIs,
  findContactDetails,
  withoutContactDetails,
} from './retrieval/human-request.ts';
import { findLastReply, type ReadEarlier, searchFollowUp, searchHybrid } from './retrieval/hybrid-search.ts';
import { type IndexedEntry, type KnowledgeIndex, normaliseWording } from './retrieval/knowledge-index.ts';
import type { Passage } from './retrieval/passage-parts.ts';
import {
  findPassages,
  type FoundPassage,
  type PassageEvidence,
  type PassageSearch,
} from './retrieval/passage-search.ts';
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
  type Priority,
  type SharedVectors,
  TextsRefused,
} from './embedder/backend.ts';
export { findContactDetails } from './retrieval/human-request.ts';
export type { EarlierMessage, ReadEarlier } from './retrieval/hybrid-search.ts';
export {
  countWordings,
  type IndexedEntry,
  indexEntries,
  indexInSteps,
  type Knowledge,
  type KnowledgeIndex,
} from './retrieval/knowledge-index.ts';
export { PassageIndex, type PassageIndexOptions, PassageIndexUpdate } from './retrieval/passage-index.ts';
export { type IndexedPassage, type Passage, passageEngine, passageText } from './retrieval/passage-parts.ts';
export type { FoundPassage, PassageSearch } from './retrieval/passage-search.ts';
export { inOneStep, rankByTokens, shareLoop, type TokenVectors } from './embedder/token-vectors.ts';
export {
  calibrated,
  cosineTo,
  emptyRows,
  measureSimilarity,
  quantised,
  rowOf,
  rowsOf,
  type SemanticSearch,
  type Similarities,
  setRow,
  type SimilarityOptions,
  type VectorEntry,
} from './similarity.ts';

/** How sure an assistant must be before it answers. */
export type Answering = 'careful' | 'balanced' | 'direct';

/** A visitor's message, and what the decision on it may use. */
export type Inquiry<Known extends IndexedEntry = IndexedEntry, Page extends Passage = Passage> = {
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
  /** The passages of the assistant's documents. Undefined if there are none. */
  passages?: PassageSearch<Page> | undefined;
};

/** What a reply gives or offers: an entry, or a passage with the sentences of it that answer. */
export type Choice<Known extends IndexedEntry = IndexedEntry, Page extends Passage = Passage> =
  | { entry: Known; passage?: undefined }
  | { entry?: undefined; passage: Page; quote: string };

/**
 * How entries and passages were found. `words only`: the model was too busy, too slow or not there, or the entry that
 * words find has no vector yet. `words`: the words were enough, or there is no vector to compare with.
 */
export type FoundBy = 'wording' | 'words' | 'words only' | 'both';

/** Why a decision was made, as compact JSON without text of the visitor. A later decision reads it in the history. */
export type Explanation = {
  kind: ReplyDecision['kind'];
  /** Language of the reply. */
  language: string;
  /** Absent if nothing was found, except after a search by `words only`. */
  by?: FoundBy;
  /** The best entries. `score` is the confidence; a hybrid search adds `words` and `meaning`, the cosine. */
  hits: { entryId: string; score: number; words?: number; meaning?: number }[];
  /** The best passages, if passages were searched. */
  passages?: { passageId: string; score: number; words: number; meaning?: number; tokens?: number }[];
  /** True if the visitor said that the hedged answer before this reply was not meant. */
  rejected?: true;
  threshold: number;
  ms: number;
};

/**
 * What to reply. `confidence` is the probability, from 0 to 1, that the first choice is the answer. `passages`: all
 * that were found, the most likely first, even if the reply uses none of them.
 */
export type ReplyDecision<Known extends IndexedEntry = IndexedEntry, Page extends Passage = Passage> = {
  why: Explanation;
  passages?: FoundPassage<Page>[];
} & (
  | ({
      kind: 'answer';
      confidence: number;
      /** BCP 47 tag of the answer. `isForeign` means that the reply must say so: the visitor wrote in another language. */
      language: string;
      isForeign: boolean;
    } & Choice<Known, Page>)
  /** Probably the answer. The visitor may choose one of the others instead. */
  | ({
      kind: 'hedge';
      others: Choice<Known, Page>[];
      confidence: number;
      language: string;
      isForeign: boolean;
    } & Choice<Known, Page>)
  /** The visitor chooses between these entries and passages. A long shot also offers a person. */
  | { kind: 'askBack'; choices: Choice<Known, Page>[]; confidence: number; isLongShot: boolean }
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
/** Each offered question is at least this likely. Only hybrid search knows how likely each question is. */
const PLAUSIBLE = 0.02;
/**
 * If the confidence is below this share of the threshold, the offered questions come with a button to talk to a person.
 */
const LONG_SHOT_SHARE = 0.5;
/** If several hits differ by less than this in score, the visitor chooses between their questions. */
const TIE_MARGIN = 0.1;
/** After lexical search, a question is offered only if its hit has at least this share of the best score. */
const OFFER_SCORE_SHARE = 0.6;
/** The same for passages: the least confidence for a sure answer, and the shares of it for the other replies. */
const PASSAGE_THRESHOLDS: Readonly<Record<Answering, number>> = { careful: 0.84, balanced: 0.74, direct: 0.55 };
const PASSAGE_SHARES: Readonly<Record<PassageEvidence, { hedge: number; offer: number }>> = {
  words: { hedge: 0.52, offer: 0.3 },
  vectors: { hedge: 0.42, offer: 0.165 },
  tokens: { hedge: 0.43, offer: 0.165 },
};
const PLAUSIBLE_PASSAGE = 0.03;
/**
 * The confidence by words and meaning was fitted to assistants without documents. Beside passages, an entry that is not
 * sure is less likely: its odds are multiplied by this. Beside fewer than `FEW_PASSAGES`, only by a part of it, so that the
 * first passage of an assistant changes hardly anything.
 */
const ENTRY_ODDS = 0.3;
const FEW_PASSAGES = 20;

const passageThreshold = ({ threshold, answering }: Pick<Inquiry, 'threshold' | 'answering'>): number =>
  threshold ?? PASSAGE_THRESHOLDS[answering];

/** The best hit and those within the tie margin. */
const nearTies = (hits: Hit[]): Hit[] => hits.filter(({ score }) => (hits[0]?.score ?? 0) - score < TIE_MARGIN);

type Context<Known extends IndexedEntry, Page extends Passage> = {
  inquiry: Inquiry<Known, Page>;
  threshold: number;
  startedAt: number;
  hits: Hit[];
  by: FoundBy;
  /** The passages that were found. Null if none were searched. */
  passages: FoundPassage<Page>[] | null;
};

const rounded = (value: number, digits: number): number => Number(value.toFixed(digits));

const explainPassage = ({ passage, confidence, words: share, cosine, tokens }: FoundPassage) => ({
  passageId: passage.passageId,
  score: rounded(confidence, 2),
  words: rounded(share, 2),
  ...(cosine !== null && { meaning: rounded(cosine, 3) }),
  ...(tokens !== null && { tokens: rounded(tokens, 3) }),
});

const explain = (
  { inquiry, threshold, startedAt, hits, by, passages }: Context<IndexedEntry, Passage>,
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
  ...(passages && { passages: passages.slice(0, MAX_HITS).map(explainPassage) }),
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
const entriesOf = <Known extends IndexedEntry>({ index }: Pick<Inquiry<Known>, 'index'>, hits: Hit[]): Known[] =>
  hits.flatMap(({ entry }) => index?.entriesById.get(entry.entryId)?.entry ?? []);

const withPassages = <Page extends Passage>({ passages }: Context<IndexedEntry, Page>) => passages && { passages };

const unsure = <Known extends IndexedEntry, Page extends Passage>(
  context: Context<Known, Page>,
): ReplyDecision<Known, Page> => ({
  kind: 'unsure',
  confidence: Math.max(context.hits[0]?.confidence ?? 0, context.passages?.[0]?.confidence ?? 0),
  why: explain(context, 'unsure'),
  ...withPassages(context),
});

/** The visitor rejected a hedged answer, and is asked for other words. */
const rejected = <Known extends IndexedEntry, Page extends Passage>(
  context: Context<Known, Page>,
): ReplyDecision<Known, Page> => {
  const decision = unsure({ ...context, hits: [] });
  return { ...decision, why: { ...decision.why, rejected: true } };
};

const sectionOf = ({ passage: { title, path } }: FoundPassage): string => JSON.stringify([title, path]);

/**
 * What a visitor may choose from beside what is given: the entries of hits and the plausible passages, the most likely
 * first.
 */
const choicesOf = <Known extends IndexedEntry, Page extends Passage>(
  { inquiry, passages }: Context<Known, Page>,
  hits: Hit[],
  given: { hit?: Hit; found?: FoundPassage<Page> } = {},
): Choice<Known, Page>[] => {
  const entries = hits.flatMap((hit) =>
    entriesOf(inquiry, [hit]).map((entry) => ({ choice: { entry }, confidence: hit.confidence })),
  );
  if (!passages) return entries.map(({ choice }) => choice);
  // Passages below the same headings have the same button, and an entry that was made of a passage has its heading.
  const sections = new Set(given.found && [sectionOf(given.found)]);
  const shown = [...entriesOf(inquiry, given.hit ? [given.hit] : []), ...entries.map(({ choice }) => choice.entry)];
  const questions = new Set(shown.map(({ question }) => normaliseWording(question)));
  const others = passages.flatMap((found) => {
    const { passage, quote, confidence } = found;
    const heading = normaliseWording(passage.path.at(-1) ?? passage.title);
    if (confidence < PLAUSIBLE_PASSAGE || sections.has(sectionOf(found)) || questions.has(heading)) return [];
    sections.add(sectionOf(found));
    return [{ choice: { passage, quote }, confidence }];
  });
  return [...entries, ...others]
    .toSorted((one, other) => other.confidence - one.confidence)
    .slice(0, MAX_HITS)
    .map(({ choice }) => choice);
};

/** Gives a choice: as the answer, or hedged, with others for the visitor to choose from. */
const give = <Known extends IndexedEntry, Page extends Passage>(
  context: Context<Known, Page>,
  choice: Choice<Known, Page>,
  { confidence, language, others }: { confidence: number; language: string; others: Choice<Known, Page>[] | null },
): ReplyDecision<Known, Page> => {
  const kind = others === null ? 'answer' : 'hedge';
  const given = {
    ...choice,
    confidence,
    language,
    isForeign: isForeign(language, context.inquiry),
    why: explain(context, kind, language),
    ...withPassages(context),
  };
  return others === null ? { ...given, kind: 'answer' } : { ...given, kind: 'hedge', others };
};

/** Gives the entry of the hit: as the answer, or hedged, with other hits for the visitor to choose from. */
const answer = <Known extends IndexedEntry, Page extends Passage>(
  context: Context<Known, Page>,
  hit: Hit,
  others: Hit[] | null = null,
): ReplyDecision<Known, Page> => {
  const [entry] = entriesOf(context.inquiry, [hit]);
  if (!entry) return unsure(context);
  return give(
    context,
    { entry },
    {
      confidence: hit.confidence,
      language: entry.language ?? hit.group.language,
      others: others && choicesOf(context, others, { hit }),
    },
  );
};

const askBack = <Known extends IndexedEntry, Page extends Passage>(
  context: Context<Known, Page>,
  choices: Choice<Known, Page>[],
  { confidence, isLongShot = false }: { confidence: number; isLongShot?: boolean },
): ReplyDecision<Known, Page> => ({
  kind: 'askBack',
  choices,
  confidence,
  isLongShot,
  why: explain(context, 'askBack'),
  ...withPassages(context),
});

const plain = <Known extends IndexedEntry, Page extends Passage>(
  context: Context<Known, Page>,
  kind: Exclude<ReplyDecision['kind'], 'answer' | 'hedge' | 'askBack' | 'unsure'>,
): ReplyDecision<Known, Page> => ({ kind, why: explain(context, kind), ...withPassages(context) });

/** Hits that may be offered beside the best one. Only hybrid search knows how likely each is. */
const plausibleHits = ({ hits, by }: Context<IndexedEntry, Passage>): Hit[] =>
  hits.filter((hit) => {
    const [best] = hits;
    if (!best || hit === best) return true;
    return by === 'both' ? hit.confidence >= PLAUSIBLE : hit.score >= best.score * OFFER_SCORE_SHARE;
  });

/** Like `choose`, but for the best passage, which may be given, hedged or offered. */
const choosePassage = <Known extends IndexedEntry, Page extends Passage>(
  ofEntries: Context<Known, Page>,
  found: FoundPassage<Page>,
  hasContactDetails: boolean,
): ReplyDecision<Known, Page> => {
  const { passage, quote, confidence, language, by } = found;
  const threshold = passageThreshold(ofEntries.inquiry);
  const context = { ...ofEntries, threshold };
  if (confidence >= threshold) return give(context, { passage, quote }, { confidence, language, others: null });
  if (hasContactDetails) return plain(context, 'contact');
  const hits = plausibleHits(context).filter((hit) => hit.confidence >= PLAUSIBLE);
  if (confidence >= threshold * PASSAGE_SHARES[by].hedge) {
    return give(context, { passage, quote }, { confidence, language, others: choicesOf(context, hits, { found }) });
  }
  if (confidence >= threshold * PASSAGE_SHARES[by].offer) {
    return askBack(context, choicesOf(context, hits), { confidence, isLongShot: true });
  }
  return unsure(context);
};

/** Chooses between an answer, a hedged answer, several questions for the visitor to choose from, and an unsure reply. */
const choose = <Known extends IndexedEntry, Page extends Passage>(
  context: Context<Known, Page>,
  hasContactDetails: boolean,
): ReplyDecision<Known, Page> => {
  const { hits, threshold, passages } = context;
  const [best] = hits;
  const isBoth = context.by === 'both';
  const confidence = best?.confidence ?? 0;
  if (best && confidence >= threshold) {
    // After hybrid search, near ties are not checked, because the confidence already includes the lead over the other
    // hits.
    const close = confidence < 1 && !isBoth ? nearTies(hits) : [best];
    return close.length > 1 ? askBack(context, choicesOf(context, close), { confidence }) : answer(context, best);
  }
  const [passage] = passages ?? [];
  if (passage && passage.confidence > confidence) return choosePassage(context, passage, hasContactDetails);
  if (hasContactDetails) return plain(context, 'contact');
  const by = isBoth ? 'both' : 'words';
  const plausible = plausibleHits(context);
  if (best && confidence >= threshold * HEDGE_SHARE[by] && (isBoth || nearTies(hits).length === 1)) {
    return answer(context, best, plausible.slice(1));
  }
  if (best && confidence >= threshold * OFFER_SHARE[by]) {
    const isLongShot = confidence < threshold * LONG_SHOT_SHARE;
    return askBack(context, choicesOf(context, plausible), { confidence, isLongShot });
  }
  // No entry is likely enough to be offered. A passage needs less confidence for that.
  return passage ? choosePassage(context, passage, hasContactDetails) : unsure(context);
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
type LexicalReading<Known extends IndexedEntry, Page extends Passage> = {
  context: Context<Known, Page>;
  visitorLanguage: string;
  /** True if the message leaves contact details and asks nothing else. */
  hasContactDetails: boolean;
  /** What the message asks, without contact details. */
  question: string;
  hits: Hit[];
  /** The terms of the question. */
  known: TermsByGroup;
};

function* read<Known extends IndexedEntry, Page extends Passage>(
  inquiry: Inquiry<Known, Page>,
): Generator<void, LexicalReading<Known, Page>> {
  const { message, index } = inquiry;
  const visitorLanguage = baseLanguage(inquiry.language);
  const threshold = inquiry.threshold ?? THRESHOLDS[inquiry.answering].words;
  const startedAt = performance.now();
  const context: Context<Known, Page> = { inquiry, threshold, startedAt, hits: [], by: 'words', passages: null };
  const leaves = findContactDetails(message) !== null;
  yield;
  const asked = leaves ? askedBesideContactDetails(message) : null;
  const hasContactDetails = leaves && asked === null;
  const question = leaves ? (asked ?? withoutContactDetails(message)) : message;
  yield;
  const known: TermsByGroup = new Map();
  const hits = index ? yield* searchLexical(question, index, visitorLanguage, threshold, known) : [];
  yield;
  return { context, visitorLanguage, hasContactDetails, question, hits, known };
}

/** True if word matches alone decide. Without a model, any hit at the threshold is enough. */
const isSure = ({ hits, context: { inquiry, threshold } }: LexicalReading<IndexedEntry, Passage>): boolean =>
  (hits[0]?.confidence ?? 0) >= (inquiry.semanticSearch ? Math.max(threshold, SURE_BY_WORDS) : threshold);

/** What says nothing beside a question. A *yes* or *no* may answer one. */
const COURTESIES: ReadonlySet<SmallTalk> = new Set(['greeting', 'thanks', 'goodbye']);

/** What messages that are answered together ask. A request for a person counts alone, and a greeting only alone. */
export const joinMessages = (messages: string[], language: string): string => {
  const request = messages.findLast(asksForHuman);
  if (request !== undefined) return request;
  const whole = messages.join('\n');
  if (readSmallTalk(whole, language) !== null) return whole;
  const asked = messages.filter((message) => {
    const smallTalk = readSmallTalk(message, language);
    return smallTalk === null || !COURTESIES.has(smallTalk);
  });
  return asked.length > 0 ? asked.join('\n') : whole;
};

const decideSmallTalk = async <Known extends IndexedEntry, Page extends Passage>(
  context: Context<Known, Page>,
  smallTalk: SmallTalk,
): Promise<ReplyDecision<Known, Page>> => {
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
 * The hits with their confidence beside passages (`ENTRY_ODDS`). A sure hit is not changed unless a passage is sure too,
 * and likelier.
 */
const besidePassages = <Page extends Passage>(
  { hits, threshold, by, inquiry }: Pick<Context<IndexedEntry, Page>, 'hits' | 'threshold' | 'by' | 'inquiry'>,
  [passage]: FoundPassage<Page>[],
): Hit[] => {
  const odds = ENTRY_ODDS ** Math.min(1, (inquiry.passages?.index.size ?? 0) / FEW_PASSAGES);
  const sure = passage && passage.confidence >= passageThreshold(inquiry) ? passage.confidence : 0;
  return hits.map((hit) => {
    if (by !== 'both') return hit;
    const confidence = (odds * hit.confidence) / (1 - (1 - odds) * hit.confidence);
    return hit.confidence >= threshold && confidence >= sure ? hit : { ...hit, confidence };
  });
};

/** Searches the entries further if the words did not decide. */
const searchEntries = async <Known extends IndexedEntry, Page extends Passage>(
  { context, visitorLanguage, question, hits, known }: LexicalReading<Known, Page>,
  share: LoopShare,
): Promise<Pick<Context<Known, Page>, 'threshold' | 'hits' | 'by'>> => {
  const { inquiry } = context;
  const { message, index, history, semanticSearch } = inquiry;
  if (!index) return context;
  if (semanticSearch) {
    const [best] = hits;
    const byWords = best && best.confidence >= context.threshold ? best.entry.entryId : null;
    const asked = { message, question, visitorLanguage, known };
    const found = await searchHybrid({ ...asked, index, history, semanticSearch, byWords, share });
    const threshold = inquiry.threshold ?? THRESHOLDS[inquiry.answering].both;
    if (found) return { threshold, hits: found, by: 'both' };
  }
  const continued = await searchFollowUp({ message, visitorLanguage, index }, history, share);
  const better = (continued[0]?.confidence ?? 0) > (hits[0]?.confidence ?? 0);
  const by = semanticSearch ? 'words only' : 'words';
  return { threshold: context.threshold, hits: better ? continued : hits, by };
};

/** After this time, other work has its turn. */
const SLICE_MS = 2;

/**
 * Decides what to reply to a message: by lexical search of the entries first. If its confidence is too low, by hybrid
 * search, and by the passages of documents.
 */
export const decideReply = async <Known extends IndexedEntry, Page extends Passage = Passage>(
  inquiry: Inquiry<Known, Page>,
): Promise<ReplyDecision<Known, Page>> => {
  const share = createLoopShare(SLICE_MS);
  const reading = await inTurns(read(inquiry), share);
  const { context, visitorLanguage, hasContactDetails, question, hits } = reading;
  const { message, index, passages } = inquiry;
  // A message that repeats a stored wording gets its answer even if the message is small talk, because the author
  // wrote an answer for it.
  if (hits[0]?.confidence === 1) return answer({ ...context, hits, by: 'wording' }, hits[0]);

  if (inquiry.isRejection) return rejected(context);
  if (asksForHuman(message)) return plain(context, 'human');
  if (asksWhoThisIs(message)) return plain(context, 'whoAmI');
  const smallTalk = readSmallTalk(message, visitorLanguage);
  if (smallTalk) return decideSmallTalk(context, smallTalk);
  if (!index && !passages) return plain(context, hasContactDetails ? 'contact' : 'noKnowledge');
  if (isSure(reading)) return choose({ ...context, hits }, hasContactDetails);

  const [entries, search] = await Promise.all([
    searchEntries(reading, share),
    passages ? findPassages(passages, question, visitorLanguage) : null,
  ]);
  if (!search) return choose({ ...context, ...entries }, hasContactDetails);
  const { found, hasVector } = search;
  const isByWordsOnly = passages?.isModelChosen === true && !hasVector && entries.by === 'words';
  const beside = { ...entries, hits: besidePassages({ ...entries, inquiry }, found), passages: found };
  return choose({ ...context, ...beside, ...(isByWordsOnly && { by: 'words only' }) }, hasContactDetails);
};

/** True if `decideReply` needs no model for this inquiry. It yields between small steps, as `indexInSteps` does. */
export function* decidesByWords(inquiry: Inquiry): Generator<void, boolean> {
  if (!inquiry.semanticSearch && !inquiry.passages) return true;
  const reading = yield* read(inquiry);
  const { message } = inquiry;
  return (
    inquiry.isRejection === true ||
    isSure(reading) ||
    asksForHuman(message) ||
    asksWhoThisIs(message) ||
    readSmallTalk(message, reading.visitorLanguage) !== null
  );
}
