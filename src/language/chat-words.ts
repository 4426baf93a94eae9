import { LEXICON, LOAN_WORDS } from './lexicon.ts';
import { fold, words } from './fold.ts';

/** The weight of a phrase for each language. A phrase that many languages share has a small weight for each. */
type Shares = readonly (readonly [language: string, share: number])[];

const UNMARKED_WEIGHT = 0.8;
const LOAN_WEIGHT = 0.3;
const SHARING = 0.7;
const LONGEST_PHRASE = 4;

const loans = new Set(LOAN_WORDS.split('|').map(fold));

const weights = new Map<string, Map<string, number>>();
const note = (phrase: string, language: string, weight: number): void => {
  const known = weights.get(phrase) ?? new Map<string, number>();
  known.set(language, Math.max(weight, known.get(language) ?? 0));
  weights.set(phrase, known);
};
for (const [language, entry] of Object.entries(LEXICON)) {
  for (const phrase of Object.values(entry).flatMap((list) => list.split('|'))) {
    const spelled = phrase.toLowerCase();
    note(spelled, language, 1);
    // Visitors often omit diacritics. The spelling without diacritics weighs a little less than the correct spelling.
    if (fold(spelled) !== spelled) note(fold(spelled), language, UNMARKED_WEIGHT);
  }
}

const sharesAmong = (phrase: string, known: Map<string, number>, among: readonly string[] | null): Shares => {
  const languages = [...known].filter(([language]) => !among || among.includes(language));
  const spread = languages.length ** SHARING;
  const loan = loans.has(phrase) ? LOAN_WEIGHT : 1;
  return languages.map(([language, weight]) => [language, (weight * loan) / spread] as const);
};
const shares = new Map([...weights].map(([phrase, known]) => [phrase, sharesAmong(phrase, known, null)]));

/** The longest known phrase that starts at this token. */
const phraseAt = (tokens: readonly string[], at: number): { phrase: string; length: number } | null => {
  for (let length = Math.min(LONGEST_PHRASE, tokens.length - at); length > 0; length -= 1) {
    const phrase = length === 1 ? (tokens[at] ?? '') : tokens.slice(at, at + length).join(' ');
    if (shares.has(phrase)) return { phrase, length };
  }
  return null;
};

const DRAWN_OUT = /(.)\1{2,}/gu;

export const chatTokens = (text: string, most: number): string[] => {
  const tokens = words(text.toLowerCase().replaceAll('’', "'")).slice(0, most);
  return tokens.map((token) => (shares.has(token) ? token : token.replace(DRAWN_OUT, '$1')));
};

/** The weight of a message's words for each language. */
export const weighWords = (tokens: readonly string[], among: readonly string[] | null): Map<string, number> => {
  const sums = new Map<string, number>();
  for (let at = 0; at < tokens.length; ) {
    const found = phraseAt(tokens, at);
    at += found?.length ?? 1;
    if (!found) continue;
    const known = among
      ? sharesAmong(found.phrase, weights.get(found.phrase) ?? new Map(), among)
      : (shares.get(found.phrase) ?? []);
    for (const [language, share] of known) sums.set(language, (sums.get(language) ?? 0) + share * found.length);
  }
  return sums;
};

export const CHAT_LANGUAGES: readonly string[] = Object.keys(LEXICON);
