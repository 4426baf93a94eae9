import lexicon from './lexicon.json' with { type: 'json' };

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
