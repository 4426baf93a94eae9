import { UNSPACED } from '../fold.ts';
import type { Passage } from './passage-parts.ts';
import { type Reading, readTerms } from './terms.ts';

/** A quote has about so many characters at most. A longer sentence is given whole, up to the second limit. */
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

/** The sentences of a text. A line ends one, because lists and tables have a line for each item. */
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
  /** The text before the passage's own that is embedded with it. */
  heading: string;
  /** The cosines of the question's tokens to the passage's, and what each token of the question counts. */
  cosines: Float32Array[] | null;
  weights: Float64Array;
};

/** Sentences that answer. `words` and `tokens` are the shares of the question's words and tokens that they have. */
export type Quote = { text: string; words: number; tokens: number };

/** Of each sentence, the best cosine to each of the question's tokens. */
const tokenScores = (text: string, sentences: Sentence[], heading: string, cosines: Float32Array[]): Float64Array[] => {
  const all = cosines[0]?.length ?? 0;
  const counts = sentences.map(({ from, to }) => countTokens(text.slice(from, to)));
  const before = countTokens(heading);
  const whole = before + counts.reduce((sum, count) => sum + count, 0);
  let done = before;
  return counts.map((count) => {
    // The bounds are estimates, so each sentence gets a token more on both sides.
    const first = Math.max(0, Math.floor((done / whole) * all) - 1);
    done += count;
    const last = Math.min(all, Math.ceil((done / whole) * all) + 1);
    return Float64Array.from(cosines, (row) => row.subarray(first, last).reduce((best, one) => Math.max(best, one), 0));
  });
};

/** The weight of a question's word that is in the headings, because a sentence below need not repeat it. */
const HEADING_SHARE = 0.4;
const WEIGHTS = { words: 0.5, tokens: 2, length: 0.15 };

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
 * question's words and tokens, in at most 400 characters. Null if no sentence is short enough.
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
  const byToken = cosines ? tokenScores(text, sentences, heading, cosines) : null;
  let best: (Quote & { score: number }) | null = null;
  for (const [first, { from }] of sentences.entries()) {
    const [words, tokens] = [new Float64Array(asked.length), new Float64Array(weights.length)];
    for (let last = first; last < sentences.length; last += 1) {
      const own = text.slice(from, sentences[last]?.to).trim();
      if (own.length > (last === first ? QUOTE_CHARS.most : QUOTE_CHARS.aim)) break;
      raise(words, byWord[last] as Float64Array);
      if (byToken) raise(tokens, byToken[last] as Float64Array);
      const quote = { text: own, words: weightedMean(words, wordWeights), tokens: weightedMean(tokens, weights) };
      const length = Math.min(1, own.length / QUOTE_CHARS.aim);
      const score = WEIGHTS.words * quote.words + WEIGHTS.tokens * quote.tokens + WEIGHTS.length * length;
      if (!best || score > best.score) best = { ...quote, score };
    }
  }
  return best && { text: best.text, words: best.words, tokens: best.tokens };
};
