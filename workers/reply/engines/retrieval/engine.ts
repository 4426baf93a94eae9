import { baseLanguage } from '../../../../src/language/base.ts';
import type { AssistantEngine, EngineReply, TurnContext } from '../engine.ts';
import { findContactDetails, withoutContactDetails } from './contact-details.ts';
import { decide } from './decide.ts';
import { findAnswer, type Hit } from './find-answer.ts';
import { findByMeaning } from './find-by-meaning.ts';
import { followUp, lastWord } from './follow-up.ts';
import { asksForHuman, asksWhoThisIs } from './human-request.ts';
import { createIndexes, type IndexOptions } from './indexes.ts';
import type { KnowledgeIndex } from './knowledge-index.ts';
import { handOver, type Making, sayAnswer, sayText } from './replies.ts';
import { readSmallTalk } from './small-talk.ts';

/** Confidence from which an answer is given; chosen on the tune halves of the evaluation sets. */
export const DEFAULT_THRESHOLD = 0.8;
/** The same where meaning decides too. */
const THRESHOLD_OF_BOTH = 0.7;
/** Words that are as sure as this need no model: in domains never tuned to, lesser ones often miss the point. */
const SURE_BY_WORDS = 0.95;

/** A turn, read as far as its words go. */
type Read = {
  making: Making;
  index: KnowledgeIndex | null;
  spoken: string;
  contact: boolean;
  question: string;
  hits: Hit[];
};

/** Answers from the assistant's own entries: by their words, and where these are not sure by what was meant. */
export const createRetrievalEngine = (options: IndexOptions = {}): AssistantEngine => {
  const indexes = createIndexes(options);

  const read = (turn: TurnContext, index: KnowledgeIndex | null): Read => {
    const { assistant, message } = turn;
    const spoken = baseLanguage(turn.language);
    const threshold = assistant.threshold ?? DEFAULT_THRESHOLD;
    const making: Making = { turn, threshold, startedAt: performance.now(), hits: [], by: 'words' };
    const contact = findContactDetails(message) !== null;
    const question = contact ? withoutContactDetails(message) : message;
    const hits = index ? findAnswer(question, index, spoken, threshold) : [];
    return { making, index, spoken, contact, question, hits };
  };

  const isExact = ({ hits }: Read): boolean => hits[0]?.confidence === 1;

  /** Sure enough to ask nobody: without a model any answer is. */
  const isSure = ({ hits, making: { turn, threshold } }: Read): boolean =>
    (hits[0]?.confidence ?? 0) >= (turn.meaning ? Math.max(threshold, SURE_BY_WORDS) : threshold);

  const saySmallTalk = async ({ making, index }: Read, smallTalk: ReturnType<typeof readSmallTalk> & string) => {
    const { turn } = making;
    const last = smallTalk === 'yes' ? await lastWord(turn) : null;
    if (last?.kind === 'unsure') return handOver(making);
    if (last?.kind === 'askBack') {
      const meant = index?.places.get(last.entryIds[0] ?? '');
      if (meant) {
        const hit = { ...meant, confidence: 1, rank: 1 };
        return sayAnswer({ ...making, hits: [hit] }, hit);
      }
    }
    return sayText(making, smallTalk);
  };

  const answerTurn = async (turn: TurnContext): Promise<EngineReply> => {
    const one = read(turn, turn.assistant.knowledge.length > 0 ? await indexes.of(turn.assistant) : null);
    const { making, index, spoken, contact, question, hits } = one;
    const { message } = turn;
    // What an entry says in so many words goes before everything: the author knew why.
    if (hits[0] && isExact(one)) return sayAnswer({ ...making, hits, by: 'wording' }, hits[0]);

    if (asksForHuman(message)) return handOver(making);
    if (asksWhoThisIs(message)) return sayText(making, 'whoAmI');
    const smallTalk = readSmallTalk(message, spoken);
    if (smallTalk) return saySmallTalk(one, smallTalk);
    if (!index) return sayText(making, contact ? 'contactNoted' : 'noKnowledge', contact ? 'contact' : 'noKnowledge');

    const sure = isSure(one);
    if (!sure && turn.meaning) {
      const found = await findByMeaning({ turn, question, spoken, index });
      const threshold = turn.assistant.threshold ?? THRESHOLD_OF_BOTH;
      if (found) return decide({ ...making, threshold, hits: found, by: 'both' }, contact);
      making.by = 'words only';
    }
    const continued = sure ? [] : await followUp(turn, index, spoken);
    const better = (continued[0]?.confidence ?? 0) > (hits[0]?.confidence ?? 0);
    return decide({ ...making, hits: better ? continued : hits }, contact);
  };

  return {
    name: 'retrieval',
    answersAtOnce: (turn) => {
      if (turn.assistant.knowledge.length === 0) return true;
      const index = indexes.now(turn.assistant);
      if (!index) return false; // it is waited for
      if (!turn.meaning) return true;
      const one = read(turn, index);
      const { message } = turn;
      return (
        isSure(one) || asksForHuman(message) || asksWhoThisIs(message) || readSmallTalk(message, one.spoken) !== null
      );
    },
    reply: answerTurn,
  };
};
