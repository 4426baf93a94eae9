/** A link as it stands in a text; `words` is null for an address that stands for itself. */
export type FoundLink = { start: number; end: number; address: string; words: string | null };

const ADDRESS = /\b(?:https?:\/\/|www\.)[^\s<>()[\]"']+/gi;
/** Where a link may begin. */
const BEGINNING = new RegExp(`\\[|${ADDRESS.source}`, 'gi');
const TRAILING = `.,;:!?'"`;

/** Without what ends a sentence rather than an address. A pattern that looks for an end tries every place before it. */
export const withoutTrailing = (address: string, trailing = TRAILING): string => {
  let end = address.length;
  while (end > 0 && trailing.includes(address.charAt(end - 1))) end -= 1;
  return address.slice(0, end);
};

export const addressesIn = (text: string): string[] => text.match(ADDRESS) ?? [];

/** The first place of a pattern at or after another; asked for ever later places, it reads a text once. */
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

/** Links of Markdown and bare addresses, in time that grows with the text alone, whatever a provider writes. */
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
