import { baseLanguage } from '../../../src/language/base.ts';
import texts from './texts.json' with { type: 'json' };

/** What an assistant says by itself, in the visitor's language; an assistant's own wording goes before these. */
export type TextKey =
  | 'greeting'
  | 'thanks'
  | 'goodbye'
  | 'yes'
  | 'no'
  /** Not sure enough to answer; goes with an `escalate` action. */
  | 'unsure'
  /** The engine and its fall-back failed. */
  | 'apology'
  /** Said once when a person takes over. */
  | 'holding'
  /** Two answers are about as likely. */
  | 'askBack'
  | 'contactNoted'
  /** Before an answer in another language; `{language}` is that language's name. */
  | 'otherLanguage'
  /** An assistant without knowledge. */
  | 'noKnowledge'
  /** "Are you a robot?" */
  | 'whoAmI'
  /** Label of the button that asks for a person. */
  | 'talkToPerson';

type Texts = Record<TextKey, string>;

const TEXTS: Readonly<Record<string, Texts>> = texts;

/** Regions that write Chinese with traditional characters, named or not. */
const TRADITIONAL = /^zh-(?:.*-)?(?:hant|tw|hk|mo)\b/i;

const tableOf = (language: string): Texts | undefined => {
  const key = TRADITIONAL.test(language) ? 'zh-Hant' : baseLanguage(language);
  return Object.hasOwn(TEXTS, key) ? TEXTS[key] : undefined;
};

const ENGLISH = texts.en;

export const TEXT_LANGUAGES: readonly string[] = Object.keys(TEXTS);

/** False where `text` would have to fall back to English. */
export const hasTexts = (language: string): boolean => tableOf(language) !== undefined;

/** The assistant's own words in a language, else in English. */
export const text = (language: string, key: TextKey): string => (tableOf(language) ?? ENGLISH)[key];

export const holdingText = (language: string): string => text(language, 'holding');
export const apologyText = (language: string): string => text(language, 'apology');

const namers = new Map<string, Intl.DisplayNames>();

/** A language's name in another; a tag without a name (a private one) stands for itself. */
const languageName = (language: string, within: string): string => {
  const namer = namers.get(within) ?? new Intl.DisplayNames([within], { type: 'language' });
  namers.set(within, namer);
  try {
    return namer.of(language) ?? language;
  } catch {
    return language;
  }
};

/** "I only have this answer in another language (English):" */
export const otherLanguageText = (language: string, answerLanguage: string): string => {
  const within = TRADITIONAL.test(language) ? 'zh-Hant' : hasTexts(language) ? baseLanguage(language) : 'en';
  return text(within, 'otherLanguage').replace('{language}', () => languageName(answerLanguage, within));
};
