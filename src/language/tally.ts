import { baseLanguage } from './base.ts';
import { CHAT_LANGUAGES, chatTokens, weighWords } from './chat-words.ts';

/** Letters that only a few Latin-script languages use. These letters are read before diacritics are folded. */
const LETTERS: readonly (readonly [RegExp, readonly string[]])[] = [
  [/[ạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹơư]/iu, ['vi']],
  [/ß/u, ['de']],
  [/[¿¡]/u, ['es', 'ca']],
  [/ñ/iu, ['es']],
  [/[ğı]|İ/u, ['tr']],
  [/[őű]/iu, ['hu']],
  [/[łżźćńś]/iu, ['pl']],
  [/[řěů]/iu, ['cs']],
  [/[ľĺŕ]/iu, ['sk']],
  [/[țșăţ]/iu, ['ro']],
  [/[ãõ]/iu, ['pt']],
  [/œ|ç[a-z]|[lcdjmnst]’/iu, ['fr']],
  [/[øæ]/iu, ['da', 'no']],
  [/å/iu, ['sv', 'da', 'no']],
  [/[ķļņģ]/iu, ['lv']],
  [/[ėųį]/iu, ['lt']],
  [/đ/iu, ['hr', 'sr']],
  [/l·l/iu, ['ca']],
];
const ONLY_ASCII = /^[\0-\x7f]*$/;

/**
 * Similar languages that the detector confuses. Between such languages, recognised words count more than the detector.
 */
const FAMILIES: readonly (readonly string[])[] = [
  ['hr', 'sr', 'sl'],
  ['da', 'no', 'sv'],
  ['cs', 'sk'],
  ['id', 'ms'],
  ['es', 'ca', 'pt'],
  ['ru', 'uk', 'be', 'bg', 'sr', 'mk'],
];

/** The maximum number of words that are read, which are enough to recognise a language. */
const MAX_WORDS = 40;
const DETECTOR_WEIGHT = 0.8;
const NEIGHBOUR_WEIGHT = 0.4;
/** The text length from which the detector has its full weight. On shorter texts, the detector only guesses. */
const DETECTOR_MIN_LENGTH = 15;
const TIE_BREAK = 0.02;
const SPOKEN_WEIGHT = 1.25;
/**
 * The score from which the result counts as clear. Chosen by tests on the part of the evaluation set that is reserved
 * for tuning.
 */
const CLEAR_SCORE = 0.45;
const CLEAR_LEAD = 0.15;

export type Tally = { best: string | null; by: 'script' | 'lexicon' | 'detector'; clear: boolean };

export type TallyOptions = {
  /** Languages that share the message's script. Null for Latin, which allows any language. */
  among: readonly string[] | null;
  /** The language that the letters of a shared script suggest. */
  hint: string | null;
  allowed: readonly string[];
  detect: (text: string, only: string[]) => { lang: string; accuracy: number }[];
};

const add = (sums: Map<string, number>, language: string, weight: number): void => {
  sums.set(language, (sums.get(language) ?? 0) + weight);
};

const weighLetters = (sample: string, sums: Map<string, number>): void => {
  if (ONLY_ASCII.test(sample)) return;
  for (const [letter, languages] of LETTERS) {
    if (letter.test(sample)) for (const language of languages) add(sums, language, 1 / languages.length);
  }
};

const highest = (sums: Map<string, number>): [string, number][] => [...sums].sort((a, b) => b[1] - a[1]);

/** Adds up the evidence of words, letters and the detector. */
export const tally = (sample: string, { among, hint, allowed, detect }: TallyOptions): Tally => {
  const tokens = chatTokens(sample, MAX_WORDS);
  if (tokens.length === 0) return { best: hint, by: 'script', clear: hint !== null };
  const evidence = weighWords(tokens, among);
  if (!among) weighLetters(sample, evidence);
  if (hint) add(evidence, hint, 1);

  const spoken = allowed.map(baseLanguage).filter((language) => !among || among.includes(language));
  // Without kana, a few Chinese characters may be Chinese or Japanese. The detector would only guess, so it is not
  // asked.
  const detected = among?.includes('ja')
    ? []
    : detect(sample, spoken.length > 0 ? spoken : [...(among ?? CHAT_LANGUAGES)]);

  const likeliest = highest(evidence)[0]?.[0];
  const rivals = FAMILIES.find((family) => likeliest !== undefined && family.includes(likeliest)) ?? [];
  const total = new Map([...evidence].map(([language, weight]) => [language, weight / Math.sqrt(tokens.length)]));
  const enough = Math.min(1, sample.trim().length / DETECTOR_MIN_LENGTH);
  for (const { lang, accuracy } of detected) {
    const isNeighbour = lang !== likeliest && rivals.includes(lang);
    add(total, lang, enough * accuracy * (isNeighbour ? NEIGHBOUR_WEIGHT : DETECTOR_WEIGHT));
  }
  for (const language of spoken) {
    const score = total.get(language);
    if (score !== undefined) total.set(language, score * SPOKEN_WEIGHT);
  }

  // Each language gets a tiny score by its position, to break ties: the tables begin with the most spoken languages.
  for (const [index, language] of CHAT_LANGUAGES.entries()) {
    const score = total.get(language);
    if (score !== undefined) total.set(language, score + TIE_BREAK * (1 - index / CHAT_LANGUAGES.length));
  }
  const [first, second] = highest(total);
  if (!first) return { best: hint ?? spoken[0] ?? among?.[0] ?? null, by: 'script', clear: false };
  const [best, score] = first;
  const clear = score >= CLEAR_SCORE && score - (second?.[1] ?? 0) >= CLEAR_LEAD * score;
  if (hint === best) return { best, by: 'script', clear };
  if (evidence.has(best)) return { best, by: 'lexicon', clear };
  // The result of an unsure detector means nothing. But if the message's script is shared by only a few languages, the
  // first of them is a fair guess.
  return !clear && among ? { best: among[0] ?? best, by: 'script', clear } : { best, by: 'detector', clear };
};
