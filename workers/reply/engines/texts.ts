import { baseLanguage } from '@parley/understanding/text';
import { isTraditionalChinese, textsIn } from '@parley/understanding/text';
import texts from './texts.json' with { type: 'json' };

/** Default texts in the visitor's language. An assistant's own texts replace them. */
export type TextKey =
  | 'greeting'
  | 'thanks'
  | 'goodbye'
  | 'yes'
  | 'no'
  /** The engine is not sure enough to answer. Shown with an `escalate` action. */
  | 'unsure'
  /** The engine and its fall-back failed. */
  | 'apology'
  /** A person handles the conversation. */
  | 'holding'
  /** The visitor can choose between several questions. */
  | 'askBack'
  /** Introduces an answer that may not be meant. */
  | 'hedge'
  /** Label and message of the button below such an answer. */
  | 'notMeant'
  | 'contactNoted'
  /** Introduces an answer in another language; `{language}` is the name of that language. */
  | 'otherLanguage'
  /** The assistant has no knowledge. */
  | 'noKnowledge'
  /** The visitor asks "Are you a robot?". */
  | 'whoAmI'
  /** Label of the button that asks for a person. */
  | 'talkToPerson';

type Texts = Record<TextKey, string>;

const TEXTS: Readonly<Record<string, Texts>> = texts;

const tableOf = (language: string): Texts | undefined => textsIn(TEXTS, language);

const ENGLISH = texts.en;

export const TEXT_LANGUAGES: readonly string[] = Object.keys(TEXTS);

/** False if `text` would return English because the language has no texts. */
const hasTexts = (language: string): boolean => tableOf(language) !== undefined;

/** A default text. If the language has no texts, the text is in English. */
export const text = (language: string, key: TextKey): string => (tableOf(language) ?? ENGLISH)[key];

const folded = (message: string): string =>
  message
    .toLowerCase()
    .replace(/[\p{P}\s]+/gu, ' ')
    .trim();
const REJECTIONS: ReadonlySet<string> = new Set(Object.values(TEXTS).map(({ notMeant }) => folded(notMeant)));
const LONGEST_REJECTION = 100;

/** True if the message is what the button “That is not what I meant” sends, in any language. */
export const isRejection = (message: string): boolean =>
  message.length <= LONGEST_REJECTION && REJECTIONS.has(folded(message));

export const holdingText = (language: string): string => text(language, 'holding');
export const apologyText = (language: string): string => text(language, 'apology');

const namers = new Map<string, Intl.DisplayNames>();

/** The name of a language in another language. A tag without a name is returned unchanged. */
const languageName = (language: string, within: string): string => {
  const namer = namers.get(within) ?? new Intl.DisplayNames([within], { type: 'language' });
  namers.set(within, namer);
  try {
    return namer.of(language) ?? language;
  } catch {
    return language;
  }
};

/** For example: "I only have this answer in another language (English):" */
export const otherLanguageText = (language: string, answerLanguage: string): string => {
  const within = isTraditionalChinese(language) ? 'zh-Hant' : hasTexts(language) ? baseLanguage(language) : 'en';
  return text(within, 'otherLanguage').replace('{language}', () => languageName(answerLanguage, within));
};
