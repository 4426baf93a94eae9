import type { EngineReply } from '../engine.ts';
import type { Hit } from './lexical-search.ts';
import { offerQuestions, type ReplyContext, answerReply, textReply, unsureReply } from './replies.ts';

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
export const chooseReply = (context: ReplyContext, hasContactDetails: boolean): EngineReply => {
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
