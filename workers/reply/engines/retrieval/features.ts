import { words as wordsIn } from '../../../../src/language/fold.ts';
import type { Near, Spread, Weighed } from '../../vectors/weigh.ts';
import type { KnowledgeEntry } from '../engine.ts';
import { confidenceOf } from './confidence.ts';
import type { KnowledgeGroup, KnowledgeIndex } from './knowledge-index.ts';
import { NO_EVIDENCE, type WordEvidence } from './word-evidence.ts';

/** An entry with all that speaks for it, in the order that `calibration.ts` has weights in. */
export type Seen = {
  entry: KnowledgeEntry;
  group: KnowledgeGroup;
  /** Confidence by its words alone, and the best cosine (0 where it has no vector). */
  words: number;
  cosine: number;
  forRank: number[];
  forConfidence: number[];
};

export type Question = { message: string; spoken: string; index: KnowledgeIndex };

/** So many entries, lying as most do, stand in for those that a small assistant lacks. */
const SUPPOSED = 3;
const USUAL: Spread = { count: SUPPOSED, mean: 0.81, deviation: 0.022 };

const joined = (one: Spread, other: Spread): Spread => {
  const count = one.count + other.count;
  const mean = (one.count * one.mean + other.count * other.mean) / count;
  const squares = [one, other].reduce(
    (sum, each) => sum + each.count * (each.deviation ** 2 + (each.mean - mean) ** 2),
    0,
  );
  return { count, mean, deviation: Math.sqrt(squares / count) };
};

/** Differences of cosines are small: this brings them near 1. */
const SCALE = 20;
const MAX_WORDS = 12;

/** How much of the message a language's entries have never heard of: the same for all of them. */
const strangeIn = (worded: ReadonlyMap<string, WordEvidence>, group: KnowledgeGroup) => {
  const said = [...worded.values()].filter((one) => one.group === group);
  return {
    known: said.find(({ known }) => known !== NO_EVIDENCE)?.known.strange ?? 1,
    literal: said.find(({ literal }) => literal !== NO_EVIDENCE)?.literal.strange ?? 1,
  };
};

/** Every entry that is near by its meaning or shares a word with the message. */
export const featuresOf = (
  { message, spoken, index }: Question,
  worded: ReadonlyMap<string, WordEvidence>,
  weighed: Weighed,
): Seen[] => {
  const [asked, answers] = [joined(weighed.asked, USUAL), joined(weighed.answer, USUAL)];
  const nears = new Map(weighed.entries.map((near): [string, Near] => [near.entryId, near]));
  const length = Math.min(MAX_WORDS, wordsIn(message.slice(0, 400)).length) / MAX_WORDS;

  const strangeTo = new Map(index.groups.map((group) => [group, strangeIn(worded, group)]));
  return [...new Set([...nears.keys(), ...worded.keys()])].flatMap((entryId): Seen[] => {
    const place = index.places.get(entryId);
    if (!place) return []; // removed a moment ago
    const { entry, group } = place;
    const isSpoken = group.language === spoken ? 1 : 0;
    const strange = strangeTo.get(group) ?? { known: 1, literal: 1 };
    const near = nears.get(entryId);
    const said = worded.get(entryId);
    const { known, literal } = said ?? { known: NO_EVIDENCE, literal: NO_EVIDENCE };
    const words = said && known !== NO_EVIDENCE ? confidenceOf(known) : 0;
    const byQuestion = near ? near.asked - asked.mean : 0;
    const byAnswer = near?.answer == null ? 0 : near.answer - answers.mean;
    const cosine = Math.max(near?.asked ?? 0, near?.answer ?? 0);
    return [
      {
        entry,
        group,
        words,
        cosine,
        forRank: [SCALE * byQuestion, SCALE * byAnswer, words, known.covered, isSpoken],
        forConfidence: [
          byQuestion / asked.deviation,
          byAnswer / answers.deviation,
          SCALE * byQuestion,
          SCALE * byAnswer,
          SCALE * (cosine - USUAL.mean),
          words,
          known.covered,
          strange.known,
          literal === NO_EVIDENCE ? 0 : confidenceOf(literal),
          literal.covered,
          strange.literal,
          Math.min(3, literal.matched),
          isSpoken,
          length,
        ],
      },
    ];
  });
};
