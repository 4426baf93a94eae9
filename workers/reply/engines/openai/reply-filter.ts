import { findLinks } from './find-links.ts';
import { UNSURE_MARK } from './prompt.ts';

/** How far back an open bracket keeps text from being said: a link's words are judged with its address. */
const MAX_PENDING = 400;

export type IsAllowedLink = (link: string) => boolean;

/** Links that are not allowed go; of one in Markdown its words stay. */
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

/** Where the last word begins, and the white space before it. */
type Tail = { word: number; space: number };

/** The same for a text that has grown: what was there is not read anew. */
const tailOf = (text: string, before: number, known: Tail): Tail => {
  let word = text.length;
  while (word > before && !isSpace(text.charAt(word - 1))) word -= 1;
  if (word === before) return known;
  let space = word;
  while (space > before && isSpace(text.charAt(space - 1))) space -= 1;
  return { word, space: space === before && known.word === before ? known.space : space };
};

/** Where text can be cut so that nothing before the cut depends on what comes after it. */
const safeEnd = (text: string, { word, space }: Tail): number => {
  const tail = text.slice(-MAX_PENDING);
  const bracket = tail.lastIndexOf('[');
  const begun = bracket === -1 ? '' : tail.slice(bracket);
  const closed = /^\[[^\]\n]*(\n|\]\([^)\n]*[)\n]|\][^(])/.exec(begun);
  const opens = text.length - begun.length;
  // A link whose end is not there yet, or in the word that is still being said.
  const linked = begun !== '' && (closed === null || opens + closed[0].length > word);
  // White space is said with what follows it, so that none is left at the end.
  return linked && opens < word ? text.slice(0, opens).trimEnd().length : space;
};

/**
 * What a model says, made fit to be shown while it speaks: no strange links, no mark, no white space around it. The pieces
 * said make up exactly the text that `end` returns.
 */
export const createReplyFilter = (isAllowed: IsAllowedLink, emit: (piece: string) => void) => {
  let emitted = '';
  let pending = '';
  let tail: Tail = { word: 0, space: 0 };
  let removed = 0;
  let unsure = false;

  const emitFiltered = (raw: string): void => {
    // A cut is never within a pair. Redis and MongoDB would each keep half a pair in a way of its own.
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
      // Nothing can be said but before white space, or a bracket that another one follows.
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
