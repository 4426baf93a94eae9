import { createHash } from 'node:crypto';
import { basename } from 'node:path';
import { type Reader, type ReadFailure, type ReadPage, readerVersion } from '@parley/reading';
import type { Logger } from '../platform/process/logger.ts';
import { createSlices } from '../platform/process/slices.ts';
import { createSlots, LEAST_TIME_FIRST, oneEach } from '../platform/process/slots.ts';
import type { Timing } from '../platform/process/time-limits.ts';
import { type RunLease, RunLost } from './lease-sessions.ts';
import { type FoundPage, MANY_PASSAGES, type PageEnd } from './run-pages.ts';
import type { SourceRuns } from './runs.ts';
import {
  PAGES_OF_SITE_MAX,
  type SiteOfRun,
  type SourceError,
  type StoredSource,
  type StoredSourcePage,
} from './source.ts';
import { type Fetcher, LARGE_BYTES, type OpenRoom, type Room } from './fetch.ts';
import {
  type SiteAnswer,
  createRequests,
  isReadable,
  isXml,
  RunFailure,
  RunInterrupted,
  saysNothing,
  typeOf,
  unpacked,
} from './requests.ts';
import {
  createScope,
  folderOf,
  normalisedUrl,
  parseSitemap,
  readSitemaps,
  securedUrl,
  type SiteScope,
} from './site-rules.ts';

/** How many requests of a run may wait for their responses at the same time. */
const LANES = 4;
/** How often a page is tried at most: if there is no response, and if the site asks to come back later. */
const TRIES_MAX = 2;
const TRIES_LATER_MAX = 4;
/** After this many failures in a row the whole site counts as unreachable. */
const FAILURES_MAX = 10;
/** A start page may lead on by itself so often. What leads on stands at the beginning of a page. */
const LEADS_MAX = 3;
const LEADS_WITHIN = 20_000;
const MAY_LEAD = /http-equiv\s{0,9}=\s{0,9}["']?refresh/i;

const HASHED_AT_ONCE = 1_000_000;
/**
 * The reader's version and a hash of the content, made in steps, because other work should not wait for the hash of a large
 * content.
 */
const contentHash = async (version: string, contentType: string | null, bytes: Buffer): Promise<string> => {
  const slices = createSlices();
  const hash = createHash('sha256').update(`${typeOf(contentType)}\n`);
  for (let from = 0; from < bytes.length; from += HASHED_AT_ONCE) {
    hash.update(bytes.subarray(from, from + HASHED_AT_ONCE));
    if (slices.isOver()) await slices.next();
  }
  return `${version}.${hash.digest('base64url')}`;
};

const nameOf = (url: string): string => {
  const last = basename(new URL(url).pathname);
  try {
    return decodeURIComponent(last) || 'page';
  } catch {
    return last;
  }
};

const NO_INDEX: SourceError = {
  code: 'noindex',
  message: 'The page asks not to be indexed (noindex). Remove that for the user agent ParleyBot',
};
const NOT_INCLUDED: SourceError = { code: 'excluded', message: 'The page is not among those that are included' };
const GIVEN_UP: SourceError = {
  code: 'given_up',
  message: 'The page could not be read. Exclude it, or refresh later',
};
const NOTHING: SourceError = {
  code: 'nothing_read',
  message: 'No page with text was found. Check the address, and what is included and excluded',
};

type OpenPage = Pick<StoredSourcePage, '_id'>;
export type CountPage = (outcome: string) => void;

type Dependencies = {
  runs: SourceRuns;
  fetcher: Fetcher;
  openRoom: OpenRoom;
  /** Reads a document for an assistant. */
  read: (assistantId: string, ...given: Parameters<Reader['read']>) => Promise<ReadPage | ReadFailure>;
  /** Gives entries that follow their page its new answers. */
  follow: (source: { assistantId: string; sourceId: string }) => Promise<void>;
  timing: Timing;
  countPage: CountPage;
  logger: Logger;
};

/** What a run uses while it goes on. `signal` aborts when it must stop. */
type Run = {
  source: StoredSource;
  lease: RunLease;
  signal: AbortSignal;
  shouldYield: () => boolean;
  /** Whether other sources wait for a place. */
  othersWait: () => boolean;
};

const failureOf = ({ failed, message }: ReadFailure): SourceError => ({ code: failed, message });
/** Failures that will not pass. The page loses its passages. After other failures it keeps them. */
const NOT_TEXT = new Set<ReadFailure['failed']>(['unsupported', 'no_text']);

/** Reads a source anew: fetches its pages, and stores what they say. */
export const createReadSource = (dependencies: Dependencies) => {
  const { runs, fetcher, openRoom, read, follow, timing, countPage, logger } = dependencies;
  const version = readerVersion();
  /**
   * Writes of many passages wait for one another, and the next one is of the assistant that wrote for the least time
   * lately. MongoDB keeps in its cache what is not committed yet: eight pages of 10,000 passages at once were repeated for
   * a minute, and most were not stored.
   */
  const storing = createSlots(oneEach(1), LEAST_TIME_FIRST);

  const openRun = ({ source, lease, signal, shouldYield, othersWait }: Run) => {
    const { _id: sourceId, assistantId, kind, run } = source;
    let site = source.site;
    let scope: SiteScope | null = site ? createScope(source, site) : null;
    let held: { url: string; answer: SiteAnswer } | null = null;
    let failures = 0;
    let announcedAt = Number.NEGATIVE_INFINITY;
    let writing: Promise<unknown> = Promise.resolve();
    let reading: Promise<unknown> = Promise.resolve();

    const { robotsOf, fetchPage, fetchText } = createRequests({
      fetcher,
      timing,
      version,
      assistantId,
      othersWait,
      signal,
      isElsewhere: ({ origin }) => kind === 'site' && origin !== site?.origin && origin !== site?.typed?.origin,
    });

    /** The address of a page in the form in which it is stored. */
    const addressOf = (text: string, base?: string): string | null => {
      const url = normalisedUrl(text, base);
      return url !== null && site ? securedUrl(url, site.origin) : url;
    };

    /** Where a page leads by itself, without a click (`<meta http-equiv="refresh">`). */
    const leadsTo = async (answer: SiteAnswer): Promise<string | null> => {
      if (answer.kind !== 'answered' || !isReadable(answer.contentType, answer.url)) return null;
      if (!MAY_LEAD.test(answer.bytes.toString('latin1', 0, LEADS_WITHIN))) return null;
      const { bytes, contentType, url } = answer;
      const result = await read(assistantId, { bytes, contentType, name: nameOf(url), url }, signal);
      return 'failed' in result || result.refresh === null ? null : normalisedUrl(result.refresh);
    };

    const fetchStart = async (
      url: string,
      room: Room,
      leads = 0,
    ): Promise<Extract<SiteAnswer, { kind: 'answered' | 'unchanged' }>> => {
      const known = await runs.findPage(sourceId, url);
      const answer = await fetchPage({ ...known, url }, room, true);
      if (answer.kind !== 'answered' && answer.kind !== 'unchanged') {
        const isLater = answer.kind === 'failed' && answer.later;
        throw new RunFailure(answer.error, isLater ? timing.sourcePostponedMs : undefined);
      }
      const next = leads < LEADS_MAX ? await leadsTo(answer) : null;
      return next === null || next === url ? answer : fetchStart(next, room, leads + 1);
    };

    const seedSite = async (room: Room): Promise<void> => {
      const start = normalisedUrl(source.url ?? '') ?? '';
      const answer = await fetchStart(start, room);
      const end = new URL(answer.url);
      const folder = folderOf(new URL(start).pathname);
      const isSitemap = answer.kind === 'answered' && isXml(answer.contentType, answer.url);
      const isBelow = `${end.pathname}/`.startsWith(folder) || end.pathname.startsWith(folder);
      const path = isSitemap ? '/' : isBelow ? folder : folderOf(end.pathname);
      const { origin } = new URL(start);
      const isSame = origin === end.origin && (isSitemap || isBelow);
      const typed = isSame ? null : { origin, path: folder };
      const found: SiteOfRun = { run, origin: end.origin, path, follow: true, typed };
      site = found;
      scope = createScope(source, found);
      const accept = (url: string, from: string): string | null => {
        const page = addressOf(url, from);
        return page !== null && scope?.includes(page) ? page : null;
      };
      const robots = await robotsOf(end.origin);
      const listed: string[] = [];
      if (isSitemap) listed.push(end.href);
      else listed.push(...robots.sitemaps, `${end.origin}/sitemap.xml`);
      const fetched = new Map<string, string | null>();
      if (isSitemap && answer.kind === 'answered') fetched.set(end.href, await unpacked(answer.bytes));
      const until = performance.now() + timing.sourceSitemapsMs;
      let isCut = false;
      const urls = await readSitemaps(listed, {
        fetchText: async (url) => fetched.get(url) ?? fetchText(url, end.origin, room),
        accept,
        most: PAGES_OF_SITE_MAX + 1,
        isOver: () => {
          isCut ||= shouldYield() || performance.now() > until;
          return isCut;
        },
      });
      if (isSitemap && urls.length === 0) {
        if (shouldYield()) throw new RunInterrupted('others go first');
        const late = { code: 'sitemap', message: 'The sitemaps were not read in time' };
        if (isCut) throw new RunFailure(late, timing.sourcePostponedMs);
        const isOne = fetched.size > 0 && (await parseSitemap([...fetched.values()].join(''), 1)).pages.length > 0;
        const message = isOne ? 'The sitemap lists no page of this site that is included' : 'This is no sitemap';
        throw new RunFailure({ code: 'sitemap', message });
      }
      site = { ...found, follow: !isSitemap && (urls.length === 0 || isCut) };
      // The pages of sitemaps that were not read are not missed. Links may lead to new ones.
      const kept = isCut ? await runs.listKnown({ sourceId, run }, PAGES_OF_SITE_MAX) : [];
      const all = new Set(urls);
      const slices = createSlices();
      for (const url of kept) {
        if (accept(url, end.href) !== null) all.add(url);
        if (slices.isOver()) await slices.next();
      }
      const first = normalisedUrl(answer.url) ?? answer.url;
      const isLarge = answer.kind === 'answered' && answer.bytes.length > LARGE_BYTES;
      if (!isSitemap && !isLarge) held = { url: first, answer };
      const pages: FoundPage[] = [...(isSitemap ? [] : [first]), ...[...all].filter((url) => url !== first)].map(
        (url, nth) => ({ url, depth: nth === 0 ? 0 : 1 }),
      );
      await runs.seed(lease, pages, site, signal);
    };

    const seed = async (): Promise<void> => {
      if (kind === 'site') {
        if (site?.run === run) return;
        const room = openRoom(assistantId, signal);
        await seedSite(room).finally(room.release);
      } else if (source.counts.found === 0) {
        const url = kind === 'file' ? (source.file?.name ?? source.name) : (normalisedUrl(source.url ?? '') ?? '');
        await runs.seed(lease, [{ url, depth: 0 }]);
      }
    };

    const announce = async (): Promise<void> => {
      if (source.live !== 0 && source.live !== run) return;
      if (performance.now() - announcedAt < timing.sourceAnnouncedEveryMs) return;
      announcedAt = performance.now();
      await runs.announce(assistantId);
    };

    const inLine = async <Result>(write: () => Promise<Result>): Promise<Result> => {
      const slot = await storing.acquire(assistantId, { signal });
      return write().finally(() => slot?.release());
    };

    /**
     * Pages of a run are stored one after the other: two transactions at once would conflict, and one would be
     * repeated.
     */
    const end = async ({ _id }: StoredSourcePage, ended: PageEnd): Promise<void> => {
      const written = writing.then(async () => {
        if (signal.aborted) throw new RunInterrupted('the run has stopped');
        const isLarge = await runs.changesMany({ sourceId, pageId: _id, end: ended });
        return runs.endPage(lease, _id, ended, { signal, ...(isLarge && { inLine }) });
      });
      writing = written.catch(() => undefined);
      if (await written) countPage(ended.state);
      if (ended.state === 'read') await announce();
    };

    /** Whether a page that an unchanged one links to is still part of the source. */
    const keeps = (url: string): boolean => site?.follow === true && scope?.includes(url) === true;

    const linksOf = async (page: StoredSourcePage, { links }: ReadPage): Promise<FoundPage[]> => {
      if (kind !== 'site' || !scope || site?.follow !== true) return [];
      const slices = createSlices();
      const depth = page.depth + 1;
      const followed = new Set<string>();
      for (const link of links) {
        if (slices.isOver()) await slices.next();
        const url = addressOf(link);
        if (url !== null && !followed.has(url) && scope.follows(url, depth)) followed.add(url);
      }
      return [...followed].map((url) => ({ url, depth }));
    };

    /**
     * Ends the page as skipped if it names another page as the canonical one. Null if the page itself is to be read.
     */
    const canonicalOf = async (page: StoredSourcePage, { canonical }: ReadPage): Promise<PageEnd | null> => {
      const url = canonical === null || kind !== 'site' ? null : addressOf(canonical);
      if (url === null || url === page.url) return null;
      const words = `The page names another one as the right one: ${url.slice(0, 300)}`;
      if (!scope?.includes(url)) return { state: 'skipped', error: { code: 'canonical', message: words } };
      const target = await runs.findPage(sourceId, url);
      // This page is read if the canonical one is missing, or names this one as the canonical.
      if (target?.run === run && !['found', 'read', 'unchanged'].includes(target.state)) return null;
      return { state: 'skipped', error: { code: 'canonical', message: words }, links: [{ url, depth: page.depth }] };
    };

    /** Says of a start page without pages below it that it links to pages beside it, which are not read. */
    const besideOf = (page: StoredSourcePage, { links }: ReadPage, followed: FoundPage[]): SourceError | null => {
      const isAlone = kind === 'site' && page.depth === 0 && followed.every(({ url }) => url === page.url);
      if (!isAlone || !site?.follow || site.path === '/' || source.include.length > 0) return null;
      const own = site.origin + site.path;
      const folder = own.slice(0, own.lastIndexOf('/', own.length - 2) + 1);
      const isBeside = (link: string): boolean =>
        link.startsWith(folder) && link !== folder && link !== page.url && !link.startsWith(own);
      if (!links.some(isBeside)) return null;
      const message = `No page is below this address, but it links to pages beside it. To read those too, add ${folder}`;
      return { code: 'pages_beside', message };
    };

    const redirected = ({ depth }: StoredSourcePage, target: string): PageEnd => ({
      state: 'skipped',
      error: { code: 'redirected', message: `The page leads to ${target.slice(0, 300)}` },
      links: scope?.includes(target) ? [{ url: target, depth }] : [],
    });

    type Document = {
      bytes: Buffer;
      contentType: string | null;
      etag: string | null;
      lastModified: string | null;
      /** The name of a file. */
      name?: string | null;
    };

    const readPage = async (page: StoredSourcePage, document: Document, mayFollow: boolean): Promise<PageEnd> => {
      const { bytes, contentType, etag, lastModified } = document;
      const hash = await contentHash(version, contentType, bytes);
      if (hash === page.hash) return { state: 'unchanged', etag, lastModified, keeps };
      const url = kind === 'file' ? null : page.url;
      const name = url === null ? (document.name ?? source.name) : nameOf(url);
      const given = saysNothing(contentType) ? null : contentType;
      const result = await read(assistantId, { bytes, contentType: given, name, url }, signal);
      if ('failed' in result)
        return { state: NOT_TEXT.has(result.failed) ? 'skipped' : 'failed', error: failureOf(result) };
      const refresh = kind === 'site' && result.refresh !== null ? addressOf(result.refresh) : null;
      if (refresh !== null && refresh !== page.url) return redirected(page, refresh);
      const isFollowed = mayFollow && result.mayFollow;
      const links = isFollowed ? await linksOf(page, result) : [];
      if (!result.mayIndex && kind !== 'file') return { state: 'skipped', error: NO_INDEX, links };
      const canonical = await canonicalOf(page, result);
      if (canonical) return canonical;
      if (kind === 'site' && scope && !scope.includes(page.url))
        return { state: 'skipped', error: NOT_INCLUDED, links };
      const { title, language, passages, proposals, lacks } = result;
      const beside = isFollowed ? besideOf(page, result, links) : null;
      const note = lacks === null ? beside : { code: 'not_whole', message: lacks };
      return { state: 'read', title, language, note, etag, lastModified, hash, passages, proposals, links };
    };

    const noteFailure = (error: SourceError, isLater: boolean): void => {
      failures += 1;
      if (kind === 'site' && failures >= FAILURES_MAX)
        throw new RunFailure(error, isLater ? timing.sourcePostponedMs : undefined);
    };

    const doPage = async ({ _id }: OpenPage, room: Room): Promise<void> => {
      const page = await runs.beginPage({ pageId: _id, run });
      if (!page) return;
      if (page.tries > TRIES_LATER_MAX) return end(page, { state: 'failed', error: GIVEN_UP });
      if (kind === 'file') {
        await room.wait();
        const document = { ...(await runs.readFile(sourceId)), contentType: null, etag: null, lastModified: null };
        return end(page, await readPage(page, document, false));
      }
      const isHeld = held?.url === page.url;
      const answer = isHeld && held ? held.answer : await fetchPage(page, room);
      if (isHeld) held = null;
      if (answer.kind === 'failed') {
        noteFailure(answer.error, answer.later);
        const isWorth = answer.later || answer.status === null || answer.status >= 500;
        if (isWorth && page.tries < (answer.later ? TRIES_LATER_MAX : TRIES_MAX)) return; // it is still open
        return end(page, { state: 'failed', error: answer.error });
      }
      failures = 0;
      if (answer.kind === 'missing') return end(page, { state: 'missing', error: answer.error });
      if (answer.kind === 'refused') return end(page, { state: 'skipped', error: answer.error });
      const target = normalisedUrl(answer.url) ?? answer.url;
      const isMoved = kind === 'site' && target !== page.url;
      if (isMoved) {
        await end(page, redirected(page, target));
        const moved = await runs.findPage(sourceId, target);
        if (moved?.run !== run || moved.state !== 'found' || answer.kind !== 'answered') return;
        return doAnswer(moved, answer);
      }
      if (answer.kind === 'answered') return doAnswer(page, answer);
      const { etag, lastModified } = answer;
      return end(page, { state: 'unchanged', etag, lastModified, keeps });
    };

    /** A page is read once the one before is stored, because what a small page says can be large. */
    const doAnswer = async (
      page: StoredSourcePage,
      answer: Extract<SiteAnswer, { kind: 'answered' }>,
    ): Promise<void> => {
      if (!answer.mayIndex && !answer.mayFollow) return end(page, { state: 'skipped', error: NO_INDEX });
      const done = reading.then(async () => {
        const ended = await readPage(page, answer, answer.mayFollow);
        const isHidden = !answer.mayIndex && ended.state === 'read';
        return end(page, isHidden ? { state: 'skipped', error: NO_INDEX, links: ended.links } : ended);
      });
      reading = done.catch(() => undefined);
      return done;
    };

    /** Fetches and reads pages until none of the run is open. */
    const doPages = async (): Promise<void> => {
      const inWork = new Set<string>();
      const stopped = new AbortController();
      const pick = async (): Promise<OpenPage | null> => {
        const open = await runs.listOpen({ sourceId, run }, LANES + 1);
        return open.find(({ _id }) => !inWork.has(_id)) ?? null;
      };
      let picking: Promise<unknown> = Promise.resolve();
      const next = (): Promise<OpenPage | null> => {
        const picked = picking.then(async () => {
          const page = await pick();
          if (page) inWork.add(page._id);
          return page;
        });
        picking = picked.catch(() => undefined);
        return picked;
      };
      const waiting = new Set<() => void>();
      const wakeLanes = (): void => {
        for (const wake of waiting) wake();
        waiting.clear();
      };
      const lane = async (): Promise<void> => {
        while (!stopped.signal.aborted) {
          if (signal.aborted || shouldYield()) throw new RunInterrupted('others go first');
          const page = await next();
          if (!page) {
            if (inWork.size === 0) return;
            // Pages that are being read may lead to further pages.
            await new Promise<void>((resolve) => void waiting.add(resolve));
            continue;
          }
          const room = openRoom(assistantId, signal);
          await doPage(page, room)
            .catch(async (cause: unknown) => {
              // Nothing was wrong with the page, so the try does not count.
              if (cause instanceof RunInterrupted || signal.aborted) await runs.forgetTry({ pageId: page._id, run });
              throw cause;
            })
            .finally(() => {
              room.release();
              inWork.delete(page._id);
              wakeLanes();
            });
        }
      };
      const lanes = Array.from({ length: kind === 'site' ? LANES : 1 }, () =>
        lane().catch((cause: unknown) => {
          stopped.abort();
          wakeLanes();
          throw cause;
        }),
      );
      const ended = await Promise.allSettled(lanes);
      const failed = ended.find((one) => one.status === 'rejected');
      if (failed) throw failed.reason;
    };

    return async (): Promise<void> => {
      await seed();
      await doPages();
      const isRead = (await runs.countRead(sourceId)) > 0;
      const problem = isRead ? null : await runs.findProblem({ sourceId, run });
      // A single page that existed and is gone loses its passages. Otherwise, a run that read nothing changes nothing.
      const isGone = kind === 'page' && source.live > 0 && problem !== null && problem.missed > 1;
      if (!isRead && !isGone) throw new RunFailure(problem?.error ?? NOTHING);
      for (;;) {
        const isLarge = source.counts.passages > MANY_PASSAGES;
        await runs.closePages(lease, { signal, ...(isLarge && { inLine }) });
        const lacking = await runs.findLacking({ sourceId, run });
        if (lacking.length === 0 || !(await runs.reopenPages(lease, lacking, signal))) break;
        await doPages();
      }
      await runs.publish(lease, problem?.error ?? null);
    };
  };

  return async (
    { source, lease, isLeft }: { source: StoredSource; lease: RunLease; isLeft: boolean },
    options: Pick<Run, 'signal' | 'shouldYield' | 'othersWait'>,
  ): Promise<void> => {
    const { signal } = options;
    const line = { sourceId: lease.sourceId, assistantId: source.assistantId };
    try {
      // A run that has ended may have left something behind.
      if (isLeft && source.state !== 'running') await runs.settle(lease);
      const begun = await runs.start(lease);
      if (begun) {
        const startedAt = performance.now();
        const { run } = begun;
        try {
          await openRun({ ...options, source: begun, lease })();
          logger.info({ ...line, run, ms: Math.round(performance.now() - startedAt) }, 'a source was read');
        } catch (cause) {
          if (!(cause instanceof RunFailure)) throw cause;
          await runs.fail(lease, cause.error, cause.againAfterMs);
          logger.info({ ...line, run, error: cause.error.code }, 'a source was not read');
        }
        await runs.settle(lease);
      }
      await follow(line);
      await runs.end(lease);
    } catch (cause) {
      // The run continues later where it stopped. If MongoDB is unavailable, the lease expires by itself.
      await runs.release(lease).catch(() => undefined);
      if (cause instanceof RunLost) return logger.debug(line, 'the lease on a source was lost');
      if (!(cause instanceof RunInterrupted) && !signal.aborted) throw cause;
    }
  };
};
