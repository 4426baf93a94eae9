import type { LexiconEntry } from './lexicon-entry.ts';
import { EASTERN } from './lexicon-eastern.ts';
import { NORTHERN } from './lexicon-northern.ts';
import { WESTERN } from './lexicon-western.ts';

export type { LexiconEntry, SmallTalk } from './lexicon-entry.ts';

/** Chat words by base language. Written as they are spelled; readers fold case and diacritics themselves. */
export const LEXICON: Readonly<Record<string, LexiconEntry>> = { ...WESTERN, ...NORTHERN, ...EASTERN };

/** Words borrowed so widely that they keep a conversation's language instead of changing it. */
export const LOAN_WORDS =
  'hi|hey|hello|ok|okay|ciao|merci|bye|bye bye|thanks|thank you|sorry|super|stop|info|please|yes|yeah|no|servus|adieu|pardon';
