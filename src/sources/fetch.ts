import { createHash } from 'node:crypto';
import { Readable, type Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { setImmediate as tick, setTimeout as sleep } from 'node:timers/promises';
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';
import { type Dispatcher, errors, request } from 'undici';
import { secondsOfRetryAfter } from '../platform/process/clock.ts';
import { VERSION } from '../platform/process/lifecycle.ts';
import { createSlots, oneAtLeast, type Slot, type Slots } from '../platform/process/slots.ts';
import type { Timing } from '../platform/process/time-limits.ts';
import { parseUrl } from '../platform/process/validation.ts';
import type { RedisClient } from '../platform/redis/redis.ts';
import type { SourceError } from './source.ts';
import { checkEndpointUrl, Flood } from '../platform/http/address-guard.ts';
import { createPieces } from '../platform/http/json-body.ts';
import { BOT } from './site-rules.ts';

// KEYS: when the host may be asked next, and until when it must not be asked for this assistant. ARGV: the time between two
// requests, and the longest wait. Returns how long to wait and 1 if the request may then be sent, 0 if the assistant must
// ask again then. A wait that is too long is -1. A pause does not take a place of the host, which others need meanwhile.
const TAKE = `
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local pause = tonumber(redis.call('GET', KEYS[2]) or '0') - now
if pause > tonumber(ARGV[2]) then return {-1, 0} end
if pause > 0 then return {pause, 0} end
local at = math.max(now, tonumber(redis.call('GET', KEYS[1]) or '0'))
if at - now > tonumber(ARGV[2]) then return {-1, 0} end
local next = at + tonumber(ARGV[1])
redis.call('SET', KEYS[1], string.format('%d', next), 'PX', string.format('%d', next - now))
return {at - now, 1}`;

const LEAVE_ALONE = `
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local next = math.max(now + tonumber(ARGV[1]), tonumber(redis.call('GET', KEYS[1]) or '0'))
redis.call('SET', KEYS[1], string.format('%d', next), 'PX', string.format('%d', next - now))
return 1`;

type Scripts = {
  parleyTakeHost: (
    hostKey: string,
    pauseKey: string,
    everyMs: number,
    mostMs: number,
  ) => Promise<[ms: number, isTaken: 0 | 1]>;
  parleyLeaveHost: (pauseKey: string, forMs: number) => Promise<number>;
};

/**
 * Spaces the requests of all sources and processes to one host. A pause that the host asks for holds for the assistant
 * whose page it was asked for: a site may have one page that is always busy, and others need not wait for it. The times
 * are in Redis. If Redis loses them, one request comes too early.
 */
type Hosts = {
  /**
   * Waits until a request may be sent. False if the wait is so long that other sources should go first: a shorter one, if
   * some wait.
   */
  waitFor: (
    host: string,
    options: Pick<FetchOptions, 'assistantId' | 'othersWait' | 'signal'> & { everyMs: number },
  ) => Promise<boolean>;

  /** Lets no request for an assistant go to a host for a while. */
  leaveAlone: (host: string, options: { assistantId: string; forMs: number }) => Promise<void>;
};

export const createHosts = (redis: RedisClient, prefix: string, timing: Timing): Hosts => {
  redis.defineCommand('parleyTakeHost', { numberOfKeys: 2, lua: TAKE });
  redis.defineCommand('parleyLeaveHost', { numberOfKeys: 1, lua: LEAVE_ALONE });
  const scripts = redis as unknown as Scripts; // commands defined just above
  /** Both keys of a host are in one slot of a Redis Cluster. */
  const keyOf = (host: string): string =>
    `${prefix}:host:{${createHash('sha256').update(host).digest('base64url').slice(0, 22)}}`;
  const pauseKeyOf = (host: string, assistantId: string): string => `${keyOf(host)}:${assistantId}`;
  const most = timing.sourceBackoffMaxMs + timing.sourceRequestEveryMaxMs;
  /** One request of an assistant at a time has a place at a host, however many of them wait. */
  const turns = createSlots(({ own }) => own === 0);

  /** Waits for the end of a pause. False if it ended early, because other sources wait. */
  const rest = async (ms: number, { signal, othersWait }: Pick<FetchOptions, 'signal' | 'othersWait'>) => {
    const until = performance.now() + ms;
    for (let left = ms; left > 0; left = until - performance.now()) {
      if (left > timing.sourceRestMs && othersWait?.()) return false;
      await sleep(Math.min(left, timing.sourceRestMs), undefined, { signal });
    }
    return true;
  };

  return {
    waitFor: async (host, { assistantId, everyMs, ...waiting }) => {
      const keys = [keyOf(host), pauseKeyOf(host, assistantId)] as const;
      const turn = await turns.acquire(keys[1], waiting);
      if (!turn) return false;
      try {
        for (;;) {
          // A place that would be given up is not taken, and one that was taken is used: else it is lost for everybody.
          const mostMs = waiting.othersWait?.() ? Math.max(timing.sourceRestMs, everyMs) : most;
          const [ms, isTaken] = await scripts.parleyTakeHost(...keys, Math.ceil(everyMs), Math.ceil(mostMs));
          if (ms < 0) return false;
          if (isTaken === 1) return await sleep(ms, true, { signal: waiting.signal });
          if (!(await rest(ms, waiting))) return false;
        }
      } finally {
        turn.release();
      }
    },

    leaveAlone: async (host, { assistantId, forMs }) => {
      await scripts.parleyLeaveHost(pauseKeyOf(host, assistantId), Math.ceil(forMs));
    },
  };
};

/** A body above this size is kept only in a room. */
export const LARGE_BYTES = 1_000_000;
/** An assistant has as many rooms as stay free, but always one. So each waits only for itself, however slow others are. */
const ROOMS = 6;

/** Memory for a large body, until it has been read and what it says is stored. */
export type Room = {
  /** False if none is free. Then `wait` says when there is one. */
  take: () => Promise<boolean>;
  wait: () => Promise<unknown>;
  release: () => void;
};

export type OpenRoom = (assistantId: string, signal: AbortSignal) => Room;

/** The rooms of a process. */
export const createRooms = (): OpenRoom => {
  const slots = createSlots(oneAtLeast(ROOMS));
  return (assistantId, signal) => {
    let slot: Promise<Slot | null> | undefined;
    const wait = () => (slot ??= slots.acquire(assistantId, { signal }));
    return {
      take: () => Promise.race([wait().then(() => true), tick(false)]),
      wait,
      release: () => void slot?.then((one) => one?.release()).catch(() => undefined),
    };
  };
};

const REDIRECTS_MAX = 5;
const REDIRECTS = new Set([301, 302, 303, 307, 308]);
const USER_AGENT = `ParleyBot/${VERSION} (reads pages for the knowledge of their owner’s assistant)`.replace('’', "'");
const CODINGS_MAX = 2;
const ETAG_MAX = 500;

/** How a request for an address ended. */
export type Fetched =
  | {
      kind: 'answered';
      /** After redirects. */
      url: string;
      contentType: string | null;
      bytes: Buffer;
      etag: string | null;
      lastModified: string | null;
      mayIndex: boolean;
      mayFollow: boolean;
    }
  | { kind: 'unchanged'; url: string; etag: string | null; lastModified: string | null }
  /** 404 or 410. */
  | { kind: 'missing'; error: SourceError }
  /** The address must not be fetched, or has nothing that can be read. */
  | { kind: 'refused'; error: SourceError }
  /** `status` is null without a response. `later`: the host asked for a pause. */
  | { kind: 'failed'; error: SourceError; status: number | null; later: boolean }
  /** Too many requests wait for this host. */
  | { kind: 'crowded' };

export type FetchOptions = {
  /** For whom the address is fetched. */
  assistantId: string;
  /** Whether other sources wait for the place that this one reads at. */
  othersWait?: () => boolean;
  maxBytes: number;
  /** Keeps the beginning of a longer body, instead of failing. */
  truncates?: boolean;
  /** For a large body. If it must wait for it, the address is asked again then, so that nothing is held meanwhile. */
  room?: Room;
  accept: string;
  /** Whether a response of this type is read. */
  isWanted?: (contentType: string | null, url: string) => boolean;
  etag?: string | null;
  lastModified?: string | null;
  /** Pause between requests to the host. */
  everyMs: (url: URL) => number;
  /** Tells why an address must not be fetched. Called for the first address and for each redirect. */
  refuse?: (url: URL) => Promise<SourceError | null> | SourceError | null;
  signal: AbortSignal;
};

const problem = (code: string, message: string): SourceError => ({ code, message });

const ADDRESS_PROBLEMS: Record<string, string> = {
  not_https: 'The address does not begin with https://. Check it',
  private_address: 'The address leads into a private network, where Parley asks for nothing',
  port: 'The address has a port that Parley does not ask',
};

const UNREACHABLE = 'Parley could not reach the site. Check the address in a browser, and refresh later';

const CAUSES: Record<string, SourceError> = {
  ECONNREFUSED: problem('unreachable', `${UNREACHABLE} (the connection was refused)`),
  ECONNRESET: problem('unreachable', `${UNREACHABLE} (the connection was cut)`),
  EPIPE: problem('unreachable', `${UNREACHABLE} (the connection was cut)`),
  UND_ERR_SOCKET: problem('unreachable', `${UNREACHABLE} (the connection was cut)`),
  UND_ERR_CONNECT_TIMEOUT: problem('too_slow', `${UNREACHABLE} (no connection in time)`),
  UND_ERR_HEADERS_TIMEOUT: problem('too_slow', 'The site did not answer in time. Refresh later'),
  UND_ERR_BODY_TIMEOUT: problem('too_slow', 'The page did not arrive in time. Refresh later'),
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: problem(
    'broken',
    'The page was cut off: its length is not what its server says',
  ),
  UND_ERR_HEADERS_OVERFLOW: problem('broken', 'The response has too many headers'),
};

/** Error codes of invalid certificates and of failed TLS handshakes. */
const TLS = /CERT|^ERR_TLS|^ERR_SSL|SELF_SIGNED|UNABLE_TO|HOSTNAME|^EPROTO/;

class TooLarge extends Error {
  override name = 'TooLarge';
}

const problemOf = (cause: unknown): SourceError => {
  const { name, code = '' } = cause as Error & { code?: string };
  if (cause instanceof TooLarge)
    return problem('too_large', 'The page is too large. Exclude it, or add a part as a file');
  if (cause instanceof Flood)
    return problem('too_large', 'The page comes in too many small pieces. Its server must mend it');
  if (name === 'AddressRefused') return problem('private_address', ADDRESS_PROBLEMS.private_address as string);
  if (name === 'NameUnresolved')
    return problem('not_resolved', 'The name of the site was not found. Check the address');
  if (name === 'TimeoutError') return problem('too_slow', 'The page did not arrive in time. Refresh later');
  if (CAUSES[code]) return CAUSES[code];
  if (TLS.test(code)) {
    return problem('tls', `The site has no valid certificate (${code.toLowerCase()}). Its owner must mend it`);
  }
  if (/^Z_|^ERR__?BROTLI|^BROTLI/.test(code)) return problem('broken', 'The page is not compressed as its server says');
  if (cause instanceof errors.HTTPParserError) return problem('broken', 'The site does not answer with HTTP');
  if (cause instanceof errors.UndiciError) return problem('broken', 'The site gave a response that is not valid');
  return problem('unreachable', UNREACHABLE);
};

const headerOf = (value: string | string[] | undefined): string | null =>
  value === undefined ? null : Array.isArray(value) ? value.join(', ') : value;

/** What `X-Robots-Tag` says to us. A part for another crawler begins with its name. */
const robotsTag = (value: string | null): { mayIndex: boolean; mayFollow: boolean } => {
  const rules = new Set<string>();
  let isForUs = true;
  for (const part of (value ?? '').toLowerCase().slice(0, 1_000).split(',')) {
    const [, name] = /^\s{0,9}([a-z0-9_-]{1,99})\s{0,9}:/.exec(part) ?? [];
    const isDate = name === 'unavailable_after' || name?.startsWith('max-') === true;
    if (name !== undefined && !isDate) isForUs = name === BOT;
    if (isForUs) rules.add(part.slice(part.indexOf(':') + 1).trim());
  }
  return {
    mayIndex: !rules.has('noindex') && !rules.has('none'),
    mayFollow: !rules.has('nofollow') && !rules.has('none'),
  };
};

/** Requests ask for `gzip` and `br`. Servers send the others unasked. */
const DECODERS = new Map<string, () => Transform>([
  ['gzip', createGunzip],
  ['x-gzip', createGunzip],
  ['deflate', createInflate],
  ['br', createBrotliDecompress],
]);
/** A decoder needs up to 16 MiB before its first byte comes out. */
const DECODERS_AT_ONCE = 2;

type Bounds = Pick<FetchOptions, 'maxBytes' | 'truncates' | 'room' | 'signal'>;

class NoRoom extends Error {}

/** The error of a decoder whose input ends too early. */
const CUT = 'Z_BUF_ERROR';

/** Reads at most `maxBytes`, and decodes them if there is a decoder. */
const readWithin = async (
  from: Readable,
  decoder: Transform | null,
  { maxBytes, truncates, room, signal }: Bounds,
): Promise<Buffer> => {
  const pieces = createPieces();
  const keep = async (parts: AsyncIterable<Buffer>): Promise<void> => {
    let [size, needsRoom] = [0, room !== undefined];
    for await (const part of parts) {
      size += part.length;
      if (size > maxBytes) throw new TooLarge('too large');
      if (needsRoom && size > LARGE_BYTES) {
        if (!(await room?.take())) throw new NoRoom('no room');
        needsRoom = false;
      }
      pieces.push(part);
    }
  };
  try {
    if (decoder) await pipeline(from, decoder, keep, { signal });
    else await pipeline(from, keep, { signal });
  } catch (cause) {
    const isLonger = cause instanceof TooLarge || (cause as { code?: string }).code === CUT;
    if (!truncates || !isLonger) throw cause;
  }
  return pieces.take();
};

/**
 * Reads a body, with its size bounded as sent and after each decoder. It is decoded when it has arrived, so that a slow
 * server holds no decoder.
 */
const readBody = async (
  body: Readable,
  { coding, host, decoders, ...bounds }: Bounds & { coding: string | null; host: string; decoders: Slots },
): Promise<Buffer> => {
  const codings = (coding ?? '')
    .toLowerCase()
    .split(',')
    .map((one) => one.trim())
    .filter((one) => one !== '' && one !== 'identity');
  if (codings.length > CODINGS_MAX || codings.some((name) => !DECODERS.has(name)))
    throw new errors.InvalidArgumentError('unknown coding');
  let bytes = await readWithin(body, null, bounds);
  for (const name of codings.toReversed()) {
    const slot = await decoders.acquire(host, { signal: bounds.signal });
    if (!slot) throw new errors.InvalidArgumentError('too many bodies wait for a decoder');
    try {
      bytes = await readWithin(Readable.from([bytes]), DECODERS.get(name)?.() ?? null, bounds);
    } finally {
      slot.release();
    }
  }
  return bytes;
};

const discard = (body: Dispatcher.ResponseData['body']): void => {
  body.on('error', () => undefined).destroy();
};

export type Fetcher = (url: string, options: FetchOptions) => Promise<Fetched>;

type Dependencies = { dispatcher: Dispatcher; hosts: Hosts; allowPrivate: boolean; timing: Timing };

/** Asks a website for pages. Requests to one host are spaced, and each redirect is checked like the first address. */
export const createFetcher = ({ dispatcher, hosts, allowPrivate, timing }: Dependencies): Fetcher => {
  const backoff = new Map<string, number>();
  /** Hosts take turns. */
  const decoders = createSlots(({ inUse }) => inUse < DECODERS_AT_ONCE);

  const leaveAlone = async (host: string, assistantId: string, after: string | null): Promise<void> => {
    const seconds = secondsOfRetryAfter(after);
    const asked = seconds === null ? null : seconds * 1_000;
    const key = `${assistantId} ${host}`;
    const ms = Math.min(asked ?? backoff.get(key) ?? timing.sourceBackoffMs, timing.sourceBackoffMaxMs);
    backoff.delete(key);
    backoff.set(key, Math.min(2 * ms, timing.sourceBackoffMaxMs));
    for (const [first] of backoff) if (backoff.size > 1_000) backoff.delete(first);
    await hosts.leaveAlone(host, { assistantId, forMs: Math.max(ms, timing.sourceRequestEveryMs) });
  };

  type Hop = Fetched | { kind: 'redirect'; to: string };

  const ask = async (url: URL, options: FetchOptions, signal: AbortSignal): Promise<Hop> => {
    const { accept, etag, lastModified, maxBytes, truncates = false, room, isWanted = () => true } = options;
    const answer = await request(url, {
      dispatcher,
      method: 'GET',
      headers: {
        'User-Agent': USER_AGENT,
        Accept: accept,
        'Accept-Encoding': 'gzip, br',
        ...(etag && { 'If-None-Match': etag }),
        ...(lastModified && { 'If-Modified-Since': lastModified }),
      },
      headersTimeout: timing.sourceSilentMs,
      bodyTimeout: timing.sourceSilentMs,
      signal,
    });
    const { statusCode: status, headers, body } = answer;
    const get = (name: string): string | null => headerOf(headers[name]);
    const kept = {
      etag: (get('etag') ?? '').slice(0, ETAG_MAX) || null,
      lastModified: (get('last-modified') ?? '').slice(0, 100) || null,
    };
    try {
      const location = get('location');
      if (REDIRECTS.has(status) && location !== null) {
        discard(body);
        const to = parseUrl(location, url.href)?.href;
        return to
          ? { kind: 'redirect', to }
          : { kind: 'refused', error: problem('redirect', 'The page leads to an address that is not valid') };
      }
      if (status === 304) {
        discard(body);
        return { kind: 'unchanged', url: url.href, ...kept };
      }
      if (status === 200) {
        const contentType = get('content-type');
        if (!isWanted(contentType, url.href)) {
          discard(body);
          const type = contentType === null ? 'no type' : contentType.slice(0, 100);
          return { kind: 'refused', error: problem('unsupported', `This is no page of text (${type})`) };
        }
        if (!truncates && Number(get('content-length') ?? 0) > maxBytes) throw new TooLarge('too large');
        const coding = get('content-encoding');
        const bounds = { maxBytes, truncates, signal, ...(room && { room }) };
        const bytes = await readBody(body, { coding, host: url.host, decoders, ...bounds });
        backoff.delete(`${options.assistantId} ${url.host}`);
        return {
          kind: 'answered',
          url: url.href,
          contentType,
          bytes,
          ...kept,
          ...robotsTag(get('x-robots-tag')),
        };
      }
      discard(body);
      if (status === 404 || status === 410)
        return { kind: 'missing', error: problem('not_found', `The page is not there (${status})`) };
      const later = status === 429 || status === 503;
      if (later) await leaveAlone(url.host, options.assistantId, get('retry-after'));
      const error =
        status === 401 || status === 403
          ? problem(
              'forbidden',
              `The site does not let Parley read this page (${status}). Allow the user agent ParleyBot`,
            )
          : later
            ? problem('busy', `The site asks to come back later (${status}). Refresh later`)
            : problem(
                'status',
                `The site answered with status ${status}. Check the page in a browser, and refresh later`,
              );
      return { kind: 'failed', error, status, later };
    } catch (cause) {
      discard(body);
      throw cause;
    }
  };

  return async (first, options) => {
    const { signal, everyMs, refuse = () => null } = options;
    let address = first;
    let leftMs = timing.sourceFetchMs;
    const seen = new Set<string>();
    for (let hops = 0; hops <= REDIRECTS_MAX; hops += 1) {
      const checked = checkEndpointUrl(address, { allowPrivate, allowHttp: true });
      if (!checked.ok) {
        const message = ADDRESS_PROBLEMS[checked.reason] ?? 'The page leads to an address that is not valid';
        return { kind: 'refused', error: problem(checked.reason, message) };
      }
      const { url } = checked;
      if (seen.has(url.href)) {
        const message = 'The page leads to itself. It may want cookies, which Parley does not keep';
        return { kind: 'refused', error: problem('redirect_loop', message) };
      }
      seen.add(url.href);
      const refusal = await refuse(url);
      if (refusal) return { kind: 'refused', error: refusal };
      const mayAsk = await hosts.waitFor(url.host, { ...options, everyMs: everyMs(url) });
      if (!mayAsk) return { kind: 'crowded' };
      let askedAt = performance.now();
      const limit = AbortSignal.any([signal, AbortSignal.timeout(leftMs)]);
      const answer = await ask(url, options, limit).catch(async (cause: unknown): Promise<Hop> => {
        if (signal.aborted) throw cause;
        if (cause instanceof NoRoom) {
          await options.room?.wait();
          askedAt = performance.now();
          seen.delete(url.href);
          hops -= 1;
          return { kind: 'redirect', to: address };
        }
        const error = problemOf(limit.aborted ? limit.reason : cause);
        const isOurs = error.code === 'private_address' || error.code === 'too_large';
        return isOurs ? { kind: 'refused', error } : { kind: 'failed', error, status: null, later: false };
      });
      if (answer.kind !== 'redirect') return answer;
      address = answer.to;
      leftMs = Math.max(1, Math.ceil(leftMs - (performance.now() - askedAt)));
    }
    const message = `The page leads to more than ${REDIRECTS_MAX} others, one after the other`;
    return { kind: 'refused', error: problem('too_many_redirects', message) };
  };
};
