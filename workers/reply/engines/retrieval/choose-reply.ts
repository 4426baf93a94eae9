import type { EngineReply } from '../engine.ts';
import type { Hit } from './lexical-search.ts';
import { offerQuestions, type ReplyContext, answerReply, textReply, unsureReply } from './replies.ts';

/** From this share of the threshold on, the likely questions are offered: by words, and where meaning helped to find them. */
const OFFER_SHARE = { words: 0.5, both: 0.07 };
/** Below this share they are a long shot, and a person is offered beside them. */
const LONG_SHOT_SHARE = 0.5;
/** Answers this close together by their words are a question, not an answer. */
const TIE_MARGIN = 0.1;
/** What is offered beside the best candidate must be about as good by its words. */
const OFFER_SCORE_SHARE = 0.6;

/** The best hit and those that are about as good. */
const nearTies = (hits: Hit[]): Hit[] => hits.filter(({ score }) => (hits[0]?.score ?? 0) - score < TIE_MARGIN);

/** What to say on what was found: an answer, a few questions to choose from, or that it is not known. */
export const chooseReply = (context: ReplyContext, contact: boolean): EngineReply => {
  const { hits, threshold } = context;
  const [best] = hits;
  const isBoth = context.by === 'both';
  if (best && best.confidence >= threshold) {
    // The confidence of both has looked at the others already.
    const close = best.confidence < 1 && !isBoth ? nearTies(hits) : [best];
    return close.length > 1 ? offerQuestions(context, close) : answerReply(context, best);
  }
  if (contact) return textReply(context, 'contactNoted', 'contact');
  if (best && best.confidence >= threshold * OFFER_SHARE[isBoth ? 'both' : 'words']) {
    const likely = isBoth ? hits : hits.filter(({ score }) => score >= best.score * OFFER_SCORE_SHARE);
    return offerQuestions(context, likely, { longShot: best.confidence < threshold * LONG_SHOT_SHARE });
  }
  return unsureReply(context);
};
