import { baseLanguage } from '../../../../src/language/base.ts';
import { fold, words } from '../../../../src/language/fold.ts';
import { LEXICON, type SmallTalk } from '../../../../src/language/lexicon.ts';
import type { AssistantEngine, EngineReply, TurnContext } from '../engine.ts';
import { findContactDetails, withoutContactDetails } from './contact-details.ts';
import { findLastReply, searchFollowUp } from './follow-up.ts';
import { asksForHuman, asksWhoThisIs } from './human-request.ts';
import { searchHybrid } from './hybrid-search.ts';
import { createIndexes, type IndexOptions } from './indexes.ts';
import type { KnowledgeIndex } from './knowledge-index.ts';
import { type Hit, searchLexical } from './lexical-search.ts';
import { answerReply, handoffReply, offerQuestions, type ReplyContext, textReply, unsureReply } from './replies.ts';

/**
 * The minimum confidence for offering questions, as a share of the threshold: `words` after lexical search, `both`
 * after hybrid search.
 */
const OFFER_SHARE = { words: 0.5, both: 0.07 };
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

/** Chooses between an answer, several questions for the visitor to choose from, and an unsure reply. */
const chooseReply = (context: ReplyContext, hasContactDetails: boolean): EngineReply => {
  const { hits, threshold } = context;
  const [best] = hits;
  const isBoth = context.by === 'both';
  if (best && best.confidence >= threshold) {
    // After hybrid search, near ties are not checked, because the confidence already includes the lead over the other
    // hits.
    const close = best.confidence < 1 && !isBoth ? nearTies(hits) : [best];
    return close.length > 1 ? offerQuestions(context, close) : answerReply(context, best);
  }
  if (hasContactDetails) return textReply(context, 'contactNoted', 'contact');
  if (best && best.confidence >= threshold * OFFER_SHARE[isBoth ? 'both' : 'words']) {
    const likely = isBoth ? hits : hits.filter(({ score }) => score >= best.score * OFFER_SCORE_SHARE);
    return offerQuestions(context, likely, { longShot: best.confidence < threshold * LONG_SHOT_SHARE });
  }
  return unsureReply(context);
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

/** The minimum confidence for an answer from word matches only. Chosen on the `--tune` half of each evaluation set. */
const DEFAULT_THRESHOLD = 0.8;
/** The minimum confidence for an answer from words and vectors together. */
const HYBRID_THRESHOLD = 0.7;
/**
 * At or above this lexical confidence, the model is not asked. Lower limits gave wrong answers in domains outside the
 * tuning data.
 */
const SURE_BY_WORDS = 0.95;

/** A turn with the hits of the lexical search. */
type LexicalReading = {
  context: ReplyContext;
  index: KnowledgeIndex | null;
  visitorLanguage: string;
  hasContactDetails: boolean;
  question: string;
  hits: Hit[];
};

/**
 * Answers from the assistant's knowledge: by lexical search first, and by hybrid search if the lexical confidence is
 * too low.
 */
export const createRetrievalEngine = (options: IndexOptions = {}): AssistantEngine => {
  const indexes = createIndexes(options);

  const read = (turn: TurnContext, index: KnowledgeIndex | null): LexicalReading => {
    const { assistant, message } = turn;
    const visitorLanguage = baseLanguage(turn.language);
    const threshold = assistant.threshold ?? DEFAULT_THRESHOLD;
    const context: ReplyContext = { turn, threshold, startedAt: performance.now(), hits: [], by: 'words' };
    const hasContactDetails = findContactDetails(message) !== null;
    const question = hasContactDetails ? withoutContactDetails(message) : message;
    const hits = index ? searchLexical(question, index, visitorLanguage, threshold) : [];
    return { context, index, visitorLanguage, hasContactDetails, question, hits };
  };

  const isExact = ({ hits }: LexicalReading): boolean => hits[0]?.confidence === 1;

  /** True if word matches alone decide. Without a model, any hit at the threshold is enough. */
  const isSure = ({ hits, context: { turn, threshold } }: LexicalReading): boolean =>
    (hits[0]?.confidence ?? 0) >= (turn.semanticSearch ? Math.max(threshold, SURE_BY_WORDS) : threshold);

  const smallTalkReply = async (
    { context, index }: LexicalReading,
    smallTalk: ReturnType<typeof readSmallTalk> & string,
  ) => {
    const { turn } = context;
    const last = smallTalk === 'yes' ? await findLastReply(turn) : null;
    if (last?.kind === 'unsure') return handoffReply(context);
    if (last?.kind === 'askBack') {
      const meant = index?.entriesById.get(last.entryIds[0] ?? '');
      if (meant) {
        const hit = { ...meant, confidence: 1, score: 1 };
        return answerReply({ ...context, hits: [hit] }, hit);
      }
    }
    return textReply(context, smallTalk);
  };

  const answerTurn = async (turn: TurnContext): Promise<EngineReply> => {
    const reading = read(turn, turn.assistant.knowledge.length > 0 ? await indexes.of(turn.assistant) : null);
    const { context, index, visitorLanguage, hasContactDetails, question, hits } = reading;
    const { message } = turn;
    // A message that repeats a stored wording gets its answer even if the message is small talk, because the author
    // wrote an answer for it.
    if (hits[0] && isExact(reading)) return answerReply({ ...context, hits, by: 'wording' }, hits[0]);

    if (asksForHuman(message)) return handoffReply(context);
    if (asksWhoThisIs(message)) return textReply(context, 'whoAmI');
    const smallTalk = readSmallTalk(message, visitorLanguage);
    if (smallTalk) return smallTalkReply(reading, smallTalk);
    if (!index)
      return hasContactDetails ? textReply(context, 'contactNoted', 'contact') : textReply(context, 'noKnowledge');

    const sure = isSure(reading);
    if (!sure && turn.semanticSearch) {
      const found = await searchHybrid({ turn, question, visitorLanguage, index });
      const threshold = turn.assistant.threshold ?? HYBRID_THRESHOLD;
      if (found) return chooseReply({ ...context, threshold, hits: found, by: 'both' }, hasContactDetails);
      context.by = 'words only';
    }
    const continued = sure ? [] : await searchFollowUp(turn, index, visitorLanguage);
    const better = (continued[0]?.confidence ?? 0) > (hits[0]?.confidence ?? 0);
    return chooseReply({ ...context, hits: better ? continued : hits }, hasContactDetails);
  };

  return {
    name: 'retrieval',
    // While a large index is built, turns wait where one assistant cannot take all places.
    needsProvider: (assistant) => indexes.isLongWait(assistant),
    answersImmediately: (turn) => {
      if (turn.assistant.knowledge.length === 0) return true;
      const index = indexes.current(turn.assistant);
      if (!index) return false; // the turn would wait for the index
      if (!turn.semanticSearch) return true;
      const reading = read(turn, index);
      const { message } = turn;
      return (
        isSure(reading) ||
        asksForHuman(message) ||
        asksWhoThisIs(message) ||
        readSmallTalk(message, reading.visitorLanguage) !== null
      );
    },
    reply: answerTurn,
  };
};
