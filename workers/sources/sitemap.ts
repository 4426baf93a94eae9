import { Parser } from 'htmlparser2';

const FILES_MAX = 50;
/** An address is long, but not this long. */
const LOCATION_MAX = 2_048;

type Sitemap = { pages: string[]; sitemaps: string[] };

/** Reads a sitemap or an index of sitemaps, or a text with an address on each line, as far as it goes. */
export const parseSitemap = (text: string, most: number): Sitemap => {
  const found: Sitemap = { pages: [], sitemaps: [] };
  if (!text.trimStart().startsWith('<')) {
    const lines = text.split(/\s+/).filter((line) => /^https?:\/\//.test(line));
    return { ...found, pages: lines.slice(0, most) };
  }
  const open: string[] = [];
  let location = '';
  const parser = new Parser(
    {
      onopentagname: (name) => {
        open.push(name.slice(name.indexOf(':') + 1));
        if (open.length > 20) parser.pause();
        if (open.at(-1) === 'loc') location = '';
      },
      ontext: (part) => {
        if (open.at(-1) === 'loc' && location.length < LOCATION_MAX) location += part;
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
  parser.write(text);
  parser.end();
  return found;
};

type Options = {
  /** Null if it could not be read. */
  fetchText: (url: string) => Promise<string | null>;
  /** The address in the form in which pages are stored, or null if it does not belong to the site. */
  accept: (url: string, from: string) => string | null;
  most: number;
};

/** The pages that sitemaps list. Each sitemap is read once, however they name each other. */
export const readSitemaps = async (first: string[], { fetchText, accept, most }: Options): Promise<string[]> => {
  const pages = new Set<string>();
  const seen = new Set<string>();
  const waiting = [...first];
  for (let url = waiting.shift(); url !== undefined; url = waiting.shift()) {
    if (seen.has(url) || seen.size >= FILES_MAX || pages.size >= most) continue;
    seen.add(url);
    const text = await fetchText(url);
    if (text === null) continue;
    const found = parseSitemap(text, 25 * most);
    for (const page of found.pages) {
      const accepted = pages.size < most ? accept(page, url) : null;
      if (accepted !== null) pages.add(accepted);
    }
    for (const sitemap of found.sitemaps) {
      const target = URL.parse(sitemap, url);
      if (target && target.origin === new URL(url).origin) waiting.push(target.href);
    }
  }
  return [...pages];
};
