import type { EngineReply } from '../engine.ts';
import type { Hit } from './find-answer.ts';
import { askBack, type Making, sayAnswer, sayText, sayUnsure } from './replies.ts';

/** From this share of the threshold on, the likely questions are offered: by words, and where meaning helped to find them. */
const ASK_BACK_SHARE = { words: 0.5, both: 0.07 };
/** Below this share they are a long shot, and a person is offered beside them. */
const LONG_SHOT_SHARE = 0.5;
/** Answers this close together by their words are a question, not an answer. */
const CLOSE = 0.1;
/** What is offered beside the best candidate must be about as good by its words. */
const ABOUT_AS_GOOD = 0.6;

/** The best hit and those that are about as good. */
const closest = (hits: Hit[]): Hit[] => hits.filter(({ rank }) => (hits[0]?.rank ?? 0) - rank < CLOSE);

/** What to say on what was found: an answer, a few questions to choose from, or that it is not known. */
export const decide = (making: Making, contact: boolean): EngineReply => {
  const { hits, threshold } = making;
  const [best] = hits;
  const isBoth = making.by === 'both';
  if (best && best.confidence >= threshold) {
    // The confidence of both has looked at the others already.
    const close = best.confidence < 1 && !isBoth ? closest(hits) : [best];
    return close.length > 1 ? askBack(making, close) : sayAnswer(making, best);
  }
  if (contact) return sayText(making, 'contactNoted', 'contact');
  if (best && best.confidence >= threshold * ASK_BACK_SHARE[isBoth ? 'both' : 'words']) {
    const likely = isBoth ? hits : hits.filter(({ rank }) => rank >= best.rank * ABOUT_AS_GOOD);
    return askBack(making, likely, { longShot: best.confidence < threshold * LONG_SHOT_SHARE });
  }
  return sayUnsure(making);
};
