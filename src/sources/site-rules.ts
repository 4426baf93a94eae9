import { Parser } from 'htmlparser2';
import { createSlices } from '../platform/process/slices.ts';
import { MAX_URL_LENGTH, parseUrl } from '../platform/process/validation.ts';
import { PAGES_OF_SITE_MAX, type SiteOfRun, type Source } from './source.ts';

/** The name in robots.txt, and the first word of the user agent. */
export const BOT = 'parleybot';
/** RFC 9309 asks for at least 500 KiB. Only this much of a longer file is read. */
export const ROBOTS_MAX_BYTES = 512 * 1024;
const RULES_MAX = 2_000;
const PATTERN_MAX = 500;
const SITEMAPS_MAX = 20;

type Rule = { allow: boolean; pattern: string };

/** What a site's robots.txt says to this crawler. */
export type Robots = {
  /** `path` is the path with the query. */
  allows: (path: string) => Promise<boolean>;
  /** The delay that the site asks for. `sourceRequestEveryMaxMs` of the time limits bounds it. */
  crawlDelayMs: number;
  sitemaps: string[];
};

export const ALLOWS_ALL: Robots = { allows: () => Promise.resolve(true), crawlDelayMs: 0, sitemaps: [] };

/** Percent-encoding in one form, so that rules and paths can be compared. */
const canonical = (path: string): string => {
  const plain = path.replace(/%(?:2[1-9a-f]|[3-6][0-9a-f]|7[0-9a-e])/gi, (code) => {
    const letter = String.fromCharCode(Number.parseInt(code.slice(1), 16));
    return /[A-Za-z0-9\-._~]/.test(letter) ? letter : code.toUpperCase();
  });
  return plain.replace(/[\u0080-\u{10ffff}]+/gu, (some) => encodeURIComponent(some.toWellFormed()));
};

/** `*` stands for anything, and `$` for the end. Each part is looked for once, at its first place. */
const matches = (path: string, pattern: string): boolean => {
  const isWhole = pattern.endsWith('$');
  const [first = '', ...parts] = (isWhole ? pattern.slice(0, -1) : pattern).split('*');
  if (!path.startsWith(first)) return false;
  const last = isWhole ? parts.pop() : undefined;
  let at = first.length;
  for (const part of parts) {
    const found = path.indexOf(part, at);
    if (found === -1) return false;
    at = found + part.length;
  }
  if (!isWhole) return true;
  return last === undefined ? at === path.length : path.length - last.length >= at && path.endsWith(last);
};

/**
 * Reads robots.txt (RFC 9309): the groups of our name, or else those of `*`; the longest rule that matches decides.
 * Strangers choose the lines, so no pattern that may backtrack reads them, and other work runs in between.
 */
export const parseRobots = async (text: string): Promise<Robots> => {
  const slices = createSlices();
  const groups = new Map<string, { rules: Rule[]; delay: number }>();
  const sitemaps: string[] = [];
  let names = new Set<string>();
  let isOpen = false;
  let count = 0;
  const groupsOfNames = () =>
    [...names].map((name) => {
      const group = groups.get(name) ?? { rules: [], delay: 0 };
      groups.set(name, group);
      return group;
    });
  for (const [line] of text.matchAll(/[^\r\n]+/g)) {
    if (slices.isOver()) await slices.next();
    const plain = line.split('#', 1)[0] ?? '';
    const colon = plain.indexOf(':');
    const key = plain.slice(0, Math.max(0, colon)).trim().toLowerCase();
    const value = plain.slice(colon + 1).trim();
    if (key === 'user-agent') {
      if (!isOpen) names = new Set();
      isOpen = true;
      const [name = ''] = value.slice(0, 100).toLowerCase().split(/[/\s]/, 1);
      if (name === BOT || name === '*') names.add(name);
      groupsOfNames();
    } else if (key === 'allow' || key === 'disallow') {
      isOpen = false;
      count += 1;
      if (value === '' || value.length > PATTERN_MAX || count > RULES_MAX) continue;
      const rule = { allow: key === 'allow', pattern: canonical(value.startsWith('/') ? value : `/${value}`) };
      for (const group of groupsOfNames()) group.rules.push(rule);
    } else if (key === 'crawl-delay') {
      isOpen = false;
      const seconds = Number(value);
      if (Number.isFinite(seconds) && seconds > 0) for (const group of groupsOfNames()) group.delay = seconds;
    } else if (key === 'sitemap' && sitemaps.length < SITEMAPS_MAX && line.length <= MAX_URL_LENGTH)
      sitemaps.push(line.slice(line.indexOf(':') + 1).trim());
  }
  const { rules, delay } = groups.get(BOT) ?? groups.get('*') ?? { rules: [], delay: 0 };
  // The longest rule first; of equally long rules, the one that allows.
  const ordered = rules.toSorted(
    (one, other) => other.pattern.length - one.pattern.length || Number(other.allow) - Number(one.allow),
  );
  return {
    allows: async (given) => {
      const matching = createSlices();
      const path = canonical(given);
      for (const { allow, pattern } of ordered) {
        if (matches(path, pattern)) return allow;
        if (matching.isOver()) await matching.next();
      }
      return true;
    },
    crawlDelayMs: delay * 1_000,
    sitemaps,
  };
};

/** The text of an address may be longer than this, because its tracking parameters are left out. */
const URL_MAX = 1_000;
/** The maximum number of links between the start and a page. Deeper pages mostly belong to endless calendars. */
const DEPTH_MAX = 12;
const SEGMENTS_MAX = 20;
/** A path that repeats one of its parts more often than this comes from relative links that lead nowhere. */
const REPEATS_MAX = 3;
/**
 * The maximum number of pages that differ only in their query. More than this come from a calendar, a filter or a
 * search.
 */
const QUERIES_OF_PATH_MAX = 50;

/** Parameters that tell where a visitor comes from, or who it is, and change nothing of the page. */
const TRACKING =
  /^(utm_\w+|gclid|gbraid|wbraid|dclid|fbclid|msclkid|yclid|twclid|igshid|mc_[ce]id|_ga|_gl|ref_src|phpsessid|jsessionid|sid|sessionid)$/i;
const SESSION_IN_PATH = /;jsessionid=[^/?]*/i;
/** Endings of paths that are not pages. They are not fetched. */
const NO_PAGE =
  /\.(?:avif|bmp|gif|ico|jpe?g|png|svg|tiff?|webp|mp[34]|m4[av]|avi|mov|ogg|wav|webm|zip|gz|tgz|bz2|xz|7z|rar|tar|exe|dmg|pkg|deb|rpm|apk|iso|css|m?js|map|json|xml|rss|atom|ics|woff2?|ttf|otf|eot|csv|xlsx?|pptx?|epub|wasm)$/i;

/** The address under which a page is stored, so that the same page is fetched once. Null if it is no address of a page. */
export const normalisedUrl = (text: string, base?: string): string | null => {
  const url = parseUrl(text, base);
  if (!url || (url.protocol !== 'https:' && url.protocol !== 'http:')) return null;
  url.hash = '';
  url.username = '';
  url.password = '';
  url.pathname = url.pathname.replace(SESSION_IN_PATH, '');
  if (url.search !== '') {
    const kept = [...url.searchParams].filter(([name]) => !TRACKING.test(name));
    if (kept.length < url.searchParams.size) url.search = new URLSearchParams(kept).toString();
  }
  const { href } = url;
  return href.length > URL_MAX ? null : href.replace(/\?$/, '');
};

/** The address as a page of a site. Sites that moved to `https:` often still link to themselves, and list pages, as `http:`. */
export const securedUrl = (url: string, origin: string): string => {
  const secured = url.replace(/^http:/, 'https:');
  return URL.parse(secured)?.origin === origin ? secured : url;
};

const SLASH = 47;

/** Some places of a pattern, as bits. */
const bitsOf = (places: number[], words: number): Uint32Array => {
  const bits = new Uint32Array(words);
  for (const place of places) bits[place >>> 5] = (bits[place >>> 5] ?? 0) | (1 << (place & 31));
  return bits;
};

/**
 * Returns whether a path matches a pattern in which `*` stands for anything but `/`, and `**` for anything. Others choose
 * both, so a path is read only once. After each of its characters, a bit tells for each place of the pattern whether the
 * path up to here can end there.
 */
export const createGlob = (pattern: string): ((path: string) => boolean) => {
  let passed = 0;
  /** The places that a star lets stay, at any character and at any but `/`, and those that a character leads on from. */
  const [anywhere, inSegment]: [number[], number[]] = [[], []];
  const following = new Map<number, number[]>();
  for (const [part] of pattern.matchAll(/\*+|[^*]/g)) {
    if (part.startsWith('*')) (part.length > 1 ? anywhere : inSegment).push(passed);
    else following.set(part.charCodeAt(0), [...(following.get(part.charCodeAt(0)) ?? []), passed++]);
  }
  const words = (passed >>> 5) + 1;
  const atSlash = bitsOf(anywhere, words);
  const elsewhere = bitsOf([...anywhere, ...inSegment], words);
  const onward = new Map([...following].map(([code, places]) => [code, bitsOf(places, words)]));
  const nowhere = new Uint32Array(words);

  return (path) => {
    const reached = bitsOf([0], words);
    for (let at = 0; at < path.length; at += 1) {
      const code = path.charCodeAt(at);
      const [stays, goes] = [code === SLASH ? atSlash : elsewhere, onward.get(code) ?? nowhere];
      let [carried, isPossible] = [0, 0];
      for (let word = 0; word < words; word += 1) {
        const before = reached[word] as number;
        const gone = before & (goes[word] as number);
        const now = (before & (stays[word] as number)) | (gone << 1) | carried;
        reached[word] = now;
        carried = gone >>> 31;
        isPossible |= now;
      }
      if (isPossible === 0) return false;
    }
    return (((reached[words - 1] as number) >>> (passed & 31)) & 1) === 1;
  };
};

const decoded = (path: string): string => {
  try {
    return decodeURI(path);
  } catch {
    return path;
  }
};

const hasLoop = (path: string): boolean => {
  const segments = path.split('/').filter(Boolean);
  if (segments.length > SEGMENTS_MAX) return true;
  const counts = new Map<string, number>();
  for (const segment of segments) counts.set(segment, (counts.get(segment) ?? 0) + 1);
  return [...counts.values()].some((count) => count > REPEATS_MAX);
};

/** The ending of a path that is a page and no folder. A folder may have a dot too, as `/docs/v2.0` has. */
const PAGE_ENDING = /\.(?:x?html?|shtml|php\d?|aspx?|jspx?|cfm|cgi|do|md|markdown|txt|pdf|docx|xml(?:\.gz)?)$/i;

/** The folder that the pages of a site are in, by the path of its first page. */
export const folderOf = (path: string): string =>
  path.endsWith('/') || PAGE_ENDING.test(path) ? path.slice(0, path.lastIndexOf('/') + 1) : `${path}/`;

export type SiteScope = {
  /** Whether a page belongs to the source. The same page gives the same answer. */
  includes: (url: string) => boolean;
  /**
   * Whether a link from a page is followed. Counts pages that differ only in their query, and stops where a site makes
   * endlessly many.
   */
  follows: (url: string, depth: number) => boolean;
};

/** The pages of a site: of its origin, below its path or in what the owner includes, without what the owner excludes. */
export const createScope = (
  { include, exclude }: Pick<Source, 'include' | 'exclude'>,
  { origin, path, typed = null }: Pick<SiteOfRun, 'origin' | 'path' | 'typed'>,
): SiteScope => {
  const bases = [{ origin, path }, ...(typed ? [typed] : [])].map((base) => ({ ...base, path: decoded(base.path) }));
  const [included, excluded] = [include.map(createGlob), exclude.map(createGlob)];
  const queries = new Map<string, Set<string>>();
  let withQuery = 0;
  const includes = (text: string): boolean => {
    const url = URL.parse(text);
    const ofOrigin = bases.filter((base) => base.origin === url?.origin);
    if (!url || ofOrigin.length === 0) return false;
    const own = decoded(url.pathname);
    const isBelow = ofOrigin.some((base) => own.startsWith(base.path) || `${own}/` === base.path);
    const isIncluded = included.length === 0 ? isBelow : included.some((matches) => matches(own));
    return isIncluded && !excluded.some((matches) => matches(own));
  };
  return {
    includes,
    follows: (text, depth) => {
      if (depth > DEPTH_MAX || !includes(text)) return false;
      const { pathname, search } = new URL(text);
      if (NO_PAGE.test(pathname) || hasLoop(pathname)) return false;
      if (search === '') return true;
      const known = queries.get(pathname) ?? new Set();
      if (known.has(search)) return true;
      if (known.size >= QUERIES_OF_PATH_MAX || withQuery >= PAGES_OF_SITE_MAX) return false;
      queries.set(pathname, known.add(search));
      withQuery += 1;
      return true;
    },
  };
};

const FILES_MAX = 50;
/** How much of a sitemap is parsed in one step. */
const PART = 16 * 1024;

type Sitemap = { pages: string[]; sitemaps: string[] };

/** Reads at most `most` addresses of a sitemap, an index of sitemaps, or a text with an address on each line. */
export const parseSitemap = async (text: string, most: number): Promise<Sitemap> => {
  const slices = createSlices();
  const found: Sitemap = { pages: [], sitemaps: [] };
  if (!text.trimStart().startsWith('<')) {
    for (const [line] of text.matchAll(/\S+/g)) {
      if (found.pages.length >= most) break;
      if (line.length <= MAX_URL_LENGTH && /^https?:\/\//.test(line)) found.pages.push(line);
      if (slices.isOver()) await slices.next();
    }
    return found;
  }
  const open: string[] = [];
  let [location, isTooDeep] = ['', false];
  const parser = new Parser(
    {
      onopentagname: (name) => {
        open.push(name.slice(name.indexOf(':') + 1));
        isTooDeep ||= open.length > 20;
        if (isTooDeep) parser.pause();
        if (open.at(-1) === 'loc') location = '';
      },
      ontext: (part) => {
        if (open.at(-1) === 'loc') location = (location + part).slice(0, MAX_URL_LENGTH + 1);
      },
      onclosetag: () => {
        const parent = open.at(-2);
        if (open.pop() !== 'loc') return;
        if (parent === 'url' && found.pages.length < most) found.pages.push(location.trim());
        else if (parent === 'sitemap' && found.sitemaps.length < FILES_MAX) found.sitemaps.push(location.trim());
      },
    },
    { xmlMode: true },
  );
  for (let from = 0; from < text.length && !isTooDeep; from += PART) {
    parser.write(text.slice(from, from + PART));
    if (slices.isOver()) await slices.next();
  }
  parser.end();
  return found;
};

type Options = {
  /** Null if it could not be read. */
  fetchText: (url: string) => Promise<string | null>;
  /** The address in the form in which pages are stored, or null if it does not belong to the site. */
  accept: (url: string, from: string) => string | null;
  most: number;
  /** True if no further sitemap may be read. The first one always is. */
  isOver?: () => boolean;
};

/** The pages that sitemaps list. Each sitemap is read once, however they name each other. */
export const readSitemaps = async (
  first: string[],
  { fetchText, accept, most, isOver = () => false }: Options,
): Promise<string[]> => {
  const slices = createSlices();
  const pages = new Set<string>();
  const seen = new Set<string>();
  const waiting = [...first];
  for (let url = waiting.shift(); url !== undefined; url = waiting.shift()) {
    if (seen.has(url) || seen.size >= FILES_MAX || pages.size >= most) continue;
    if (seen.size > 0 && isOver()) break;
    seen.add(url);
    const text = await fetchText(url);
    if (text === null) continue;
    const found = await parseSitemap(text, 25 * most);
    for (const page of found.pages) {
      if (pages.size >= most) break;
      const accepted = accept(page, url);
      if (accepted !== null) pages.add(accepted);
      if (slices.isOver()) await slices.next();
    }
    for (const sitemap of found.sitemaps) {
      const target = parseUrl(sitemap, url);
      if (target && target.origin === new URL(url).origin) waiting.push(target.href);
      if (slices.isOver()) await slices.next();
    }
  }
  return [...pages];
};
