import type { Weighed } from '../../vectors/weigh.ts';
import type { TurnContext } from '../engine.ts';
import { calibrated, doubted, type Ranked } from './calibration.ts';
import { doubtsOf, withoutStrange } from './doubt.ts';
import { featuresOf, type Question } from './features.ts';
import type { Hit } from './find-answer.ts';
import { askedBefore } from './follow-up.ts';
import type { KnowledgeIndex } from './knowledge-index.ts';
import { readWords, type WordEvidence } from './word-evidence.ts';

type Asked = { turn: TurnContext; question: string; spoken: string; index: KnowledgeIndex };
type Found = { ranked: Ranked[]; whole: Weighed };

const MAX_HITS = 3;
/** Below, nothing makes an answer of it, and above, nothing takes it away: no doubt needs to be looked into. */
const WORTH_A_DOUBT = { from: 0.35, to: 0.95 };

const findOne = async (
  { turn, spoken, index }: Asked,
  message: string,
  worded: ReadonlyMap<string, WordEvidence> = readWords(message, index, spoken),
): Promise<Found | null> => {
  const asked: Question = { message, spoken, index };
  const whole = await turn.meaning?.(message, new Set(worded.keys()));
  if (!whole) return null;
  const [first, ...others] = calibrated(featuresOf(asked, worded, whole));
  if (!first) return { ranked: [], whole };
  const { from, to } = WORTH_A_DOUBT;
  const isOpen = first.confidence >= from && first.confidence <= to;
  const rest = isOpen ? withoutStrange(asked, first) : null;
  const weighed = rest === null ? null : await turn.meaning?.(rest, new Set([first.entry.entryId]), { keptOnly: true });
  const doubts = weighed ? doubtsOf(first.entry.entryId, whole, weighed) : null;
  const sure = doubts ? { ...first, confidence: doubted(first.confidence, doubts) } : first;
  return { ranked: [sure, ...others], whole };
};

/**
 * A question put together with the one before it goes on with an entry whose answer is hardly further away than by the one
 * before alone. What brings up new words must bring it nearer, and is a poor guess even so: "and a climbing wall?"
 */
const GOES_ON = { known: { furthest: 0.3, share: 1 }, strange: { furthest: 0.1, share: 0.65 } };
const STRANGE = 0.5;

const bringsUpNew = (worded: ReadonlyMap<string, WordEvidence>): boolean =>
  ![...worded.values()].some(({ known }) => known.strange < STRANGE);

/** What a question finds that leans on the one before it. */
const findTogether = async (asked: Asked, before: string, isNew: boolean): Promise<Hit[]> => {
  const message = `${before} ${asked.question}`;
  const worded = readWords(message, asked.index, asked.spoken);
  const whole = await asked.turn.meaning?.(message, new Set(worded.keys()));
  const [first, ...others] = whole ? calibrated(featuresOf({ ...asked, message }, worded, whole)) : [];
  if (!whole || !first) return [];
  const alone = await asked.turn.meaning?.(before, new Set([first.entry.entryId]), { keptOnly: true });
  const [, further = Number.POSITIVE_INFINITY] = (alone && doubtsOf(first.entry.entryId, whole, alone)) ?? [];
  const { furthest, share } = GOES_ON[isNew ? 'strange' : 'known'];
  return further > furthest ? [] : [{ ...first, confidence: first.confidence * share }, ...others];
};

/** The likeliest entries by words and meaning. Null: what was meant cannot be told right now. */
export const findByMeaning = async (asked: Asked): Promise<Hit[] | null> => {
  const worded = readWords(asked.question, asked.index, asked.spoken);
  const before = await askedBefore(asked.turn);
  const [own, together] = await Promise.all([
    findOne(asked, asked.question, worded),
    before === null ? [] : findTogether(asked, before, bringsUpNew(worded)),
  ]);
  if (!own) return null;
  const better = (together[0]?.confidence ?? 0) > (own.ranked[0]?.confidence ?? 0) ? together : own.ranked;
  return better.slice(0, MAX_HITS);
};
