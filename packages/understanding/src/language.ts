import { detectAll } from './detector.ts';
import { baseLanguage, fold, LEXICON, LOAN_WORDS, words } from './fold.ts';

const UNMARKED_WEIGHT = 0.8;
const LOAN_WEIGHT = 0.3;
const SHARING = 0.7;
const LONGEST_PHRASE = 4;

type Tables = {
  /** The languages of each phrase, and how well it is spelt in them. */
  weights: ReadonlyMap<string, readonly (readonly [language: string, weight: number])[]>;
  loans: ReadonlySet<string>;
};

const readTables = (): Tables => {
  const weights = new Map<string, [language: string, weight: number][]>();
  for (const [language, lists] of Object.entries(LEXICON)) {
    const note = (phrases: string, weight: number): void => {
      for (const phrase of phrases.split('|')) {
        const known = weights.get(phrase);
        if (!known) weights.set(phrase, [[language, weight]]);
        else if (known.at(-1)?.[0] !== language) known.push([language, weight]);
      }
    };
    const spelled = Object.values(lists).join('|').toLowerCase();
    note(spelled, 1);
    // Visitors often omit diacritics. The spelling without diacritics weighs a little less than the correct spelling.
    note(fold(spelled), UNMARKED_WEIGHT);
  }
  return { weights, loans: new Set(LOAN_WORDS.split('|').map(fold)) };
};

let tables: Tables | undefined;
/** The tables of chat words. They are made for the first message, because most processes decide no language. */
const wordTables = (): Tables => (tables ??= readTables());

/** The weight of a phrase for each language. A phrase that many languages share has a small weight for each. */
const sharesOf = (phrase: string, among: readonly string[] | null): (readonly [language: string, share: number])[] => {
  const { weights, loans } = wordTables();
  const languages = (weights.get(phrase) ?? []).filter(([language]) => !among || among.includes(language));
  const spread = languages.length ** SHARING;
  const loan = loans.has(phrase) ? LOAN_WEIGHT : 1;
  return languages.map(([language, weight]) => [language, (weight * loan) / spread]);
};

/** The longest known phrase that starts at this token. */
const phraseAt = (tokens: readonly string[], at: number): { phrase: string; length: number } | null => {
  const { weights } = wordTables();
  for (let length = Math.min(LONGEST_PHRASE, tokens.length - at); length > 0; length -= 1) {
    const phrase = length === 1 ? (tokens[at] ?? '') : tokens.slice(at, at + length).join(' ');
    if (weights.has(phrase)) return { phrase, length };
  }
  return null;
};

const DRAWN_OUT = /(.)\1{2,}/gu;

const chatTokens = (text: string, most: number): string[] => {
  const { weights } = wordTables();
  const tokens = words(text.toLowerCase().replaceAll('’', "'")).slice(0, most);
  return tokens.map((token) => (weights.has(token) ? token : token.replace(DRAWN_OUT, '$1')));
};

/** The weight of a message's words for each language. */
const weighWords = (tokens: readonly string[], among: readonly string[] | null): Map<string, number> => {
  const sums = new Map<string, number>();
  for (let at = 0; at < tokens.length; ) {
    const found = phraseAt(tokens, at);
    at += found?.length ?? 1;
    if (!found) continue;
    for (const [language, share] of sharesOf(found.phrase, among))
      sums.set(language, (sums.get(language) ?? 0) + share * found.length);
  }
  return sums;
};

const CHAT_LANGUAGES: readonly string[] = Object.keys(LEXICON);

/** Scripts that almost always mean one language in chats. */
const OWNED: readonly (readonly [RegExp, string])[] = [
  [/\p{Script=Hangul}/gu, 'ko'],
  [/\p{Script=Thai}/gu, 'th'],
  [/\p{Script=Greek}/gu, 'el'],
  [/\p{Script=Hebrew}/gu, 'he'],
  [/\p{Script=Bengali}/gu, 'bn'],
  [/\p{Script=Tamil}/gu, 'ta'],
  [/\p{Script=Telugu}/gu, 'te'],
  [/\p{Script=Gujarati}/gu, 'gu'],
  [/\p{Script=Gurmukhi}/gu, 'pa'],
  [/\p{Script=Kannada}/gu, 'kn'],
  [/\p{Script=Malayalam}/gu, 'ml'],
  [/\p{Script=Sinhala}/gu, 'si'],
  [/\p{Script=Georgian}/gu, 'ka'],
  [/\p{Script=Armenian}/gu, 'hy'],
  [/\p{Script=Lao}/gu, 'lo'],
  [/\p{Script=Khmer}/gu, 'km'],
  [/\p{Script=Myanmar}/gu, 'my'],
  [/\p{Script=Ethiopic}/gu, 'am'],
];

const HAN = /\p{Script=Han}/gu;
const KANA = /[\p{Script=Hiragana}\p{Script=Katakana}]/gu;

/**
 * Scripts that several languages share. `letters` lists letters that only one of these languages uses. The first
 * language is the default.
 */
const SHARED: readonly {
  script: RegExp;
  languages: readonly string[];
  letters: readonly (readonly [RegExp, string])[];
}[] = [
  {
    script: HAN,
    languages: ['zh', 'ja'],
    letters: [
      [/[営価駅払円気働込畑]/u, 'ja'],
      [/[这吗们个谢请问么买对时说东车书钱见嗎們麼對說錢您你哪吧呢啊]/u, 'zh'],
    ],
  },
  {
    script: /\p{Script=Cyrillic}/gu,
    languages: ['ru', 'uk', 'bg', 'sr', 'be', 'mk', 'kk'],
    letters: [
      [/[ўЎ]/u, 'be'],
      [/[їєґЇЄҐ]/u, 'uk'],
      [/[әғқңөұүһ]/iu, 'kk'],
      [/[ѓќѕ]/iu, 'mk'],
      [/[ђћјљњџ]/iu, 'sr'],
      [/[ыэё]/iu, 'ru'],
      [/[іІ]/u, 'uk'],
    ],
  },
  {
    script: /\p{Script=Arabic}/gu,
    languages: ['ar', 'fa', 'ur'],
    letters: [
      [/[ٹڈڑںےہھ]/u, 'ur'],
      [/[پچژگ]/u, 'fa'],
      [/[ةىأإؤ]/u, 'ar'],
      [/[یک]/u, 'fa'],
    ],
  },
  { script: /\p{Script=Devanagari}/gu, languages: ['hi', 'mr', 'ne'], letters: [[/ळ|आहे|आहात/u, 'mr']] },
];

/**
 * The languages that a text's script allows: one certain language, several languages that share the script, or null for
 * Latin, digits and emoji.
 */
type ScriptVerdict = { certain: string } | { among: readonly string[]; hint: string | null } | null;

const count = (text: string, pattern: RegExp): number => text.match(pattern)?.length ?? 0;
const LATIN = /\p{Script=Latin}/gu;
const ONLY_LATIN = /^[\p{Script=Latin}\p{Script=Common}\p{Script=Inherited}]*$/u;

const readScript = (text: string): ScriptVerdict => {
  if (ONLY_LATIN.test(text)) return null;
  // Texts often contain product names in Latin letters. These names are long and say little about the language, so three
  // Latin letters count as one other letter.
  let best = count(text, LATIN) / 3;
  // Japanese mixes scripts, so a few kana among many kanji are enough to recognise Japanese.
  const kana = count(text, KANA);
  if (kana > 0 && kana + count(text, HAN) >= best) return { certain: 'ja' };
  let verdict: ScriptVerdict = null;
  for (const [script, language] of OWNED) {
    const letters = count(text, script);
    if (letters > 0 && letters >= best) [best, verdict] = [letters, { certain: language }];
  }
  for (const { script, languages, letters } of SHARED) {
    const found = count(text, script);
    if (found < best || found === 0) continue;
    const hint = letters.find(([letter]) => letter.test(text))?.[1] ?? null;
    best = found;
    verdict = { among: languages, hint };
  }
  return verdict;
};

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
/** How many characters the detector gets. The detector is slow on long texts, and one or two sentences are enough. */
const DETECTOR_LENGTH = 200;
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

type Tally = { best: string | null; by: 'script' | 'lexicon' | 'detector'; clear: boolean };

type TallyOptions = {
  /** Languages that share the message's script. Null for Latin, which allows any language. */
  among: readonly string[] | null;
  /** The language that the letters of a shared script suggest. */
  hint: string | null;
  allowed: readonly string[];
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
const tally = (sample: string, { among, hint, allowed }: TallyOptions): Tally => {
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
    : detectAll(sample.slice(0, DETECTOR_LENGTH), spoken.length > 0 ? spoken : (among ?? CHAT_LANGUAGES));

  const likeliest = highest(evidence)[0]?.[0];
  const rivals = FAMILIES.find((family) => likeliest !== undefined && family.includes(likeliest)) ?? [];
  const total = new Map([...evidence].map(([language, weight]) => [language, weight / Math.sqrt(tokens.length)]));
  const enough = Math.min(1, sample.trim().length / DETECTOR_MIN_LENGTH);
  for (const { language, accuracy } of detected) {
    const isNeighbour = language !== likeliest && rivals.includes(language);
    add(total, language, enough * accuracy * (isNeighbour ? NEIGHBOUR_WEIGHT : DETECTOR_WEIGHT));
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

/** The language of texts that are in several: no language's share is large enough. */
const SEVERAL = 'mul';
const MAIN_SHARE = 0.8;

/** The base language of most texts, `mul` if they are in several, or null if none is known. */
export const mainLanguage = (texts: Iterable<{ language: string | null; count?: number }>): string | null => {
  const counts = new Map<string, number>();
  let total = 0;
  for (const { language, count: many = 1 } of texts) {
    if (language === null) continue;
    add(counts, baseLanguage(language), many);
    total += many;
  }
  const [first] = highest(counts);
  if (!first || total === 0) return null;
  return first[1] >= MAIN_SHARE * total ? first[0] : SEVERAL;
};

/** The one language of all these. Null if there is none, or several: then a short message says nothing. */
export const sameLanguage = (languages: (string | null | undefined)[]): string | null => {
  const [first, ...others] = new Set(languages.filter((one) => one !== null && one !== undefined));
  return first === undefined || first === SEVERAL || others.length > 0 ? null : first;
};

/** Why a language was chosen. It is stored with the turn, so that every decision can be explained. */
export type LanguageDecision = {
  language: string;
  by: 'given' | 'script' | 'lexicon' | 'detector' | 'previous' | 'default';
  /**
   * True if the message or its sender decides the language. If false, the caller must look up the conversation's
   * language first.
   */
  decided: boolean;
};

/** What is known of a message and its conversation. */
export type LanguageEvidence = {
  /** The canonical BCP 47 tag that was sent with the message. */
  given?: string | null | undefined;
  message: string;
  /** Languages of the assistant, the preferred one first. An empty list allows any language. */
  allowed?: readonly string[] | undefined;
  /** The conversation's language so far. */
  previous?: string | null | undefined;
  /** The language of what the assistant knows, for an assistant without languages. */
  usual?: string | null | undefined;
};

/**
 * How many characters of a message are read. They are enough to recognise the language, and more would only cost time.
 */
const SAMPLE_LENGTH = 500;
/** Matches addresses, links and handles, which do not show the language of a message. */
const NOT_LANGUAGE = /@|:\/\/|^www\.|^#/u;

/** Names and codes, such as iPhone, RTX and 256GB, are written alike in all languages. */
const INNER_CAPITAL = /\p{Ll}\p{Lu}/u;
const CAPITALS = /^\p{Lu}{2,}$/u;
const LETTER = /\p{L}/u;
const isNameOrCode = (word: string, isShouted: boolean): boolean =>
  INNER_CAPITAL.test(word) || (/\d/.test(word) && LETTER.test(word)) || (!isShouted && CAPITALS.test(word));
/** So few words beside names and codes, such as "Pro Max", may belong to the names. */
const FEW_WORDS = 2;

/** Where each word has a capital, one known small word is part of a name: "Tesla Model Y", "Nespresso Vertuo Plus". */
const SMALL = /^[a-z]{1,4}$/u;
const CAPITAL = /^[^\p{L}]*(?:\p{Lu}|$)/u;
const isName = (said: readonly string[]): boolean => {
  const tokens = words(said.join(' ').toLowerCase());
  const [found, ...others] = tokens.filter((token) => phraseAt([token], 0) !== null);
  return (
    tokens.length > 1 && said.every((word) => CAPITAL.test(word)) && others.length === 0 && SMALL.test(found ?? '')
  );
};

/** The full tag that the conversation or the assistant uses for a base language. */
const asSpoken = (base: string, { allowed = [], previous }: LanguageEvidence): string => {
  if (previous && baseLanguage(previous) === base) return previous;
  return allowed.find((tag) => baseLanguage(tag) === base) ?? base;
};

const fallBack = (
  evidence: LanguageEvidence,
  guess: { base: string; by: 'script' | 'lexicon' | 'detector' } | null,
): LanguageDecision => {
  if (evidence.previous) return { language: evidence.previous, by: 'previous', decided: false };
  if (guess) return { language: asSpoken(guess.base, evidence), by: guess.by, decided: false };
  return { language: evidence.allowed?.[0] ?? evidence.usual ?? 'en', by: 'default', decided: false };
};

/**
 * Decides the language of a message. The order of evidence is: the given tag, the script, chat words and a detector,
 * then the conversation's language.
 */
export const decideLanguage = (evidence: LanguageEvidence): LanguageDecision => {
  if (evidence.given) return { language: evidence.given, by: 'given', decided: true };
  const beginning = evidence.message.slice(0, SAMPLE_LENGTH);
  const isShouted = !/\p{Ll}/u.test(beginning);
  const said = beginning.split(/\s+/u).filter((word) => !NOT_LANGUAGE.test(word));
  const plain = said.filter((word) => !isNameOrCode(word, isShouted));
  const sample = plain.join(' ').replace(/\d+/gu, ' ');
  const script = readScript(sample);
  if (script && 'certain' in script) {
    return { language: asSpoken(script.certain, evidence), by: 'script', decided: true };
  }

  const counted = tally(sample, {
    among: script?.among ?? null,
    hint: script?.hint ?? null,
    allowed: evidence.allowed ?? [],
  });
  if (counted.best === null) return fallBack(evidence, null);
  const guess = { base: counted.best, by: counted.by };
  const known = [evidence.previous ?? '', ...(evidence.allowed ?? [])].map(baseLanguage);
  const isRest = plain.length < said.length && plain.filter((word) => LETTER.test(word)).length <= FEW_WORDS;
  const isThin = isRest || isName(plain);
  if (isThin && script === null && !known.includes(guess.base)) return fallBack(evidence, null);
  // If the detector is unsure, its result is not used. Recognised words are used even if they are unclear, because they
  // are better than no evidence.
  if (!counted.clear) return fallBack(evidence, counted.by === 'detector' ? null : guess);
  return { language: asSpoken(guess.base, evidence), by: guess.by, decided: true };
};
