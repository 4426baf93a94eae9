import { fold, words } from '../../../../src/language/fold.ts';
import { LEXICON, type SmallTalk } from '../../../../src/language/lexicon.ts';

const KINDS: readonly SmallTalk[] = ['goodbye', 'thanks', 'no', 'yes', 'greeting'];
const spaced = (text: string): string => words(fold(text)).join(' ');

/**
 * Maps a phrase to its kind in each language. If a phrase has different kinds in different languages, the visitor's
 * language decides.
 */
const phrases = new Map<string, Map<string, SmallTalk>>();
for (const [language, entry] of Object.entries(LEXICON)) {
  for (const kind of KINDS) {
    for (const phrase of entry[kind].split('|').map(spaced)) {
      const meanings = phrases.get(phrase) ?? new Map<string, SmallTalk>();
      if (!meanings.has(language)) meanings.set(language, kind);
      phrases.set(phrase, meanings);
    }
  }
}

const LONGEST_PHRASE = 4;
const MAX_WORDS = 8;

/** The kind of small talk that a message is. Null if the message is anything else. */
export const readSmallTalk = (message: string, language: string): SmallTalk | null => {
  if (message.length > 120) return null;
  const tokens = words(fold(message)).map((word) => word.replace(/(.)\1{2,}/gu, '$1'));
  if (tokens.length === 0 || tokens.length > MAX_WORDS) return null;
  const said = new Set<SmallTalk>();
  for (let at = 0; at < tokens.length; ) {
    let length = Math.min(LONGEST_PHRASE, tokens.length - at);
    let meanings: Map<string, SmallTalk> | undefined;
    for (; length > 0 && !meanings; length -= 1) meanings = phrases.get(tokens.slice(at, at + length).join(' '));
    const meaning = meanings?.get(language) ?? meanings?.values().next().value;
    if (!meaning) return null;
    said.add(meaning);
    at += length + 1;
  }
  return KINDS.find((kind) => said.has(kind)) ?? null;
};
