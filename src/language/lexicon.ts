import lexicon from './lexicon.json' with { type: 'json' };

/** What people say in a chat before and after the question; phrases are separated by `|`. */
export type SmallTalk = 'greeting' | 'thanks' | 'goodbye' | 'yes' | 'no';

/** `common` holds words that give a language away: they carry no subject, so an index may skip them. */
type LexiconEntry = Record<SmallTalk | 'common', string>;

/** Chat words by base language. Written as they are spelled; readers fold case and diacritics themselves. */
export const LEXICON: Readonly<Record<string, LexiconEntry>> = lexicon;

/** Words borrowed so widely that they keep a conversation's language instead of changing it. */
export const LOAN_WORDS =
  'hi|hey|hello|ok|okay|ciao|merci|bye|bye bye|thanks|thank you|sorry|super|stop|info|please|yes|yeah|no|servus|adieu|pardon';
