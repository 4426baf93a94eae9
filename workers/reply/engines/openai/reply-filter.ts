import type { FoundPassage } from '@parley/understanding';
import type { ReadPassage } from '../../../../src/sources/passages.ts';
import type { AssistantProfile, EngineEntry } from '../engine.ts';
import { sourceOf } from '../retrieval.ts';
import { withoutCitations } from './citations.ts';
import { UNSURE_MARK } from './prompt.ts';

type IsAllowedLink = (link: string) => boolean;

/** A link in a text. `words` is the text of a Markdown link, null for a bare address. */
type FoundLink = { start: number; end: number; address: string; words: string | null };

const ADDRESS = /\b(?:https?:\/\/|www\.)[^\s<>()[\]"']+/gi;
/** The beginning of a link: an opening bracket or the start of an address. */
const BEGINNING = new RegExp(`\\[|${ADDRESS.source}`, 'gi');
const TRAILING = `.,;:!?'"`;

/**
 * Removes punctuation that belongs to the sentence and not to the address. A loop is used, because a regular expression
 * would not take linear time.
 */
const withoutTrailing = (address: string, trailing = TRAILING): string => {
  let end = address.length;
  while (end > 0 && trailing.includes(address.charAt(end - 1))) end -= 1;
  return address.slice(0, end);
};

const addressesIn = (text: string): string[] => text.match(ADDRESS) ?? [];

/**
 * Returns a function that finds the first match at or after a position. Its positions must increase, so that the text
 * is read only once.
 */
const createForwardSearch = (text: string, pattern: RegExp): ((from: number) => number) => {
  const looking = new RegExp(pattern, 'g');
  let known = -1;
  return (from) => {
    if (known < from) {
      looking.lastIndex = from;
      known = looking.exec(text)?.index ?? text.length;
    }
    return known;
  };
};

/** Finds Markdown links and bare addresses in linear time. */
export function* findLinks(text: string): Generator<FoundLink> {
  const nextBracket = createForwardSearch(text, /[[\]\n]/);
  const nextNonSpace = createForwardSearch(text, /\S/);
  const nextEnd = createForwardSearch(text, /[)\n]/);
  const nextStop = createForwardSearch(text, /[\s)>]/);

  const markdownAt = (start: number): FoundLink | null => {
    const close = nextBracket(start + 1);
    if (!text.startsWith('](', close)) return null;
    const target = nextNonSpace(close + 2);
    const from = text[target] === '<' ? target + 1 : target;
    const end = nextEnd(from);
    if (text[end] !== ')') return null;
    return { start, end: end + 1, address: text.slice(from, nextStop(from)), words: text.slice(start + 1, close) };
  };

  const beginnings = new RegExp(BEGINNING);
  for (let found = beginnings.exec(text); found; found = beginnings.exec(text)) {
    const [opening] = found;
    const address = withoutTrailing(opening);
    const link =
      opening === '['
        ? markdownAt(found.index)
        : { start: found.index, end: found.index + address.length, address, words: null };
    if (!link) continue;
    yield link;
    beginnings.lastIndex = Math.max(beginnings.lastIndex, link.end);
  }
}

/**
 * Longer than any host name. Longer names are refused, because converting an international name takes quadratic time.
 */
const MAX_AUTHORITY = 300;
const AUTHORITY = /^(?:https?:\/\/)?([^/?#]*)/i;

const hostOf = (link: string): string | null => {
  if ((AUTHORITY.exec(link)?.[1] ?? '').length > MAX_AUTHORITY) return null;
  const url = URL.parse(/^https?:/i.test(link) ? link : `https://${link}`);
  return url ? url.hostname.replace(/^www\./, '') : null;
};

const plain = (link: string): string => withoutTrailing(link, '.,;:!?').replace(/\/$/, '');

/** The pages of passages, and the links in them. */
const linksOf = (found: FoundPassage<ReadPassage>): string[] => {
  const { url, text } = found.passage;
  return [url, sourceOf(found).url, ...addressesIn(text)].filter((link) => link !== null);
};

/** Allows links that the found knowledge entries and passages contain, and links to hosts that the assistant allows. */
export const allowedLinksOf = (
  { allowedLinks = [] }: AssistantProfile,
  hits: EngineEntry[],
  passages: FoundPassage<ReadPassage>[] = [],
): IsAllowedLink => {
  const known = new Set([
    ...passages.flatMap(linksOf).map(plain),
    ...hits.flatMap(({ question, answer, actions }) => [
      ...addressesIn(`${question} ${answer}`).map(plain),
      ...actions.filter(({ type }) => type === 'link').map(({ payload }) => plain(payload)),
    ]),
  ]);
  const hosts = new Set(allowedLinks.map((host) => host.toLowerCase().replace(/^www\./, '')));
  return (link) => {
    if (known.has(plain(link))) return true;
    const host = /^(https?:\/\/|www\.)/i.test(link) ? hostOf(link) : null;
    return host !== null && hosts.has(host);
  };
};

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

type FilterOptions = {
  isAllowed: IsAllowedLink;
  emit: (piece: string) => void;
  /** True if the text may have citations, which are removed. */
  cites?: boolean;
};

/**
 * Filters a streamed reply: removes disallowed links, citations, the unsure mark and surrounding white space. All emitted
 * pieces together are exactly the text that `end` returns.
 */
export const createReplyFilter = ({ isAllowed, emit, cites = false }: FilterOptions) => {
  let emitted = '';
  let withCitations = '';
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
    withCitations += marked;
    const shown = cites ? withoutCitations(marked) : marked;
    const piece = emitted === '' ? shown.trimStart() : shown;
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
    end: (): { text: string; withCitations: string; unsure: boolean; removedLinks: number } => {
      const rest = pending.replaceAll(UNSURE_MARK, '').trimEnd();
      unsure ||= pending.includes(UNSURE_MARK);
      pending = '';
      tail = { word: 0, space: 0 };
      if (rest !== '') emitFiltered(rest);
      return { text: emitted, withCitations, unsure, removedLinks: removed };
    },
  };
};
