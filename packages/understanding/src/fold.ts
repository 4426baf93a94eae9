import lexicon from './lexicon.json' with { type: 'json' };

const ASCII = /^[\0-\x7f]*$/;
const LETTERS_WITHOUT_A_MARK: Readonly<Record<string, string>> = {
  ß: 'ss',
  æ: 'ae',
  œ: 'oe',
  ø: 'o',
  ł: 'l',
  đ: 'd',
  ð: 'd',
  þ: 'th',
  ı: 'i',
  ς: 'σ',
  ё: 'е',
  أ: 'ا',
  إ: 'ا',
  آ: 'ا',
  ى: 'ي',
  ی: 'ي',
  ئ: 'ي',
  ک: 'ك',
  ة: 'ه',
  ؤ: 'و',
  ۀ: 'ه',
};
const UNMARKED = new RegExp(`[${Object.keys(LETTERS_WITHOUT_A_MARK).join('')}]`, 'gu');
/**
 * Matches combining marks of Latin, Greek and Cyrillic, Arabic vowel signs and tatweel, and zero-width characters.
 * Indic and Thai marks are not matched, because they are letters. Japanese voicing marks are not matched, because they
 * change the syllable.
 */
const MARKS = /[[\p{M}&&\p{Script=Inherited}]--[\u3099\u309a]]|[\u0640\u200b-\u200f\u2060\ufeff\u00ad]/gv;

const MOST_MARKS = 16;
/** The half-width voicing marks of Japanese count as letters, but NFKC makes marks of them. No other letters are such. */
const MARK = String.raw`[\p{M}\uff9e\uff9f]`;
const PILED_MARKS = new RegExp(`(${MARK}{${MOST_MARKS}})${MARK}+`, 'gu');

/**
 * Keeps at most 16 marks on each letter, which is more than any language needs. Normalizing a longer run of marks would
 * take quadratic time, so every text from outside that is normalized is cut so before.
 */
export const withoutPiledMarks = (text: string): string =>
  text.length > MOST_MARKS ? text.replace(PILED_MARKS, '$1') : text;

/** Converts a text to a form that is the same for different spellings: NFKC, lower case, no diacritics. */
export const fold = (text: string): string => {
  if (ASCII.test(text)) return text.toLowerCase();
  const unmarked = withoutPiledMarks(text)
    .normalize('NFKC')
    .toLowerCase()
    .replace(UNMARKED, (letter) => LETTERS_WITHOUT_A_MARK[letter] ?? letter)
    .normalize('NFD')
    .replace(MARKS, '');
  // Marks with invisible characters between them stand together now.
  return withoutPiledMarks(unmarked).normalize('NFC');
};

/** The last beginning, because a message is read once for each language of the knowledge. */
let latest = { beginning: '', plain: '' };

/** The beginning of a text in NFKC. It is cut again, because one character can become eighteen. */
export const plainBeginning = (text: string, length: number): string => {
  const beginning = text.slice(0, length);
  if (ASCII.test(beginning)) return beginning;
  if (latest.beginning !== beginning) {
    latest = { beginning, plain: withoutPiledMarks(beginning).normalize('NFKC').slice(0, length) };
  }
  return latest.plain.slice(0, length);
};

/** Folds the beginning of a text. */
export const foldBeginning = (text: string, length: number): string =>
  fold(plainBeginning(text, length)).slice(0, length);

/**
 * Scripts that are written without spaces. Splitting their texts into words needs a dictionary (`Intl.Segmenter`)
 * instead of a pattern.
 */
export const UNSPACED =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u;

const WORD = /[\p{L}\p{M}\p{N}]+(?:['’][\p{L}\p{M}]+)*/gu;

/** The words of a text. A run of characters of a script without spaces counts as one word. */
export const words = (text: string): string[] => text.match(WORD) ?? [];

/** Segmenting takes more than linear time, so a long text is segmented in pieces of this length. */
const PIECE = 250;
/** The dictionary looks ahead, so the last words of a piece are uncertain. This many are read again in the next piece. */
const AHEAD = 3;

/** The words of a text without spaces, by a dictionary. Takes a few milliseconds for 10,000 characters. */
export const segmentWords = (segmenter: Intl.Segmenter, text: string): string[] => {
  const words: string[] = [];
  for (let from = 0; from < text.length; ) {
    const parts = [...segmenter.segment(text.slice(from, from + PIECE))];
    const uncertain = from + PIECE < text.length ? parts.at(-AHEAD)?.index : undefined;
    const until = uncertain === undefined || uncertain === 0 ? PIECE : uncertain;
    for (const { segment, index, isWordLike } of parts) if (isWordLike && index < until) words.push(segment);
    from += until;
  }
  return words;
};

/**
 * The language of a tag without region or script: `pt-BR` → `pt`. Bokmål (`nb`) and Nynorsk (`nn`) both become `no`.
 */
export const baseLanguage = (tag: string): string => {
  const base = (tag.split('-', 1)[0] ?? tag).toLowerCase();
  return base === 'nb' || base === 'nn' ? 'no' : base;
};

/** Tags of Chinese in traditional characters, by script or by region. */
const TRADITIONAL = /^zh-(?:.*-)?(?:hant|tw|hk|mo)\b/i;

/** The texts of a language, from tables by language. Undefined if there are none. */
export const textsIn = <Texts>(tables: Readonly<Record<string, Texts>>, language: string): Texts | undefined => {
  const key = TRADITIONAL.test(language) ? 'zh-Hant' : baseLanguage(language);
  return Object.hasOwn(tables, key) ? tables[key] : undefined;
};

export const isTraditionalChinese = (language: string): boolean => TRADITIONAL.test(language);

/** Small talk around a question. The lexicon separates phrases by `|`. */
export type SmallTalk = 'greeting' | 'thanks' | 'goodbye' | 'yes' | 'no';

/** `common` contains words that reveal a language but carry no subject, so an index may skip them. */
type LexiconEntry = Record<SmallTalk | 'common', string>;

/** Chat words by base language, in their normal spelling. The code that reads them must fold case and diacritics. */
export const LEXICON: Readonly<Record<string, LexiconEntry>> = lexicon;

/** Words that many languages have borrowed, so they do not change a conversation's language. */
export const LOAN_WORDS =
  'hi|hey|hello|ok|okay|ciao|merci|bye|bye bye|thanks|thank you|sorry|super|stop|info|please|yes|yeah|no|servus|adieu|pardon';
