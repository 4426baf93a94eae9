import { StringDecoder } from 'node:string_decoder';
import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import { createSlices } from '../platform/process/slices.ts';
import type { Timing } from '../platform/process/time-limits.ts';
import type { Fetched, Fetcher, FetchOptions, Room } from './fetch.ts';
import { ALLOWS_ALL, parseRobots, type Robots, ROBOTS_MAX_BYTES } from './site-rules.ts';
import { FETCHED_MAX_BYTES, type SourceError, type StoredSourcePage } from './source.ts';

const HTML = 'text/html,application/xhtml+xml';
const DOCX = 'application/vnd.openxmlformats-officedocument.wordprocessingml.document';
const ACCEPT = `${HTML};q=1,text/markdown;q=0.9,text/plain;q=0.8,application/pdf;q=0.7,${DOCX};q=0.7`;
const READ_TYPES = new Set([
  ...HTML.split(','),
  'text/markdown',
  'text/x-markdown',
  'text/plain',
  'application/pdf',
  DOCX,
]);
/** Types that say nothing. The ending of the path then decides. */
const NO_TYPES = new Set(['', 'application/octet-stream', 'binary/octet-stream', 'application/unknown']);
const READ_ENDINGS = /\.(?:html?|xhtml|md|markdown|txt|pdf|docx)$/i;
const XML_TYPES = new Set(['text/xml', 'application/xml']);

export const typeOf = (contentType: string | null): string =>
  (contentType ?? '').split(';', 1)[0]?.trim().toLowerCase() ?? '';

export const saysNothing = (contentType: string | null): boolean => NO_TYPES.has(typeOf(contentType));

export const isReadable = (contentType: string | null, url: string): boolean => {
  const isUntold = saysNothing(contentType) && READ_ENDINGS.test(new URL(url).pathname);
  return READ_TYPES.has(typeOf(contentType)) || isUntold;
};
export const isXml = (contentType: string | null, url: string): boolean =>
  XML_TYPES.has(typeOf(contentType)) || /\.xml(?:\.gz)?$/i.test(new URL(url).pathname);

/** The run cannot continue. Answers keep using what they have. */
export class RunFailure extends Error {
  override name = 'RunFailure';
  readonly error: SourceError;
  readonly againAfterMs: number | undefined;
  constructor(error: SourceError, againAfterMs?: number) {
    super(error.code);
    this.error = error;
    this.againAfterMs = againAfterMs;
  }
}

/** The run continues later: other sources wait for its place, its host is crowded, or the process stops. */
export class RunInterrupted extends Error {
  override name = 'RunInterrupted';
}

const unzip = promisify(gunzip);
const DECODED_AT_ONCE = 1_000_000;
/** The text of a sitemap, whose file may be compressed. It is decoded in steps, because bytes that are no text take long. */
export const unpacked = async (given: Buffer): Promise<string> => {
  const isPacked = given[0] === 0x1f && given[1] === 0x8b;
  const unpacking = isPacked ? unzip(given, { maxOutputLength: FETCHED_MAX_BYTES }) : given;
  const bytes = await Promise.resolve(unpacking).catch(() => Buffer.alloc(0));
  const slices = createSlices();
  const decoder = new StringDecoder();
  let text = '';
  for (let from = 0; from < bytes.length; from += DECODED_AT_ONCE) {
    text += decoder.write(bytes.subarray(from, from + DECODED_AT_ONCE));
    if (slices.isOver()) await slices.next();
  }
  return text + decoder.end();
};

/** Without the answer that the host is crowded, which ends the run for now. */
export type SiteAnswer = Exclude<Fetched, { kind: 'crowded' }>;

type Asking = Pick<FetchOptions, 'assistantId' | 'othersWait' | 'signal'> & {
  fetcher: Fetcher;
  timing: Timing;
  /** The version of the reader. */
  version: string;
  /** Whether an address is beyond the source. */
  isElsewhere: (url: URL) => boolean;
};

/** What a run asks of websites: what their robots.txt allows, as slowly as it wants, and only what can be read. */
export const createRequests = ({ fetcher, timing, version, isElsewhere, ...who }: Asking) => {
  const robotsByOrigin = new Map<string, Promise<Robots>>();

  const ask = async (url: string, options: Omit<FetchOptions, keyof typeof who>): Promise<SiteAnswer> => {
    const answer = await fetcher(url, { ...options, ...who });
    if (answer.kind === 'crowded') throw new RunInterrupted('the host is crowded');
    return answer;
  };

  const everyMs = (robots: Robots | null): number =>
    Math.max(timing.sourceRequestEveryMs, Math.min(robots?.crawlDelayMs ?? 0, timing.sourceRequestEveryMaxMs));

  const askRobots = async (origin: string): Promise<Robots> => {
    const accept = 'text/plain,*/*;q=0.5';
    const answer = await ask(`${origin}/robots.txt`, {
      accept,
      maxBytes: ROBOTS_MAX_BYTES,
      truncates: true,
      everyMs: () => everyMs(null),
    });
    if (answer.kind === 'answered') return parseRobots(answer.bytes.toString());
    // Any status of 400 to 499 except 429 means that there is no robots.txt, and so do redirects that lead nowhere.
    const isNone =
      answer.kind === 'missing' ||
      answer.kind === 'unchanged' ||
      (answer.kind === 'refused' && answer.error.code !== 'private_address') ||
      (answer.kind === 'failed' && answer.status !== null && answer.status < 500 && !answer.later);
    if (isNone) return ALLOWS_ALL;
    const { code, message } = answer.error;
    if (answer.kind === 'refused' || answer.status === null)
      throw new RunFailure({ code, message }, answer.kind === 'failed' ? timing.sourcePostponedMs : undefined);
    const words = `The site’s robots.txt cannot be read (${answer.status}), so Parley asks for no page. It tries again in an hour`;
    throw new RunFailure({ code: 'robots_unavailable', message: words }, timing.sourcePostponedMs);
  };
  const robotsOf = (origin: string): Promise<Robots> => {
    const asked = robotsByOrigin.get(origin) ?? askRobots(origin);
    robotsByOrigin.set(origin, asked);
    return asked;
  };

  /**
   * `isStart`: the first request of a site, which may lead to another host, as from example.com to www.example.com.
   */
  const fetchPage = async (
    page: Pick<StoredSourcePage, 'url'> & Partial<StoredSourcePage>,
    room: Room,
    isStart = false,
  ) => {
    let robots: Robots | null = null;
    // A page that another version of the reader has read is read again, also if its site would say that it is the same.
    const isKnown = page.hash?.startsWith(`${version}.`) === true;
    return ask(page.url, {
      accept: ACCEPT,
      maxBytes: FETCHED_MAX_BYTES,
      room,
      ...(isKnown && { etag: page.etag ?? null, lastModified: page.lastModified ?? null }),
      everyMs: () => everyMs(robots),
      isWanted: (type, url) => isReadable(type, url) || (isStart && isXml(type, url)),
      refuse: async (url) => {
        if (!isStart && isElsewhere(url))
          return { code: 'elsewhere', message: `The page leads to another site (${url.host})` };
        robots = await robotsOf(url.origin);
        if (await robots.allows(url.pathname + url.search)) return null;
        return {
          code: 'robots',
          message: 'The site’s robots.txt forbids this page. Allow the user agent ParleyBot there',
        };
      },
    });
  };

  /** Fetches a sitemap of a site, whose file may be compressed. */
  const fetchText = async (url: string, origin: string, room: Room): Promise<string | null> => {
    const robots = await robotsOf(origin);
    const answer = await ask(url, {
      accept: 'application/xml,text/xml,text/plain;q=0.5,*/*;q=0.1',
      maxBytes: FETCHED_MAX_BYTES,
      room,
      everyMs: () => everyMs(robots),
    });
    return answer.kind === 'answered' ? unpacked(answer.bytes) : null;
  };

  return { robotsOf, fetchPage, fetchText };
};
