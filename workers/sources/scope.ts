import type { SiteOfRun, Source } from '../../src/sources/source.ts';

const URL_MAX = 1_000;
/** The most links between the start and a page. Beyond it there are mostly endless calendars. */
export const DEPTH_MAX = 12;
const SEGMENTS_MAX = 20;
/** A path that repeats a part of itself so often is made by relative links that lead nowhere. */
const REPEATS_MAX = 3;
/** The most pages that differ only by their query. More of them come from a calendar, a filter or a search. */
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
  const url = URL.parse(text, base);
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

/**
 * Whether a path matches a pattern in which `*` stands for anything but `/`, and `**` for anything. It never tries more
 * than the length of the path times the length of the pattern: others choose both.
 */
export const matchesGlob = (path: string, pattern: string): boolean => {
  // The places of the path that the pattern so far can end at.
  let places = new Uint8Array(path.length + 1);
  places[0] = 1;
  for (let at = 0; at < pattern.length; at += 1) {
    const next = new Uint8Array(path.length + 1);
    let isPossible = false;
    const isStar = pattern[at] === '*';
    const isAny = isStar && pattern[at + 1] === '*';
    while (isStar && pattern[at + 1] === '*') at += 1;
    for (let place = 0, isOpen = false; place <= path.length; place += 1) {
      const before = path[place - 1];
      if (isStar) isOpen = places[place] === 1 || (isOpen && (isAny || before !== '/'));
      else isOpen = place > 0 && places[place - 1] === 1 && before === pattern[at];
      if (!isOpen) continue;
      next[place] = 1;
      isPossible = true;
    }
    if (!isPossible) return false;
    places = next;
  }
  return places[path.length] === 1;
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

/** The folder that the pages of a site are in, by the path of its first page. */
export const folderOf = (path: string): string => {
  const last = path.slice(path.lastIndexOf('/') + 1);
  return path.endsWith('/') || last.includes('.') ? path.slice(0, path.lastIndexOf('/') + 1) : `${path}/`;
};

export type SiteScope = {
  /** Whether a page belongs to the source. The same page gives the same answer. */
  includes: (url: string) => boolean;
  /** Whether a link from a page is followed. Counts what is followed, and stops where it does not end. */
  follows: (url: string, depth: number) => boolean;
};

/** The pages of a site: of its origin, below its path or in what the owner includes, without what the owner excludes. */
export const createScope = (
  { include, exclude }: Pick<Source, 'include' | 'exclude'>,
  { origin, path }: Pick<SiteOfRun, 'origin' | 'path'>,
): SiteScope => {
  const queries = new Map<string, Set<string>>();
  const includes = (text: string): boolean => {
    const url = URL.parse(text);
    if (!url || url.origin !== origin) return false;
    const own = decoded(url.pathname);
    const isBelow = own.startsWith(decoded(path)) || `${own}/` === decoded(path);
    const isIncluded = include.length === 0 ? isBelow : include.some((glob) => matchesGlob(own, glob));
    return isIncluded && !exclude.some((glob) => matchesGlob(own, glob));
  };
  return {
    includes,
    follows: (text, depth) => {
      if (depth > DEPTH_MAX || !includes(text)) return false;
      const { pathname, search } = new URL(text);
      if (NO_PAGE.test(pathname) || hasLoop(pathname)) return false;
      if (search === '') return true;
      const known = queries.get(pathname) ?? new Set();
      if (known.size >= QUERIES_OF_PATH_MAX && !known.has(search)) return false;
      queries.set(pathname, known.add(search));
      return true;
    },
  };
};
