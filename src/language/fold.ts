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
 * Combining marks of Latin, Greek and Cyrillic, Arabic vowel signs and tatweel, zero-width characters. Indic and Thai
 * marks are letters, and the Japanese voicing marks make another syllable: kept.
 */
const MARKS = /[[\p{M}&&\p{Script=Inherited}]--[\u3099\u309a]]|[\u0640\u200b-\u200f\u2060\ufeff\u00ad]/gv;

const MOST_MARKS = 16;
const PILED_MARKS = new RegExp(`(\\p{M}{${MOST_MARKS}})\\p{M}+`, 'gu');

/** At most 16 marks on one letter, far more than any language needs: normalization sorts them, in quadratic time. */
export const withoutPiledMarks = (text: string): string =>
  text.length > MOST_MARKS ? text.replace(PILED_MARKS, '$1') : text;

/** One spelling for what people write in many: NFKC, lower case, no diacritics. */
export const fold = (text: string): string => {
  if (ASCII.test(text)) return text.toLowerCase();
  return withoutPiledMarks(text)
    .normalize('NFKC')
    .toLowerCase()
    .replace(UNMARKED, (letter) => LETTERS_WITHOUT_A_MARK[letter] ?? letter)
    .normalize('NFD')
    .replace(MARKS, '')
    .normalize('NFC');
};

/** The same for the beginning of a text; cut once more, since one character may stand for eighteen. */
export const foldBeginning = (text: string, length: number): string => fold(text.slice(0, length)).slice(0, length);

/** Scripts written without spaces: their words need a dictionary (`Intl.Segmenter`), not a pattern. */
export const UNSPACED =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u;

const WORD = /[\p{L}\p{M}\p{N}]+(?:['’][\p{L}\p{M}]+)*/gu;

/** Words of spaced scripts; a run of an unspaced script stays one word. */
export const words = (text: string): string[] => text.match(WORD) ?? [];
