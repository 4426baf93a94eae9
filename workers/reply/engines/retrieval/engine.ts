import { LRUCache } from 'lru-cache';
import { baseLanguage } from '../../../../src/language/base.ts';
import type { AssistantEngine, AssistantProfile, EngineReply, TurnContext } from '../engine.ts';
import { findContactDetails, withoutContactDetails } from './contact-details.ts';
import { decide } from './decide.ts';
import { findAnswer, type Hit } from './find-answer.ts';
import { findByMeaning } from './find-by-meaning.ts';
import { followUp, lastWord } from './follow-up.ts';
import { asksForHuman, asksWhoThisIs } from './human-request.ts';
import { buildIndex, type KnowledgeIndex } from './knowledge-index.ts';
import { handOver, type Making, sayAnswer, sayText } from './replies.ts';
import { readSmallTalk } from './small-talk.ts';

/** Confidence from which an answer is given; chosen on the tune halves of the evaluation sets. */
export const DEFAULT_THRESHOLD = 0.8;
/** The same where meaning decides too. */
const THRESHOLD_OF_BOTH = 0.7;
/** Words that are as sure as this need no model: in domains never tuned to, lesser ones often miss the point. */
const SURE_BY_WORDS = 0.95;

export type RetrievalOptions = {
  /** Assistants whose index is kept. */
  maxIndexes?: number;
  /** Entries that all kept indexes may hold together. */
  maxEntries?: number;
};

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
export const createRetrievalEngine = ({
  maxIndexes = 200,
  maxEntries = 100_000,
}: RetrievalOptions = {}): AssistantEngine => {
  const indexes = new LRUCache<string, KnowledgeIndex>({
    max: maxIndexes,
    maxSize: maxEntries,
    sizeCalculation: ({ groups }) => 1 + groups.reduce((sum, { entries }) => sum + entries.length, 0),
  });

  const indexOf = (assistant: AssistantProfile): KnowledgeIndex => {
    const key = JSON.stringify([assistant.assistantId, assistant.version]);
    const known = indexes.get(key);
    if (known) return known;
    const built = buildIndex(assistant);
    indexes.set(key, built);
    return built;
  };

  const read = (turn: TurnContext): Read => {
    const { assistant, message } = turn;
    const spoken = baseLanguage(turn.language);
    const threshold = assistant.threshold ?? DEFAULT_THRESHOLD;
    const making: Making = { turn, threshold, startedAt: performance.now(), hits: [], by: 'words' };
    const index = assistant.knowledge.length > 0 ? indexOf(assistant) : null;
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
      const meant = turn.assistant.knowledge.find(({ entryId }) => entryId === last.entryIds[0]);
      const group = index?.groups.find(({ entries }) => meant !== undefined && entries.includes(meant));
      if (meant && group) {
        const hit = { entry: meant, group, confidence: 1, rank: 1 };
        return sayAnswer({ ...making, hits: [hit] }, hit);
      }
    }
    return sayText(making, smallTalk);
  };

  const answerTurn = async (turn: TurnContext): Promise<EngineReply> => {
    const one = read(turn);
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
      if (!turn.meaning || turn.assistant.knowledge.length === 0) return true;
      const one = read(turn);
      const { message } = turn;
      return (
        isSure(one) || asksForHuman(message) || asksWhoThisIs(message) || readSmallTalk(message, one.spoken) !== null
      );
    },
    reply: answerTurn,
  };
};
