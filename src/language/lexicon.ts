import lexicon from './lexicon.json' with { type: 'json' };

/** Small talk before and after a question. Phrases are separated by `|`. */
export type SmallTalk = 'greeting' | 'thanks' | 'goodbye' | 'yes' | 'no';

/** `common` contains words that reveal a language but carry no subject, so an index may skip them. */
type LexiconEntry = Record<SmallTalk | 'common', string>;

/** Chat words by base language, in their normal spelling. The code that reads them must fold case and diacritics. */
export const LEXICON: Readonly<Record<string, LexiconEntry>> = lexicon;

/** Words that many languages have borrowed, so they do not change a conversation's language. */
export const LOAN_WORDS =
  'hi|hey|hello|ok|okay|ciao|merci|bye|bye bye|thanks|thank you|sorry|super|stop|info|please|yes|yeah|no|servus|adieu|pardon';
