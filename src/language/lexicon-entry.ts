/** What people say in a chat before and after the question; phrases are separated by `|`. */
export type SmallTalk = 'greeting' | 'thanks' | 'goodbye' | 'yes' | 'no';

/** `common` holds words that give a language away: they carry no subject, so an index may skip them. */
export type LexiconEntry = Record<SmallTalk | 'common', string>;
