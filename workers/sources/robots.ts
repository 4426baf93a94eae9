/** The name in robots.txt, and the first word of the user agent. */
export const BOT = 'parleybot';
/** RFC 9309 asks for at least 500 KiB; a longer file is read to here. */
export const ROBOTS_MAX_BYTES = 512 * 1024;
const RULES_MAX = 2_000;
const PATTERN_MAX = 500;
const SITEMAPS_MAX = 20;

type Rule = { allow: boolean; pattern: string };

/** What a site's robots.txt says to this crawler. */
export type Robots = {
  /** `path` is the path with the query. */
  allows: (path: string) => boolean;
  /** What the site asks for. `sourceRequestEveryMaxMs` of the time limits bounds it. */
  crawlDelayMs: number;
  sitemaps: string[];
};

export const ALLOWS_ALL: Robots = { allows: () => true, crawlDelayMs: 0, sitemaps: [] };

/** Percent-encoding in one form, so that rules and paths compare. */
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

/** Reads robots.txt (RFC 9309): the groups of our name, or else those of `*`; the longest rule that matches decides. */
export const parseRobots = (text: string): Robots => {
  const groups = new Map<string, { rules: Rule[]; delay: number }>();
  const sitemaps: string[] = [];
  let names: string[] = [];
  let isOpen = false;
  let count = 0;
  const groupOf = (name: string) => {
    const group = groups.get(name) ?? { rules: [], delay: 0 };
    groups.set(name, group);
    return group;
  };
  for (const line of text.replace(/^\uFEFF/, '').split(/\r\n|\r|\n/)) {
    const [, field = '', value = ''] = /^\s*([a-z-]+)\s*:\s*(.*?)\s*$/i.exec(line.split('#', 1)[0] ?? '') ?? [];
    const key = field.toLowerCase();
    if (key === 'user-agent') {
      if (!isOpen) names = [];
      isOpen = true;
      names.push(value.toLowerCase().split(/[/\s]/, 1)[0] ?? '');
      for (const name of names) if (name === BOT || name === '*') groupOf(name);
    } else if (key === 'allow' || key === 'disallow') {
      isOpen = false;
      count += 1;
      if (value === '' || value.length > PATTERN_MAX || count > RULES_MAX) continue;
      const rule = { allow: key === 'allow', pattern: canonical(value.startsWith('/') ? value : `/${value}`) };
      for (const name of names) if (name === BOT || name === '*') groupOf(name).rules.push(rule);
    } else if (key === 'crawl-delay') {
      isOpen = false;
      const seconds = Number(value);
      if (Number.isFinite(seconds) && seconds > 0)
        for (const name of names) if (name === BOT || name === '*') groupOf(name).delay = seconds;
    } else if (key === 'sitemap' && sitemaps.length < SITEMAPS_MAX)
      sitemaps.push(line.slice(line.indexOf(':') + 1).trim());
  }
  const { rules, delay } = groups.get(BOT) ?? groups.get('*') ?? { rules: [], delay: 0 };
  // The longest first; of equals the one that allows.
  const ordered = rules.toSorted(
    (one, other) => other.pattern.length - one.pattern.length || Number(other.allow) - Number(one.allow),
  );
  return {
    allows: (given) => {
      const path = canonical(given);
      return ordered.find(({ pattern }) => matches(path, pattern))?.allow ?? true;
    },
    crawlDelayMs: delay * 1_000,
    sitemaps,
  };
};
