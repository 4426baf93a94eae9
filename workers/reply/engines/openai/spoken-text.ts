import { findLinks } from './find-links.ts';
import { UNSURE_MARK } from './prompt.ts';

/** How far back an open bracket keeps text from being said: a link's words are judged with its address. */
const MAX_HELD = 400;

export type IsAllowedLink = (link: string) => boolean;

/** Links that are not allowed go; of one in Markdown its words stay. */
export const withoutStrangeLinks = (text: string, isAllowed: IsAllowedLink): string => {
  let kept = '';
  let from = 0;
  for (const { start, end, address, words } of findLinks(text)) {
    if (isAllowed(address)) continue;
    kept += text.slice(from, start) + (words ?? '');
    from = end;
  }
  return kept + text.slice(from);
};

const lastSpaceOf = (text: string): number => {
  let at = text.length - 1;
  while (at >= 0 && !/\s/.test(text.charAt(at))) at -= 1;
  return at;
};

/** Where text can be cut so that nothing before the cut depends on what comes after it. `word`: where its last begins. */
const safeEnd = (text: string, word: number): number => {
  const tail = text.slice(-MAX_HELD);
  const bracket = tail.lastIndexOf('[');
  const begun = bracket === -1 ? '' : tail.slice(bracket);
  const closed = /^\[[^\]\n]*(\n|\]\([^)\n]*[)\n]|\][^(])/.exec(begun);
  const opens = text.length - begun.length;
  // A link whose end is not there yet, or in the word that is still being said.
  const linked = begun !== '' && (closed === null || opens + closed[0].length > word);
  // White space is said with what follows it, so that none is left at the end.
  return text.slice(0, linked ? Math.min(word, opens) : word).trimEnd().length;
};

/**
 * What a model says, made fit to be shown while it speaks: no strange links, no mark, no white space around it. The pieces
 * said make up exactly the text that `end` returns.
 */
export const createSpokenText = (isAllowed: IsAllowedLink, say: (piece: string) => void) => {
  let said = '';
  let held = '';
  /** Where the last word of what is held begins: one that grows by a letter at a time is not read anew for each. */
  let word = 0;
  let removed = 0;
  let unsure = false;

  const speak = (raw: string): void => {
    const clean = withoutStrangeLinks(raw, (link) => {
      const allowed = isAllowed(link);
      if (!allowed) removed += 1;
      return allowed;
    });
    const marked = clean.replaceAll(UNSURE_MARK, '');
    unsure ||= marked !== clean;
    const piece = said === '' ? marked.trimStart() : marked;
    if (piece === '') return;
    said += piece;
    say(piece);
  };

  return {
    push: (text: string): void => {
      const space = lastSpaceOf(text);
      if (space !== -1) word = held.length + space + 1;
      held += text;
      const end = safeEnd(held, word);
      if (end === 0) return;
      speak(held.slice(0, end));
      held = held.slice(end);
      word -= end;
    },
    end: (): { text: string; unsure: boolean; removedLinks: number } => {
      const rest = held.replaceAll(UNSURE_MARK, '').trimEnd();
      unsure ||= held.includes(UNSURE_MARK);
      held = '';
      word = 0;
      if (rest !== '') speak(rest);
      return { text: said, unsure, removedLinks: removed };
    },
  };
};
