import type { AssistantProfile, EngineEntry } from '../engine.ts';

export type IsAllowedLink = (link: string) => boolean;

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

/** Allows links that the found knowledge entries contain, and links to hosts that the assistant allows. */
export const allowedLinksOf = ({ allowedLinks = [] }: AssistantProfile, hits: EngineEntry[]): IsAllowedLink => {
  const known = new Set(
    hits.flatMap(({ question, answer, actions }) => [
      ...addressesIn(`${question} ${answer}`).map(plain),
      ...actions.filter(({ type }) => type === 'link').map(({ payload }) => plain(payload)),
    ]),
  );
  const hosts = new Set(allowedLinks.map((host) => host.toLowerCase().replace(/^www\./, '')));
  return (link) => {
    if (known.has(plain(link))) return true;
    const host = /^(https?:\/\/|www\.)/i.test(link) ? hostOf(link) : null;
    return host !== null && hosts.has(host);
  };
};
