import { baseLanguage } from '../../../../src/language/base.ts';
import type { AssistantEngine, EngineReply, TurnContext } from '../engine.ts';
import { findContactDetails, withoutContactDetails } from './contact-details.ts';
import { chooseReply } from './choose-reply.ts';
import { searchLexical, type Hit } from './lexical-search.ts';
import { searchHybrid } from './hybrid-search.ts';
import { searchFollowUp, findLastReply } from './follow-up.ts';
import { asksForHuman, asksWhoThisIs } from './human-request.ts';
import { createIndexes, type IndexOptions } from './indexes.ts';
import type { KnowledgeIndex } from './knowledge-index.ts';
import { handoffReply, type ReplyContext, answerReply, textReply } from './replies.ts';
import { readSmallTalk } from './small-talk.ts';

/** The minimum confidence for an answer from word matches only. Chosen on the `--tune` half of each evaluation set. */
export const DEFAULT_THRESHOLD = 0.8;
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
