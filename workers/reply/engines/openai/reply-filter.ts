import { findLinks, type IsAllowedLink } from './links.ts';
import { UNSURE_MARK } from './prompt.ts';

/** The maximum number of characters that are held back after an open bracket while the link may still be incomplete. */
const MAX_PENDING = 400;

/** Removes links that are not allowed. The text of a Markdown link is kept. */
export const removeDisallowedLinks = (text: string, isAllowed: IsAllowedLink): string => {
  let kept = '';
  let from = 0;
  for (const { start, end, address, words } of findLinks(text)) {
    if (isAllowed(address)) continue;
    kept += text.slice(from, start) + (words ?? '');
    from = end;
  }
  return kept + text.slice(from);
};

const isSpace = (char: string): boolean => /\s/.test(char);

/** The position where the last word begins, and the position where the white space before that word begins. */
type Tail = { word: number; space: number };

/** Finds the tail of a text that has grown from the length `before`. Only the new part is read. */
const tailOf = (text: string, before: number, known: Tail): Tail => {
  let word = text.length;
  while (word > before && !isSpace(text.charAt(word - 1))) word -= 1;
  if (word === before) return known;
  let space = word;
  while (space > before && isSpace(text.charAt(space - 1))) space -= 1;
  return { word, space: space === before && known.word === before ? known.space : space };
};

/** The largest position at which the text can be cut so that later text cannot change what stands before the cut. */
const safeEnd = (text: string, { word, space }: Tail): number => {
  const tail = text.slice(-MAX_PENDING);
  const bracket = tail.lastIndexOf('[');
  const begun = bracket === -1 ? '' : tail.slice(bracket);
  const closed = /^\[[^\]\n]*(\n|\]\([^)\n]*[)\n]|\][^(])/.exec(begun);
  const opens = text.length - begun.length;
  // True if the last link has no end yet, or ends in the unfinished last word.
  const linked = begun !== '' && (closed === null || opens + closed[0].length > word);
  // White space is held back until the next word, so that a reply never ends with white space.
  return linked && opens < word ? text.slice(0, opens).trimEnd().length : space;
};

/**
 * Filters a streamed reply: removes disallowed links, the unsure mark and surrounding white space. All emitted pieces
 * together are exactly the text that `end` returns.
 */
export const createReplyFilter = (isAllowed: IsAllowedLink, emit: (piece: string) => void) => {
  let emitted = '';
  let pending = '';
  let tail: Tail = { word: 0, space: 0 };
  let removed = 0;
  let unsure = false;

  const emitFiltered = (raw: string): void => {
    // `toWellFormed` replaces lone surrogates, which Redis and MongoDB would store differently.
    const clean = removeDisallowedLinks(raw.toWellFormed(), (link) => {
      const allowed = isAllowed(link);
      if (!allowed) removed += 1;
      return allowed;
    });
    const marked = clean.replaceAll(UNSURE_MARK, '');
    unsure ||= marked !== clean;
    const piece = emitted === '' ? marked.trimStart() : marked;
    if (piece === '') return;
    emitted += piece;
    emit(piece);
  };

  return {
    push: (given: string): void => {
      const text = given.replaceAll('\0', '');
      const before = pending.length;
      pending += text;
      // Only text before white space or a bracket can be emitted.
      if (!/[\s[]/.test(text)) return;
      tail = tailOf(pending, before, tail);
      const end = safeEnd(pending, tail);
      if (end === 0) return;
      emitFiltered(pending.slice(0, end));
      pending = pending.slice(end);
      tail = { word: tail.word - end, space: Math.max(0, tail.space - end) };
    },
    end: (): { text: string; unsure: boolean; removedLinks: number } => {
      const rest = pending.replaceAll(UNSURE_MARK, '').trimEnd();
      unsure ||= pending.includes(UNSURE_MARK);
      pending = '';
      tail = { word: 0, space: 0 };
      if (rest !== '') emitFiltered(rest);
      return { text: emitted, unsure, removedLinks: removed };
    },
  };
};
