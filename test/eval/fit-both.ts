import { baseLanguage } from '../../src/language/base.ts';
import { decideLanguage } from '../../src/language/decide.ts';
import { type Calibration, doubted, rankSeen, standingOf } from '../../workers/reply/engines/retrieval/calibration.ts';
import { doubtsOf, withoutStrange } from '../../workers/reply/engines/retrieval/doubt.ts';
import { featuresOf, type Seen } from '../../workers/reply/engines/retrieval/features.ts';
import { buildIndex } from '../../workers/reply/engines/retrieval/knowledge-index.ts';
import { searchGroup } from '../../workers/reply/engines/retrieval/search.ts';
import { readWords } from '../../workers/reply/engines/retrieval/word-evidence.ts';
import { fitChoice, fitLogistic, logit, probability } from './least.ts';
import { BASES, isEntry, loadBase, loadQuestions, loadUnseen, type Question, UNSEEN_BASES } from './sets.ts';
import type { TextVectors } from './vectors.ts';

type Example = {
  base: string;
  made: boolean;
  expected: string[];
  weight: number;
  seen: Seen[];
  /** By entry. */
  doubts: Map<string, number[]>;
};

const RIDGE = { rank: 0.002, confidence: 0.005, doubt: 0.01 };
/** What a question counts that was asked of a base without its answer: they are many, and made. */
const MADE_WEIGHT = 0.05;
/** What a question to a domain counts that the engine's words were written with: it is easier than life. */
const KNOWN_SHARE = 0.5;
/** Entries that may come out first with some weights. */
const DOUBTED = 4;

/** Tune questions as the engine sees them; also with the right answer taken away, since they then must not be answered. */
const examplesOf = async (vectors: TextVectors): Promise<Example[]> => {
  const examples: Example[] = [];
  const questions = [...loadQuestions(), ...loadUnseen()].filter(({ half }) => half === 'tune');
  for (const base of [...BASES, ...UNSEEN_BASES]) {
    const assistant = loadBase(base);
    const all = await vectors.knownEntries(assistant.knowledge);
    const see = async ({ message }: Question, without: string[]) => {
      const knowledge = assistant.knowledge.filter(({ entryId }) => !isEntry(entryId, without));
      const index = buildIndex({ ...assistant, knowledge });
      const { language } = decideLanguage({ message, allowed: assistant.languages });
      const asked = { message, spoken: baseLanguage(language), index };
      const doubts = new Map<string, number[]>();
      if (index.groups.some((group) => searchGroup(message, group, asked.spoken).exact)) return { seen: [], doubts };
      const meaning = vectors.meaningOf(all.filter(({ entryId }) => !isEntry(entryId, without)));
      const worded = readWords(message, index, asked.spoken);
      const whole = await meaning(message, new Set(worded.keys()));
      const seen = whole ? featuresOf(asked, worded, whole) : [];
      for (const one of rankSeen(seen).slice(0, DOUBTED)) {
        const rest = withoutStrange(asked, one);
        const weighed = rest === null ? null : await meaning(rest, new Set([one.entry.entryId]), { keptOnly: true });
        const found = whole && weighed ? doubtsOf(one.entry.entryId, whole, weighed) : null;
        if (found) doubts.set(one.entry.entryId, found);
      }
      return { seen, doubts };
    };
    for (const question of questions.filter((one) => one.base === base)) {
      const share = BASES.includes(base) ? KNOWN_SHARE : 1;
      examples.push({ base, made: false, expected: question.expected, weight: share, ...(await see(question, [])) });
      if (question.expected.length === 0) continue;
      examples.push({
        base,
        made: true,
        expected: [],
        weight: share * MADE_WEIGHT,
        ...(await see(question, question.expected)),
      });
    }
  }
  return examples.filter(({ seen }) => seen.length > 0);
};

const fit = (examples: Example[]): Calibration => {
  const known = examples.filter(({ seen, expected }) => seen.some(({ entry }) => isEntry(entry.entryId, expected)));
  const rank = fitChoice(
    known.map(({ seen, expected, weight }) => ({
      weight,
      features: seen.map(({ forRank }) => forRank),
      right: seen.map(({ entry }) => isEntry(entry.entryId, expected)),
    })),
    RIDGE.rank,
  );
  const samples = examples.map(({ seen, expected, weight, doubts }) => {
    const ranked = rankSeen(seen, { rank, confidence: [], doubt: [] });
    const entryId = ranked[0]?.entry.entryId ?? '';
    return { features: standingOf(ranked, 0), right: isEntry(entryId, expected), weight, doubts: doubts.get(entryId) };
  });
  const confidence = fitLogistic(samples, RIDGE.confidence);
  const doubtful = samples.flatMap(({ features, doubts, ...sample }) =>
    doubts ? [{ ...sample, features: [1, logit(probability(confidence, features)), ...doubts] }] : [],
  );
  return { rank, confidence, doubt: fitLogistic(doubtful, RIDGE.doubt) };
};

export type Told = { right: boolean; three: boolean; sure: number; answerable: boolean };

/** How a calibration does on examples. */
const tryOut = (calibration: Calibration, examples: Example[]): Told[] =>
  examples.map(({ seen, expected, doubts }) => {
    const ranked = rankSeen(seen, calibration);
    const entryId = ranked[0]?.entry.entryId ?? '';
    const first = probability(calibration.confidence, standingOf(ranked, 0));
    const doubt = doubts.get(entryId);
    return {
      right: isEntry(entryId, expected),
      three: ranked.slice(0, 3).some(({ entry }) => isEntry(entry.entryId, expected)),
      sure: doubt ? doubted(first, doubt, calibration) : first,
      answerable: expected.length > 0,
    };
  });

/** The fit, and how a fit without a domain does on that domain: what counts is the domain that nobody has seen. */
export const fitBoth = async (vectors: TextVectors) => {
  const examples = await examplesOf(vectors);
  const unseen = [...BASES, ...UNSEEN_BASES].map((domain) => ({
    domain,
    told: tryOut(
      fit(examples.filter(({ base }) => base !== domain)),
      examples.filter(({ base, made }) => base === domain && !made),
    ),
  }));
  return { examples: examples.length, calibration: fit(examples), unseen };
};
