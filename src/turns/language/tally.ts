import { LEXICON, LOAN_WORDS } from '../lexicon.ts';
import { fold, words } from './fold.ts';

/** Letters that point to a few Latin-script languages; read before diacritics are folded. */
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
  [/[œ]|ç[a-z]|[lcdjmnst]’/iu, ['fr']],
  [/[øæ]/iu, ['da', 'no']],
  [/å/iu, ['sv', 'da', 'no']],
  [/[ķļņģ]/iu, ['lv']],
  [/[ėųį]/iu, ['lt']],
  [/đ/iu, ['hr', 'sr']],
  [/l·l/iu, ['ca']],
];

const base = (tag: string): string => tag.split('-', 1)[0] ?? tag;

type Word = { languages: Map<string, number> };

const index = new Map<string, Word>();
const note = (phrase: string, language: string, weight: number): void => {
  const word = index.get(phrase) ?? { languages: new Map<string, number>() };
  word.languages.set(language, Math.max(weight, word.languages.get(language) ?? 0));
  index.set(phrase, word);
};
for (const [language, entry] of Object.entries(LEXICON)) {
  for (const phrase of Object.values(entry).flatMap((list) => list.split('|'))) {
    const spelled = phrase.toLowerCase();
    note(spelled, language, 1);
    // Visitors leave diacritics out; what they typed then weighs a little less than the right spelling.
    if (fold(spelled) !== spelled) note(fold(spelled), language, 0.8);
  }
}
const loans = new Set(LOAN_WORDS.split('|').map(fold));
const LANGUAGES = Object.keys(LEXICON);

/** Shares of a word's weight: a word of one language says more than one of five. */
const shares = (phrase: string, among: readonly string[] | null): [string, number][] => {
  const languages = [...(index.get(phrase)?.languages ?? [])].filter(
    ([language]) => !among || among.includes(language),
  );
  const spread = languages.length ** 0.7;
  return languages.map(([language, weight]) => [language, (weight * (loans.has(phrase) ? 0.3 : 1)) / spread]);
};

export type Tally = { best: string | null; by: 'script' | 'lexicon' | 'detector'; clear: boolean };

export type TallyOptions = {
  among: readonly string[] | null;
  hint: string | null;
  allowed: readonly string[];
  detect: (text: string, only: string[]) => { lang: string; accuracy: number }[];
};

const LONGEST_PHRASE = 4;
const MAX_WORDS = 60;

/** Adds up what words, letters and the detector say. */
export const tallyWords = (sample: string, { among, hint, allowed, detect }: TallyOptions): Tally => {
  const tokens = words(sample.toLowerCase().replaceAll('’', "'")).slice(0, MAX_WORDS);
  if (tokens.length === 0) return { best: hint, by: 'script', clear: hint !== null };
  const lexical = new Map<string, number>();
  const add = (language: string, weight: number): void => {
    lexical.set(language, (lexical.get(language) ?? 0) + weight);
  };

  for (let at = 0; at < tokens.length; ) {
    let length = Math.min(LONGEST_PHRASE, tokens.length - at);
    let phrase = '';
    for (; length > 0; length -= 1) {
      phrase = tokens.slice(at, at + length).join(' ');
      if (index.has(phrase)) break;
      phrase = phrase.replace(/(.)\1{2,}/gu, '$1');
      if (index.has(phrase)) break;
    }
    if (length > 0) for (const [language, weight] of shares(phrase, among)) add(language, weight * length);
    at += Math.max(1, length);
  }
  if (!among) {
    for (const [letter, languages] of LETTERS) {
      if (letter.test(sample)) for (const language of languages) add(language, 1 / languages.length);
    }
  }
  if (hint) add(hint, 1);

  const spoken = allowed.map(base).filter((language) => !among || among.includes(language));
  const only = spoken.length > 0 ? spoken : [...(among ?? LANGUAGES)];
  const detected = new Map(detect(sample, only).map(({ lang, accuracy }) => [lang, accuracy]));

  const total = new Map<string, number>();
  for (const language of new Set([...lexical.keys(), ...detected.keys()])) {
    const words = (lexical.get(language) ?? 0) / Math.sqrt(tokens.length);
    total.set(language, (words + 0.8 * (detected.get(language) ?? 0)) * (spoken.includes(language) ? 1.25 : 1));
  }
  const [first, second] = [...total].sort((a, b) => b[1] - a[1]);
  if (!first) return { best: among?.[0] ?? null, by: 'script', clear: false };
  const [best, score] = first;
  const clear = score >= 0.45 && score - (second?.[1] ?? 0) >= 0.15 * score;
  const by = (lexical.get(best) ?? 0) > 0 ? (hint === best ? 'script' : 'lexicon') : 'detector';
  return { best, by, clear };
};
