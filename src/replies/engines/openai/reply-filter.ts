import type { FoundPassage } from '@parley/understanding';
import { baseLanguage, withoutPiledMarks } from '@parley/understanding/text';
import type { ReadPassage } from '../../../sources/passages.ts';
import type { AssistantProfile, EngineEntry } from '../engine.ts';
import { sourceOf } from '../retrieval.ts';

// Every step here takes linear time, because a provider may send anything.

/** Passages in a provider’s prompt have numbers, which the provider repeats where it used them: `[1]` or `[2, 3]`. */
const CITATION = /\[ ?\d{1,2}(?: ?, ?\d{1,2}){0,9} ?\](?!\()/g;

/** The text as the visitor sees it. The white space before a citation goes too. */
const withoutCitations = (text: string): string => {
  const kept: string[] = [];
  let from = 0;
  for (const { 0: cited, index } of text.matchAll(CITATION)) {
    kept.push(text.slice(from, index).trimEnd());
    from = index + cited.length;
  }
  return [...kept, text.slice(from)].join('');
};

const numbersCitedIn = (text: string): number[] =>
  [...text.matchAll(CITATION)].flatMap(([cited]) => (cited.match(/\d+/g) ?? []).map(Number));

/** What a reply may be based on: passages (the first is cited as 1), entries, and what visitor and business said. */
export type Given = { passages: FoundPassage<ReadPassage>[]; entries: EngineEntry[]; said: string[] };

/** Why a sentence of a reply may be invented. `uncited`: the whole reply names none of the passages that it had. */
type Flag = { sentence: number; because: 'unknown source' | 'number' | 'name' | 'address' | 'uncited' };

/** The maximum number of flags in a reply's `why`, which is bounded. */
const FLAGS_MAX = 10;

const folded = (text: string): string => withoutPiledMarks(text).normalize('NFKC').toLowerCase();

/** The numbers of a text: `1,500` is one, and 9:30 are two. Zeros say nothing and are left out. */
const numbersIn = (text: string): string[] =>
  (text.replace(/(?<=\d)[.,’'\u00a0\u202f](?=\d{3}(?!\d))/g, '').match(/\d+/g) ?? [])
    .map((digits) => digits.replace(/^0+/, ''))
    .filter((digits) => digits !== '');

const WORD = /[\p{L}\p{N}][\p{L}\p{M}\p{N}]*/gu;
/** The mail addresses of a text, without the end of their sentence. */
const mailAddressesIn = (text: string): string[] =>
  text
    .split(/[^\p{L}\p{M}\p{N}.@_%+-]/u)
    .filter((word) => word.includes('@'))
    .map((word) => (word.endsWith('.') ? word.slice(0, -1) : word));

/** Names are compared by their beginning, because their endings change with case and number. */
const LEAST_BEGINNING = 4;
const ENDING = 3;
const LONGEST_NAME = 40;
const beginningOf = (word: string): string => word.slice(0, Math.max(LEAST_BEGINNING, word.length - ENDING));

/** A word after one of these begins a sentence, a list item or a quote, so its capital letter says nothing. */
const OPENING = '.!?:;•*("“„«‘–—-';
const isAfterOpening = (sentence: string, index: number): boolean => {
  let before = index - 1;
  while (before >= 0 && /\s/.test(sentence.charAt(before))) before -= 1;
  return before < 0 || OPENING.includes(sentence.charAt(before));
};
const CAPITAL = /^\p{Lu}/u;
/** Words with two capital letters, or with letters and a digit, count as names in all languages. */
const isAlwaysName = (word: string): boolean =>
  (word.match(/\p{Lu}/gu)?.length ?? 0) > 1 || (/\p{L}/u.test(word) && /\d/.test(word));
const NO_NAMES = new Set(['i', 'ok', 'faq']);

/**
 * The names of a sentence: words with a capital letter. In German, every noun has one, so only `isAlwaysName` counts.
 */
const namesIn = (sentence: string, language: string): string[] =>
  [...sentence.matchAll(WORD)]
    .filter(({ 0: word, index }) => {
      if (word.length > LONGEST_NAME) return false;
      if (isAlwaysName(word)) return true;
      return language !== 'de' && word.length > 1 && CAPITAL.test(word) && !isAfterOpening(sentence, index);
    })
    .map(([word]) => folded(word))
    .filter((word) => !NO_NAMES.has(word));

/**
 * The number before a list item, and a mark of Markdown. Only `\n` begins a line here: to `^`, each `\r` and U+2028 of a
 * thousand begins one too, and the pattern would read all that follow it.
 */
const ITEM = /(?<![^\n])[^\S\n]*(?:\d{1,2}[.)]|[-*•])[^\S\n]/g;

const languagesOf = ({ passages, entries }: Given): (string | null)[] => [
  ...passages.map(({ passage }) => passage.language),
  ...entries.map((entry) => entry.language),
];

const textsOf = ({ passages, entries, said }: Given): string[] => [
  ...passages.map(({ passage: { title, path, text } }) => [title, ...path, text].join('\n')),
  ...entries.map(({ question, variants, answer }) => [question, ...variants, answer].join('\n')),
  ...said,
];

/** What a sentence of a reply cites and says. `facts`: its mail addresses, then its numbers. */
type Claims = { citations: number[]; facts: string[]; names: string[] };

const claimsOf = (sentence: string, language: string): Claims => {
  const words = withoutCitations(sentence);
  const read = folded(words);
  return {
    citations: numbersCitedIn(sentence),
    facts: [...mailAddressesIn(read), ...numbersIn(read)],
    names: namesIn(words, language),
  };
};

const ADDRESS = /\b(?:https?:\/\/|www\.)[^\s<>()[\]"']+/gi;
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

/** The facts of a text that can be compared with those of another one: links, mail addresses, numbers and names. */
export const factsIn = (text: string, language: string): Set<string> => {
  const links = addressesIn(text).map((address) => withoutTrailing(address));
  const words = text.replace(ADDRESS, ' ');
  const { facts, names } = claimsOf(words, baseLanguage(language));
  return new Set([...links, ...facts, ...names]);
};

type Wanted = { facts: Set<string>; names: Set<string> };

/** Finds the wanted facts (addresses and numbers) and names (beginnings of words) in these texts. */
function* findIn(texts: string[], wanted: Wanted): Generator<void, Wanted> {
  const found: Wanted = { facts: new Set(), names: new Set() };
  for (const text of texts) {
    const read = folded(text);
    for (const fact of [...mailAddressesIn(read), ...numbersIn(read)])
      if (wanted.facts.has(fact)) found.facts.add(fact);
    yield;
    for (const [word] of read.matchAll(WORD)) {
      if (word.length > LONGEST_NAME) continue;
      for (let end = Math.min(LEAST_BEGINNING, word.length); end <= word.length; end += 1) {
        const beginning = word.slice(0, end);
        if (wanted.names.has(beginning)) found.names.add(beginning);
      }
    }
    yield;
  }
  return found;
}

export type Checked = { cited: number[]; flags: Flag[] };

/**
 * Compares a provider’s reply, with its citations, with what the provider was given. A sentence is flagged if it cites
 * a number that was not given, or if it has a number, a name or an address that no given text has. Names are compared
 * only in a language of the given texts, because another language writes them differently. It yields between its steps,
 * and remembers only what the reply says, because a history may be long.
 */
export function* checkReply(reply: string, given: Given, language: string): Generator<void, Checked> {
  const base = baseLanguage(language);
  const hasLanguage = languagesOf(given).some((one) => one === null || baseLanguage(one) === base);
  const sentences: Claims[] = [];
  for (const { segment } of new Intl.Segmenter(base, { granularity: 'sentence' }).segment(reply.replace(ITEM, ''))) {
    sentences.push(claimsOf(segment, base));
    yield;
  }
  const found = yield* findIn(textsOf(given), {
    facts: new Set(sentences.flatMap(({ facts }) => facts)),
    names: new Set(sentences.flatMap(({ names }) => names.flatMap((name) => [name, beginningOf(name)]))),
  });

  const isGiven = (number: number): boolean => number >= 1 && number <= given.passages.length;
  const isKnown = (name: string): boolean => found.names.has(name) || found.names.has(beginningOf(name));
  const becauseOf = ({ citations, facts, names }: Claims): Flag['because'] | null => {
    if (!citations.every(isGiven)) return 'unknown source';
    const unknown = facts.find((fact) => !found.facts.has(fact));
    if (unknown !== undefined) return unknown.includes('@') ? 'address' : 'number';
    return hasLanguage && !names.every(isKnown) ? 'name' : null;
  };
  const flags = sentences.flatMap((claims, at): Flag[] => {
    const because = becauseOf(claims);
    return because ? [{ sentence: at + 1, because }] : [];
  });
  const cited = new Set(sentences.flatMap(({ citations }) => citations));
  if (given.passages.length > 0 && given.entries.length === 0 && cited.size === 0) {
    flags.unshift({ sentence: 0, because: 'uncited' });
  }
  return { cited: [...cited].filter(isGiven), flags: flags.slice(0, FLAGS_MAX) };
}

/** The model writes this mark if it could not answer. The mark is removed from the reply. */
export const UNSURE_MARK = '[unsure]';

type IsAllowedLink = (link: string) => boolean;

/** A link in a text. `words` is the text of a Markdown link, null for a bare address. */
type FoundLink = { start: number; end: number; address: string; words: string | null };

/** The beginning of a link: an opening bracket or the start of an address. */
const BEGINNING = new RegExp(`\\[|${ADDRESS.source}`, 'gi');

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
function* findLinks(text: string): Generator<FoundLink> {
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

/** The page of a passage, and the links in its text. */
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
 * Filters a streamed reply: removes disallowed links, citations, the unsure mark and surrounding white space. All
 * emitted pieces together are exactly the text that `end` returns.
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
