import { LRUCache } from 'lru-cache';
import { baseLanguage } from '../../../../src/turns/language/base.ts';
import type { AssistantEngine, AssistantProfile, EngineReply, TurnContext } from '../engine.ts';
import { findContactDetails, withoutContactDetails } from './contact-details.ts';
import { findAnswer, type Hit } from './find-answer.ts';
import { followUp, lastWord } from './follow-up.ts';
import { asksForHuman, asksWhoThisIs } from './human-request.ts';
import { buildIndex, type KnowledgeIndex } from './knowledge-index.ts';
import { askBack, handOver, type Making, sayAnswer, sayText, sayUnsure } from './replies.ts';
import { readSmallTalk } from './small-talk.ts';

/** Confidence from which an answer is given; chosen on the tune half of the evaluation set. */
export const DEFAULT_THRESHOLD = 0.8;
/** From this share of the threshold on, the likely questions are offered. */
const ASK_BACK_SHARE = 0.5;
/** Answers this close together are a question, not an answer. */
const CLOSE = 0.1;
/** What is offered beside the best candidate must be about as good. */
const ABOUT_AS_GOOD = 0.6;

export type RetrievalOptions = {
  /** Assistants whose index is kept. */
  maxIndexes?: number;
  /** Entries that all kept indexes may hold together. */
  maxEntries?: number;
};

/** The best hit and those that are about as good. */
const closest = (hits: Hit[]): Hit[] => hits.filter(({ rank }) => (hits[0]?.rank ?? 0) - rank < CLOSE);

const choose = (making: Making, contact: boolean): EngineReply => {
  const { hits, threshold } = making;
  const [best] = hits;
  if (best && best.confidence >= threshold) {
    const close = best.confidence < 1 ? closest(hits) : [best];
    return close.length > 1 ? askBack(making, close) : sayAnswer(making, best);
  }
  if (contact) return sayText(making, 'contactNoted', 'contact');
  if (best && best.confidence >= threshold * ASK_BACK_SHARE) {
    return askBack(
      making,
      hits.filter(({ rank }) => rank >= best.rank * ABOUT_AS_GOOD),
    );
  }
  return sayUnsure(making);
};

/** Answers from the assistant's own entries, without network or key. */
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

  const answerTurn = async (turn: TurnContext): Promise<EngineReply> => {
    const { assistant, message } = turn;
    const spoken = baseLanguage(turn.language);
    const making: Making = {
      turn,
      threshold: assistant.threshold ?? DEFAULT_THRESHOLD,
      startedAt: performance.now(),
      hits: [],
    };
    const index = assistant.knowledge.length > 0 ? indexOf(assistant) : null;

    // What an entry says in so many words goes before everything: the author knew why.
    const contact = findContactDetails(message) !== null;
    const question = contact ? withoutContactDetails(message) : message;
    const hits = index ? findAnswer(question, index, spoken, making.threshold) : [];
    if (hits[0]?.confidence === 1) return sayAnswer({ ...making, hits }, hits[0]);

    if (asksForHuman(message)) return handOver(making);
    if (asksWhoThisIs(message)) return sayText(making, 'whoAmI');
    const smallTalk = readSmallTalk(message, spoken);
    if (smallTalk) {
      const last = smallTalk === 'yes' ? await lastWord(turn) : null;
      if (last?.kind === 'unsure') return handOver(making);
      if (last?.kind === 'askBack') {
        const meant = assistant.knowledge.find(({ entryId }) => entryId === last.entryIds[0]);
        const group = index?.groups.find(({ entries }) => meant !== undefined && entries.includes(meant));
        if (meant && group) {
          const hit = { entry: meant, group, confidence: 1, rank: 1 };
          return sayAnswer({ ...making, hits: [hit] }, hit);
        }
      }
      return sayText(making, smallTalk);
    }
    if (!index) return sayText(making, contact ? 'contactNoted' : 'noKnowledge', contact ? 'contact' : 'noKnowledge');

    const sure = (hits[0]?.confidence ?? 0) >= making.threshold;
    const continued = sure ? [] : await followUp(turn, index, spoken);
    const better = (continued[0]?.confidence ?? 0) > (hits[0]?.confidence ?? 0);
    return choose({ ...making, hits: better ? continued : hits }, contact);
  };

  return { name: 'retrieval', answersAtOnce: () => true, reply: answerTurn };
};
