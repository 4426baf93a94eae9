import {
  localCosine,
  localDifference,
  type ModelCalibration,
  PASSAGE_WEIGHTS,
  type PassageCalibration,
} from '../calibration.ts';
import { probability, rankByScore, standingIn } from '../similarity.ts';
import { createLoopShare, rankByTokens, tokenCosines, type TokenVectors } from '../embedder/token-vectors.ts';
import { UNSPACED } from '../fold.ts';
import { normaliseWording } from './knowledge-index.ts';
import type { PassageHit, PassageHits, PassageIndex } from './passage-index.ts';
import { headingOf, type Passage } from './passage-parts.ts';
import { countWords, type Reading, readTerms } from './terms.ts';

/** A quote has at most `aim` characters. A longer sentence is quoted alone and whole, up to `most`. */
const QUOTE_CHARS = { aim: 400, most: 900 };
/** Bounds the work of the segmenter. */
const MAX_CHARS = 2_000;
const MAX_SENTENCES = 120;
const SENTENCE: Reading = { length: 900, words: 200, terms: 200, phrases: false };

/** A sentence of a text, with the space after it. */
type Sentence = { from: number; to: number };

const segmenters = new Map<string, Intl.Segmenter>();
/** Few languages end their sentences in another way, so the others share a segmenter. */
const SEGMENTED = new Set(['el', 'ja', 'zh', 'th', 'hi', 'hy', 'am']);
const segmenterOf = (language: string): Intl.Segmenter => {
  const used = SEGMENTED.has(language) ? language : 'en';
  const known = segmenters.get(used) ?? new Intl.Segmenter(used, { granularity: 'sentence' });
  segmenters.set(used, known);
  return known;
};

/** A sentence does not end after these, though the segmenter says so before a capital letter. */
const ABBREVIATED =
  /(?:^|[\s(„“"'-])(?:\p{L}|\p{L}\.\s?\p{L}|Dr|Mr|Mrs|Ms|Mme|Prof|Nr|No|St|Str|Tel|Art|Abs|Abb|Fig|Vol|approx|bzw|ca|etc|inkl|ggf|evtl|vgl|vs|Sr|Sra|Inc|Ltd|Co|Jan|Feb|Aug|Sept|Oct|Okt|Nov|Dec|Dez|núm|pág|max|min|mind)\.\s*$/iu;
/** The number of a list's item is no sentence. */
const NUMBERED = /^\s*(?:\(?[\p{L}\p{N}]{1,3}[.)]|[-*•–])\s*$/u;

/** The sentences of a text. The end of a line ends a sentence, because lists and tables have a line for each item. */
export const sentencesOf = (text: string, language: string): Sentence[] => {
  const sentences: Sentence[] = [];
  const read = text.slice(0, MAX_CHARS);
  let open: number | null = null;
  for (const { segment, index } of segmenterOf(language).segment(read)) {
    const from: number = open ?? index;
    const to = index + segment.length;
    const own = read.slice(from, to);
    const isOpen = !segment.endsWith('\n') && (ABBREVIATED.test(own.slice(-12)) || NUMBERED.test(own));
    if (isOpen && to < read.length) {
      open = from;
      continue;
    }
    open = null;
    if (own.trim() !== '') sentences.push({ from, to });
  }
  if (open !== null) sentences.push({ from: open, to: read.length });
  return sentences.slice(0, MAX_SENTENCES);
};

/** About how many tokens of the model a text has: the words by their length, and every mark. */
const countTokens = (text: string): number => {
  let count = 0;
  for (const [part] of text.matchAll(/[\p{L}\p{M}\p{N}]+|[^\p{L}\p{M}\p{N}\s]/gu)) {
    count += UNSPACED.test(part) ? part.length / 1.8 : Math.ceil(part.length / 5);
  }
  return count;
};

type QuoteOptions = {
  question: string;
  visitorLanguage: string;
  language: string;
  /** The headings, which are embedded before the passage's own text. */
  heading: string;
  /** The cosines of the question's tokens to the passage's, and the weight of each token of the question. */
  cosines: Float32Array[] | null;
  weights: Float64Array;
};

/** Sentences that answer. `words` and `tokens` are the shares of the question's words and tokens that they have. */
type Quote = { text: string; words: number; tokens: number };

/** For each sentence, its best cosine to each token of the question. */
const tokenScores = (text: string, sentences: Sentence[], heading: string, cosines: Float32Array[]): Float64Array[] => {
  const all = cosines[0]?.length ?? 0;
  const counts = sentences.map(({ from, to }) => countTokens(text.slice(from, to)));
  const before = countTokens(heading);
  const whole = before + counts.reduce((sum, count) => sum + count, 0);
  let done = before;
  return counts.map((count) => {
    // Where a sentence begins and ends is an estimate, so it gets one more token on both sides.
    const first = Math.max(0, Math.floor((done / whole) * all) - 1);
    done += count;
    const last = Math.min(all, Math.ceil((done / whole) * all) + 1);
    return Float64Array.from(cosines, (row) => row.subarray(first, last).reduce((best, one) => Math.max(best, one), 0));
  });
};

/** The weight of a question's word that is in the headings, because a sentence below need not repeat it. */
const HEADING_SHARE = 0.4;
const WEIGHTS = { words: 0.5, tokens: 2, length: 0.15 };
/** A row of a table, as `@parley/reading` writes it. */
const ROW = /^\s*(?:[^:;\n]{1,60}: [^;\n]*; )+[^:;\n]{1,60}: /u;

const weightedMean = (values: Float64Array, weights: Float64Array): number => {
  let [sum, all] = [0, 0];
  for (const [nth, weight] of weights.entries()) {
    sum += weight * (values[nth] ?? 0);
    all += weight;
  }
  return all === 0 ? 0 : sum / all;
};

const raise = (values: Float64Array, by: Float64Array): void => {
  for (const [nth, value] of by.entries()) if (value > (values[nth] as number)) values[nth] = value;
};

/**
 * The sentences of a passage that answer a question, in order and without a gap: those that together have most of the
 * question's words and tokens, in at most 400 characters, or one longer sentence. Null if no sentence is short enough.
 */
export const quoteOf = (
  { text }: Pick<Passage, 'text'>,
  { question, visitorLanguage, language, heading, cosines, weights }: QuoteOptions,
): Quote | null => {
  const sentences = sentencesOf(text, language);
  const asked = readTerms(question, language, visitorLanguage).map(({ stem }) => stem);
  const inHeading = new Set(readTerms(heading, language, language, SENTENCE).map(({ stem }) => stem));
  const wordWeights = Float64Array.from(asked, (stem) => (inHeading.has(stem) ? HEADING_SHARE : 1));
  const byWord = sentences.map(({ from, to }) => {
    const stems = new Set(readTerms(text.slice(from, to), language, language, SENTENCE).map(({ stem }) => stem));
    return Float64Array.from(asked, (stem) => (stems.has(stem) ? 1 : 0));
  });
  const isRow = sentences.map(({ from, to }) => ROW.test(text.slice(from, to)));
  const rows = byWord.filter((_, at) => isRow[at]);
  const rare = asked.flatMap((_, nth) => {
    const count = rows.filter((words) => words[nth] === 1).length;
    return count > 0 && 3 * count <= rows.length ? [nth] : [];
  });
  // If few rows have a word of the question, these are the answer, and the rows between and beside them are not.
  const isBeside = byWord.map((words, at) => isRow[at] === true && rare.length > 0 && !rare.some((nth) => words[nth]));
  const byToken = cosines ? tokenScores(text, sentences, heading, cosines) : null;
  let best: (Quote & { score: number }) | null = null;
  for (const [first, { from }] of sentences.entries()) {
    const [words, tokens] = [new Float64Array(asked.length), new Float64Array(weights.length)];
    let hasRowsBeside = false;
    for (let last = first; last < sentences.length; last += 1) {
      const own = text.slice(from, sentences[last]?.to).trim();
      if (own.length > (last === first ? QUOTE_CHARS.most : QUOTE_CHARS.aim)) break;
      raise(words, byWord[last] as Float64Array);
      if (byToken) raise(tokens, byToken[last] as Float64Array);
      const quote = { text: own, words: weightedMean(words, wordWeights), tokens: weightedMean(tokens, weights) };
      hasRowsBeside ||= isBeside[last] === true;
      const length = Math.min(1, own.length / QUOTE_CHARS.aim) * (hasRowsBeside ? -1 : 1);
      const score = WEIGHTS.words * quote.words + WEIGHTS.tokens * quote.tokens + WEIGHTS.length * length;
      if (!best || score > best.score) best = { ...quote, score };
    }
  }
  return best && { text: best.text, words: best.words, tokens: best.tokens };
};

/** The passages of an assistant for one message. Its functions are called only if words do not give a sure entry. */
export type PassageSearch<Page extends Passage = Passage> = {
  index: PassageIndex;
  /** True if questions have vectors, except when there is none in time. */
  isModelChosen?: boolean;
  /** What fits the decision to the model. Null: it was fitted to the local model. */
  calibration?: () => ModelCalibration | null;
  /**
   * The vector of a question, by the model of the index, and the vectors of its tokens if the model has them. Null if
   * there is none in time.
   */
  embed: (question: string) => Promise<{ vector: Float32Array; tokens: TokenVectors | null } | null>;
  /** Reads at most 30 passages, with their tokens if these are of this kind. Passages that are gone are left out. */
  read: (passageIds: string[], tokenKind: string | null) => Promise<{ passage: Page; tokens: Int8Array | null }[]>;
};

/** What was compared: the words, the one vector of each passage too, or also the vectors of their tokens. */
export type PassageEvidence = 'words' | 'vectors' | 'tokens';

/** A passage with the probability that it has the answer, and its sentences that may be the answer. */
export type FoundPassage<Page extends Passage = Passage> = {
  passage: Page;
  quote: string;
  confidence: number;
  by: PassageEvidence;
  /** BCP 47 tag of its text. */
  language: string;
  /**
   * The share of the question's words that it has, the cosine of its vector, and the mean of the best cosines of its
   * tokens.
   */
  words: number;
  cosine: number | null;
  tokens: number | null;
};

/** The best cosines of the question's tokens: their mean, and the mean weighted by each token's weight. */
type TokenEvidence = { mean: number; weighted: number };

type PassageCandidate<Page extends Passage = Passage> = {
  passage: Page;
  hit: PassageHit;
  tokens: TokenEvidence | null;
  scoreFeatures: number[];
  /** The sentences that answer best. Found when they are asked for, because few candidates need them. */
  quote: () => Quote | null;
};

export type PassageCandidates<Page extends Passage = Passage> = {
  question: string;
  /** False if the question got no vector. */
  hasVector: boolean;
  by: PassageEvidence;
  candidates: PassageCandidate<Page>[];
  visitorLanguage: string;
  cosines: PassageHits['cosines'];
  calibration: ModelCalibration | null;
};

const weightsFor = ({ by, calibration }: PassageCandidates): PassageCalibration =>
  (by === 'words' ? null : calibration?.passages[by]) ?? PASSAGE_WEIGHTS[by];

/** The same as the local model would give it. */
const inLocalUnits = (found: PassageHits, calibration: ModelCalibration | null): PassageHits => {
  if (!calibration) return found;
  const own = calibration.cosines;
  const { count, mean, deviation } = found.cosines;
  return {
    ...found,
    hits: found.hits.map((hit) => ({
      ...hit,
      cosine: hit.cosine === null ? null : localCosine(hit.cosine, own),
      nearness: hit.nearness === null ? null : localDifference(hit.nearness, own),
    })),
    cosines: { count, mean: localCosine(mean, own), deviation: localDifference(deviation, own) },
  };
};

/** How many passages are read for a question. */
const MOST_READ = 30;
/** Differences of cosines are small. These factors bring them near 1, the size of the other features. */
const SCALE = { cosine: 20, token: 10 };
/** The typical cosine and its spread, mixed with the measured ones, because a small source has too few. */
const PRIOR = { count: 5, mean: 0.79, deviation: 0.022 };
/** The share of the candidates that must have vectors, or tokens, for these to count. */
const LEAST_SHARE = 0.7;
const LEAST_WEIGHT = 0.02;
/** The usual length of a passage. A longer one has more words and tokens of any question. */
const USUAL_CHARS = 500;
const LEAST_CHARS = 50;

const meanOf = (values: readonly number[]): number =>
  values.length === 0 ? 0 : values.reduce((sum, one) => sum + one, 0) / values.length;

/** The hits that are read, by a first estimate. */
const mostLikely = ({ hits }: PassageHits): PassageHit[] =>
  hits
    .map((hit) => ({ hit, score: 2 * hit.words + SCALE.cosine * (hit.nearness ?? 0) }))
    .toSorted((one, other) => other.score - one.score)
    .slice(0, MOST_READ)
    .map(({ hit }) => hit);

const hasMost = <One>(all: readonly One[], has: (one: One) => boolean): boolean =>
  all.length > 0 && all.filter(has).length >= LEAST_SHARE * all.length;

/** How much each token of the question counts: more, if some candidates have it and others do not. */
const weightsOf = (best: readonly Float64Array[]): Float64Array =>
  Float64Array.from(best[0] ?? [], (_, nth) => {
    const values = best.map((one) => one[nth] as number);
    return Math.max(LEAST_WEIGHT, Math.max(...values) - meanOf(values));
  });

const tokenEvidence = (best: Float64Array, weights: Float64Array): TokenEvidence => {
  let [sum, weighted, all] = [0, 0, 0];
  for (const [nth, value] of best.entries()) {
    const weight = weights[nth] as number;
    sum += value;
    weighted += weight * value;
    all += weight;
  }
  return { mean: sum / best.length, weighted: weighted / all };
};

/** Finds the passages that may answer a question, with the evidence for each. */
export const collectPassages = async <Page extends Passage>(
  { index, embed, read, calibration: calibrationOf = () => null }: PassageSearch<Page>,
  question: string,
  visitorLanguage: string,
): Promise<PassageCandidates<Page>> => {
  const asked = await embed(question);
  const calibration = calibrationOf();
  const found = inLocalUnits(await index.search(question, visitorLanguage, asked?.vector ?? null), calibration);
  const likely = mostLikely(found);
  const kind = asked?.tokens?.kind ?? null;
  const texts =
    likely.length === 0
      ? []
      : await read(
          likely.map(({ passageId }) => passageId),
          kind,
        );
  const byId = new Map(texts.map((one) => [one.passage.passageId, one]));
  const known = likely.flatMap((hit) => {
    const one = byId.get(hit.passageId);
    return one ? [{ hit, passage: one.passage, tokens: one.tokens }] : [];
  });
  const withTokens =
    asked?.tokens && kind !== null
      ? await rankByTokens(
          asked.tokens,
          known.flatMap((one) => (one.tokens ? [{ ...one, kind, tokens: one.tokens }] : [])),
        )
      : [];
  const by: PassageEvidence =
    !asked || !hasMost(known, ({ hit }) => hit.cosine !== null)
      ? 'words'
      : withTokens.length > 0 && withTokens.length >= LEAST_SHARE * known.length
        ? 'tokens'
        : 'vectors';
  const weights = weightsOf(withTokens.map(({ best }) => best));
  const evidence = new Map(
    withTokens.map(({ candidate, best }) => [candidate.passage.passageId, tokenEvidence(best, weights)]),
  );
  const means = [...evidence.values()];
  const [mean, weightedMean] = [meanOf(means.map((one) => one.mean)), meanOf(means.map((one) => one.weighted))];
  const candidates = known.map(({ hit, passage, tokens: own }): PassageCandidate<Page> => {
    const tokens = by === 'tokens' ? (evidence.get(passage.passageId) ?? null) : null;
    let quote: Quote | null | undefined;
    return {
      passage,
      hit,
      tokens,
      scoreFeatures: [
        hit.words,
        hit.coverage,
        hit.headings,
        Math.log(Math.max(LEAST_CHARS, passage.text.length) / USUAL_CHARS),
        ...(by === 'words' ? [] : [SCALE.cosine * (hit.nearness ?? 0)]),
        ...(by === 'tokens'
          ? [
              SCALE.token * ((tokens?.mean ?? mean) - mean),
              SCALE.token * ((tokens?.weighted ?? weightedMean) - weightedMean),
            ]
          : []),
      ],
      quote: () => {
        if (quote !== undefined) return quote;
        const cosines = by === 'tokens' && asked?.tokens && own ? tokenCosines(asked.tokens.tokens, own) : null;
        const heading = headingOf(passage);
        quote = quoteOf(passage, { question, visitorLanguage, language: hit.language, heading, cosines, weights });
        return quote;
      },
    };
  });
  return {
    question,
    hasVector: asked !== null,
    by,
    candidates,
    visitorLanguage,
    cosines: found.cosines,
    calibration,
  };
};

type Scored<Page extends Passage> = PassageCandidate<Page> & { score: number };

/** The typical mean of the best cosines of tokens. */
const TYPICAL_TOKEN = 0.6;
/** The lead that a passage gets if there is no other, and the most that counts: of few passages, one easily leads. */
const LEAD = { lone: 2, most: 3 };
/** How many words a question usually has, and the most that count. A short one says little, so it is nearer to any text. */
const QUESTION_WORDS = { usual: 6, most: 12 };

/** The features of the confidence in the passage at `position`. The first one is the bias. */
export const passageFeatures = <Page extends Passage>(
  { question, by, visitorLanguage, cosines }: PassageCandidates<Page>,
  ranked: readonly Scored<Page>[],
  position: number,
): number[] => {
  const own = ranked[position];
  if (!own) return [];
  const { hit, tokens } = own;
  const quote = own.quote();
  const { lead, share } = standingIn(ranked, position);
  // Words say nothing about a passage in another language.
  const isSpoken = hit.language === visitorLanguage ? 1 : 0;
  const count = cosines.count + PRIOR.count;
  const mean = (cosines.count * cosines.mean + PRIOR.count * PRIOR.mean) / count;
  const deviation = (cosines.count * cosines.deviation + PRIOR.count * PRIOR.deviation) / count;
  return [
    1,
    lead === null ? LEAD.lone : Math.min(LEAD.most, lead),
    share,
    isSpoken,
    isSpoken * hit.coverage,
    isSpoken * (quote?.words ?? 0),
    Math.log(Math.min(QUESTION_WORDS.most, Math.max(1, countWords(question, visitorLanguage))) / QUESTION_WORDS.usual),
    ...(by === 'words'
      ? []
      : [((hit.cosine ?? mean) - mean) / deviation, SCALE.cosine * ((hit.cosine ?? mean) - PRIOR.mean)]),
    ...(by === 'tokens' ? [SCALE.token * ((tokens?.mean ?? 0) - TYPICAL_TOKEN)] : []),
  ];
};

/** How many passages get a quote and a confidence. */
const MOST_FOUND = 8;
/** A quote takes about a millisecond. After this time, other work has its turn. */
const SLICE_MS = 4;

/** True if a message is just the headings of a passage: the button of an offered passage sends these. */
const isHeadingOf = (question: string, { title, path }: Passage): boolean => {
  const asked = normaliseWording(question);
  return asked !== '' && [[title, ...path], path].some((names) => normaliseWording(names.join(': ')) === asked);
};

/** A question for a section by its number, as “section 2.1”, “§ 4” or “第3条”. */
const SECTION =
  /(?:§{1,2}|(?<!\p{L})(?:section|sect?|chapter|clause|article|paragraph|abschnitt|kapitel|ziffer|artikel|paragraf|punkt|chapitre|paragraphe|secci[oó]n|cap[ií]tulo|art[ií]culo|cl[aá]usula|apartado|se[cç][aã]o|artigo|sezione|capitolo|articolo|hoofdstuk|rozdzia[lł]|раздел\p{L}*|пункт\p{L}*|глав\p{L}+|стать\p{L}+|bölüm|madde))\.?\s{0,3}(\d{1,3}(?:\.\d{1,3}){0,4})(?!\d|\.\d)|第\s?(\d{1,3}(?:\.\d{1,3}){0,4})\s?[条條章节節款項]/iu;
const sectionIn = (question: string): string | null => {
  const [, one, other] = SECTION.exec(question) ?? [];
  return one ?? other ?? null;
};
/** The number of a heading. A word may be before it, as in “Article 5”. */
const HEADING_NUMBER = /^\s*(?:§{1,2}\s*|\p{L}{1,20}\s)?(\d{1,3}(?:\.\d{1,3}){0,4})[.)]?(?=\s|$)/u;

const numberOf = (heading: string): string | undefined => HEADING_NUMBER.exec(heading.slice(0, 60))?.[1];
/** The number of a line that is a heading: `@parley/reading` writes those of short sections into the text. */
const numberOfLine = (line: string): string | undefined =>
  /[.;!?。]$/u.test(line) ? undefined : numberOf(line.slice(line.lastIndexOf(' › ') + 1).replace(/^› /, ''));

/** What stands below the heading with this number, cut after a sentence. Null: the passage has no such heading. */
const textUnder = (asked: string, { path, text }: Passage, language: string): string | null => {
  const lines = text.split('\n');
  const numbers = lines.map(numberOfLine);
  const own = numbers.indexOf(asked);
  if (own === -1 && numberOf(path.at(-1) ?? '') !== asked) return null;
  const next = numbers.findIndex((number, at) => at > own && number !== undefined);
  const section = lines.slice(Math.max(0, own), next === -1 ? undefined : next).join('\n');
  const last = sentencesOf(section, language).findLast(({ to }) => to <= QUOTE_CHARS.most);
  return section.slice(0, last?.to ?? 0).trim() || null;
};

/** How likely the section that a question names is the answer: if only one has this number, and if several have. */
const NAMED = { one: 0.95, several: 0.5 };

/** The best passages, with the probability of each that its quote is the answer. */
export const rankPassages = async <Page extends Passage>(
  found: PassageCandidates<Page>,
  calibration: PassageCalibration = weightsFor(found),
): Promise<FoundPassage<Page>[]> => {
  const ranked = rankByScore(found.candidates, calibration.score);
  const best: FoundPassage<Page>[] = [];
  const share = createLoopShare(SLICE_MS);
  await share.next();
  const asked = sectionIn(found.question);
  const named = new Map<Scored<Page>, string>();
  for (const one of ranked) {
    if (asked === null) break;
    if (share.isOver()) await share.next();
    const text = textUnder(asked, one.passage, one.hit.language);
    if (text !== null) named.set(one, text);
  }
  const sections = new Set([...named.keys()].map(({ passage: { title, path } }) => [title, ...path].join('\n')));
  const likely = new Set([...named.keys(), ...ranked]);
  for (const one of [...likely].slice(0, MOST_FOUND)) {
    if (share.isOver()) await share.next();
    const text = named.get(one) ?? one.quote()?.text;
    if (text === undefined) continue;
    const features = passageFeatures(found, ranked, ranked.indexOf(one));
    const measured = probability(features, calibration.confidence);
    const whole = isHeadingOf(found.question, one.passage) ? 1 : measured;
    best.push({
      passage: one.passage,
      quote: text,
      by: found.by,
      confidence: named.has(one) ? Math.max(whole, sections.size === 1 ? NAMED.one : NAMED.several) : whole,
      language: one.passage.language ?? one.hit.language,
      words: one.hit.coverage,
      cosine: one.hit.cosine,
      tokens: one.tokens?.mean ?? null,
    });
  }
  if (named.size > 0) return best.toSorted((one, other) => other.confidence - one.confidence);
  return best.toSorted((one, other) => Number(other.confidence === 1) - Number(one.confidence === 1));
};

/** Finds the passages that may answer a question, the most likely first. `hasVector`: false if words alone were compared. */
export const findPassages = async <Page extends Passage>(
  search: PassageSearch<Page>,
  question: string,
  visitorLanguage: string,
): Promise<{ found: FoundPassage<Page>[]; hasVector: boolean }> => {
  const candidates = await collectPassages(search, question, visitorLanguage);
  return { found: await rankPassages(candidates), hasVector: candidates.hasVector };
};
