import { UNSURE_MARK } from './prompt.ts';

/** How far back an open bracket keeps text from being said: a link's words are judged with its address. */
const MAX_HELD = 400;
const TRAILING = /[.,;:!?'"]+$/;
const LINK = /\[([^\][\n]*)\]\(\s*<?([^\s)>]*)>?[^)\n]*\)|\b(?:https?:\/\/|www\.)[^\s<>()[\]"']+/gi;

export type IsAllowedLink = (link: string) => boolean;

/** Links that are not allowed go; of one in Markdown its words stay. */
export const withoutStrangeLinks = (text: string, isAllowed: IsAllowedLink): string =>
  text.replace(LINK, (found: string, words: string | undefined, address: string | undefined) => {
    if (address !== undefined) return isAllowed(address) ? found : (words ?? '');
    const end = TRAILING.exec(found)?.[0] ?? '';
    return isAllowed(found.slice(0, found.length - end.length)) ? found : end;
  });

/** Where text can be cut so that nothing before the cut depends on what comes after it. */
const safeEnd = (text: string): number => {
  const word = text.search(/\S*$/);
  const bracket = text.lastIndexOf('[');
  const tail = bracket === -1 || text.length - bracket > MAX_HELD ? '' : text.slice(bracket);
  const closed = /^\[[^\]\n]*(\n|\]\([^)\n]*[)\n]|\][^(])/.exec(tail);
  // A link whose end is not there yet, or in the word that is still being said.
  const linked = tail !== '' && (closed === null || bracket + closed[0].length > word);
  // White space is said with what follows it, so that none is left at the end.
  return text.slice(0, linked ? Math.min(word, bracket) : word).trimEnd().length;
};

/**
 * What a model says, made fit to be shown while it speaks: no strange links, no mark, no white space around it. The pieces
 * said make up exactly the text that `end` returns.
 */
export const createSpokenText = (isAllowed: IsAllowedLink, say: (piece: string) => void) => {
  let said = '';
  let held = '';
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
      held += text;
      const end = safeEnd(held);
      if (end === 0) return;
      speak(held.slice(0, end));
      held = held.slice(end);
    },
    end: (): { text: string; unsure: boolean; removedLinks: number } => {
      const rest = held.replaceAll(UNSURE_MARK, '').trimEnd();
      unsure ||= held.includes(UNSURE_MARK);
      held = '';
      if (rest !== '') speak(rest);
      return { text: said, unsure, removedLinks: removed };
    },
  };
};
