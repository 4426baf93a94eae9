import { lookup as osLookup, Resolver } from 'node:dns/promises';
import { BlockList, isIP, type LookupFunction, type Socket } from 'node:net';
import type { SecureContext } from 'node:tls';
import { Agent, buildConnector, type Dispatcher, errors } from 'undici';
import { invalid } from '../process/errors.ts';
import { createLru } from '../process/lru.ts';
import { MAX_URL_LENGTH, parseUrl } from '../process/validation.ts';
import { createGuardedContext, secure } from './guarded-tls.ts';
import { limitHeaderLines } from './undici.ts';

/**
 * Why the URL of an endpoint is refused. The same checks run when an endpoint is saved, when it is tested and at each
 * delivery (docs/contract.md, Public addresses only).
 */
export const URL_REFUSALS = ['not_a_url', 'too_long', 'not_https', 'userinfo', 'port', 'private_address'] as const;
type UrlRefusal = (typeof URL_REFUSALS)[number];
type UrlCheck = { ok: true; url: URL } | { ok: false; reason: UrlRefusal };
type EndpointCheck = { ok: true; url: URL; addresses: string[] } | { ok: false; reason: UrlRefusal | 'unresolved' };

/** Resolves a name to all its addresses, in any order. The guard checks each address. */
export type Resolve = (hostname: string) => Promise<string[]>;
export interface GuardOptions {
  allowPrivate: boolean;
  /** True for fetching pages. Events carry visitors' texts, so they need TLS wherever private addresses are refused. */
  allowHttp?: boolean;
  resolver?: Resolve | undefined;
}

export class AddressRefused extends Error {
  override name = 'AddressRefused';
}
class TooManyAddresses extends AddressRefused {}
export class NameUnresolved extends Error {
  override name = 'NameUnresolved';
}

const LOCAL_NAME = /(^|\.)localhost\.*$/i;

const blocked = new BlockList();
// In BlockList, an IPv4 rule also matches the IPv4-mapped IPv6 form, so ::ffff:a.b.c.d is checked as a.b.c.d.
for (const range of [
  '0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24',
  '192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4',
  '168.63.129.16/32', // Azure's host service: a public address, but served by the machine's own host
  '::/96 64:ff9b::/96 64:ff9b:1::/48 100::/64 2001::/23 2001:db8::/32 2002::/16 3fff::/20 5f00::/16',
  'fc00::/7 fe80::/10 fec0::/10 ff00::/8',
].flatMap((line) => line.split(' '))) {
  const [network = '', prefix] = range.split('/');
  blocked.addSubnet(network, Number(prefix), network.includes(':') ? 'ipv6' : 'ipv4');
}
// Only global unicast IPv6 addresses can be public, so all other IPv6 addresses are refused too.
const reachable = new BlockList();
reachable.addSubnet('2000::', 3, 'ipv6');
reachable.addSubnet('::ffff:0:0', 96, 'ipv6');

export const isPublicAddress = (ip: string): boolean => {
  const family = isIP(ip);
  if (family === 4) return !blocked.check(ip, 'ipv4');
  // An address with a zone (fe80::1%eth0) is valid only on a local link.
  if (family === 6) return !ip.includes('%') && reachable.check(ip, 'ipv6') && !blocked.check(ip, 'ipv6');
  return false;
};

/** The host in the form that a socket needs: IPv6 addresses without brackets. */
export const socketHost = (url: URL): string =>
  url.hostname.startsWith('[') ? url.hostname.slice(1, -1) : url.hostname;

const portAllowed = (port: string): boolean => port === '' || port === '80' || Number(port) >= 1024;

/**
 * Runs the checks that need no DNS query. The URL parser has already turned 0x7f.1, 2130706433 and similar forms into
 * 127.0.0.1.
 */
export const checkEndpointUrl = (
  text: string,
  { allowPrivate, allowHttp = allowPrivate }: Pick<GuardOptions, 'allowPrivate' | 'allowHttp'>,
): UrlCheck => {
  if (text.length > MAX_URL_LENGTH) return { ok: false, reason: 'too_long' };
  const url = parseUrl(text);
  if (!url || url.hostname === '' || /[\s\p{Cc}]/u.test(text)) return { ok: false, reason: 'not_a_url' };
  if (url.href.length > MAX_URL_LENGTH) return { ok: false, reason: 'too_long' };
  const plain = allowHttp && url.protocol === 'http:';
  if (url.protocol !== 'https:' && !plain) return { ok: false, reason: 'not_https' };
  if (url.username !== '' || url.password !== '') return { ok: false, reason: 'userinfo' };
  if (allowPrivate) return { ok: true, url };
  if (!portAllowed(url.port)) return { ok: false, reason: 'port' };
  const host = socketHost(url);
  const refused = isIP(host) === 0 ? LOCAL_NAME.test(host) : !isPublicAddress(host);
  return refused ? { ok: false, reason: 'private_address' } : { ok: true, url };
};

// getaddrinfo runs in four threads, so one name server that never answers would block the lookups of all endpoints.
// Public names are therefore resolved by DNS queries, and only development reads the hosts file.
const resolvePublic: Resolve = async (hostname) => {
  const wire = new Resolver({ timeout: 1000, tries: 2 });
  const [four, six] = await Promise.allSettled([wire.resolve4(hostname), wire.resolve6(hostname)]);
  if (four.status === 'rejected' && six.status === 'rejected') throw four.reason;
  return [four, six].flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []));
};
const resolveAny: Resolve = async (hostname) => (await osLookup(hostname, { all: true })).map(({ address }) => address);

/** A name with more addresses is refused, because to read and compare thousands takes a tenth of a second. */
const ADDRESSES_MAX = 64;
/** How many addresses of a name are looked at and used, of each family. */
const ADDRESSES_USED = 8;
/** For so long, the addresses of a name are used again, and a name with too many is not asked for. */
const RESOLVED_FOR_MS = 2_000;
const TOO_MANY_FOR_MS = 30_000;
const NAMES_MAX = 10_000;

/**
 * Resolves a name, and refuses the name if any of the addresses that may be used is private. If one public address were
 * enough, an attacker could add a private address, and the socket might connect to it.
 */
const resolveGuarded = async (hostname: string, { allowPrivate, resolver }: GuardOptions): Promise<string[]> => {
  const resolve = resolver ?? (allowPrivate ? resolveAny : resolvePublic);
  const found = await resolve(hostname).catch((cause: unknown) => {
    throw new NameUnresolved(`${hostname} was not found`, { cause });
  });
  if (found.length > ADDRESSES_MAX) throw new TooManyAddresses(`${hostname} has too many addresses`);
  const [neither = [], four = [], six = []] = [0, 4, 6].map((family) => found.filter((ip) => isIP(ip) === family));
  if (neither.length > 0) throw new NameUnresolved(`${hostname} has an answer that is no address`);
  const addresses = [...four.slice(0, ADDRESSES_USED), ...six.slice(0, ADDRESSES_USED)];
  if (addresses.length === 0) throw new NameUnresolved(`${hostname} has no address`);
  if (!allowPrivate && !addresses.every(isPublicAddress)) {
    // The message does not contain the address, because the address could reveal what our name server knows.
    throw new AddressRefused(`${hostname} leads to an address that is not public`);
  }
  return addresses;
};

/**
 * A lookup function for `net.connect`. The socket connects to the addresses that were checked, so the name cannot
 * change after the check.
 */
export const guardedLookup = (options: GuardOptions): LookupFunction => {
  const known = createLru<Promise<string[]>>({ most: NAMES_MAX, ttl: RESOLVED_FOR_MS });
  const resolve = (hostname: string): Promise<string[]> => {
    const before = known.get(hostname);
    if (before) return before;
    const found = resolveGuarded(hostname, options);
    known.set(hostname, found);
    found.catch((cause: unknown) => {
      if (known.peek(hostname) !== found) return;
      if (cause instanceof TooManyAddresses) known.set(hostname, found, { ttl: TOO_MANY_FOR_MS });
      // A lost packet must not fail the next look-up too.
      else if (!(cause instanceof AddressRefused)) known.delete(hostname);
    });
    return found;
  };
  const answer = async (...[hostname, { all, family }, callback]: Parameters<LookupFunction>): Promise<void> => {
    try {
      const found = await resolve(hostname);
      const wanted = family === 4 || family === 6 ? found.filter((ip) => isIP(ip) === family) : found;
      const [first] = wanted;
      if (first === undefined) throw new NameUnresolved(`${hostname} has no IPv${String(family)} address`);
      const answers = wanted.map((address) => ({ address, family: isIP(address) }));
      // The callback runs outside the promise, so that an error thrown by the socket does not count as a failed lookup.
      process.nextTick(() => (all ? callback(null, answers) : callback(null, first, isIP(first))));
    } catch (error) {
      process.nextTick(callback, error, []);
    }
  };
  return (hostname, lookupOptions, callback) => void answer(hostname, lookupOptions, callback);
};

/** Checks the address of a connected socket. Needed because a URL with an IP address causes no lookup. */
export const isAllowedPeer = (ip: string | undefined, { allowPrivate }: { allowPrivate: boolean }): boolean =>
  ip !== undefined && (allowPrivate || isPublicAddress(ip));

/** Runs all checks, including the lookup, when an endpoint is saved or tested. */
export const checkEndpoint = async (text: string, options: GuardOptions): Promise<EndpointCheck> => {
  const checked = checkEndpointUrl(text, options);
  if (!checked.ok) return checked;
  const host = socketHost(checked.url);
  if (isIP(host) !== 0) return { ok: true, url: checked.url, addresses: [host] };
  try {
    return { ok: true, url: checked.url, addresses: await resolveGuarded(host, options) };
  } catch (error) {
    if (error instanceof AddressRefused) return { ok: false, reason: 'private_address' };
    if (error instanceof NameUnresolved) return { ok: false, reason: 'unresolved' };
    throw error;
  }
};

/** Messages for refused URLs, by reason. */
const MESSAGES: Record<string, string> = {
  not_a_url: 'must be an absolute URL',
  too_long: 'must be at most 2,048 characters',
  not_https: 'must begin with https://',
  userinfo: 'must not carry a user name or password',
  port: 'must use port 443, 80, or one of 1024 and above',
  private_address: 'must not lead to a private or reserved address',
};

/**
 * Checks a URL before it is saved, and throws 422 for `field` if the address guard refuses the URL. A name that does
 * not resolve now is accepted, because it may resolve later and each request checks the address again.
 */
export const requirePublicUrl = async (url: string, guard: GuardOptions, field: string): Promise<void> => {
  const checked = await checkEndpoint(url, guard);
  if (!checked.ok && checked.reason !== 'unresolved') {
    if (checked.reason === 'not_https' && guard.allowHttp)
      throw invalid(field, 'not_http', 'must be an http or https address');
    throw invalid(field, checked.reason, MESSAGES[checked.reason] ?? 'is refused');
  }
};

const CONNECT_MS = 3_000;
/** More interim (1xx) responses than real servers send. */
const INTERIM_MAX = 16;
/**
 * An answer may come in this many pieces (chunks) of any size. Further pieces must have `ANSWER_PIECE_BYTES` on
 * average.
 */
const ANSWER_PIECES_FREE = 2_000;
const ANSWER_PIECE_BYTES = 32;

export class Flood extends Error {
  override name = 'Flood';
}

/**
 * Breaks off an answer that sends interim responses without end, or comes in pieces of a few bytes. Each of them costs
 * as much as a small answer, so one server could keep the process busy.
 */
const refuseFloods: Dispatcher.DispatcherComposeInterceptor = (dispatch) => (options, handler) => {
  let [interim, room] = [0, ANSWER_PIECES_FREE];
  return dispatch(options, {
    onRequestStart: (...given) => handler.onRequestStart?.(...given),
    onRequestUpgrade: (...given) => handler.onRequestUpgrade?.(...given),
    onResponseStart: (controller, status, ...rest) => {
      if (status < 200) interim += 1;
      if (interim > INTERIM_MAX) controller.abort(new Flood('too many interim responses'));
      else handler.onResponseStart?.(controller, status, ...rest);
    },
    onResponseData: (controller, piece) => {
      room += Math.min(piece.length / ANSWER_PIECE_BYTES, 1) - 1;
      if (room < 0) controller.abort(new Flood('an answer in too many pieces'));
      // A copy: a few bytes would keep all that came with them, such as a long extension of a chunk, which counts nowhere.
      else handler.onResponseData?.(controller, Buffer.from(piece));
    },
    onResponseEnd: (...given) => handler.onResponseEnd?.(...given),
    onResponseError: (...given) => handler.onResponseError?.(...given),
  });
};

/**
 * How long a connection without a request stays open. A server may ask for more, and one with many ports could have any
 * number of them.
 */
const IDLE_MS = 4_000;

/** Secures a connected socket within `CONNECT_MS`. Calls back once. */
const secureInTime = (
  raw: Socket,
  { host, secureContext }: { host: string; secureContext: SecureContext },
  callback: buildConnector.Callback,
): void => {
  const socket = secure(raw, host, secureContext);
  const late = new errors.ConnectTimeoutError('the handshake took too long');
  const timer = setTimeout(() => socket.destroy(late), CONNECT_MS);
  let isOver = false;
  const end = (...ended: Parameters<typeof callback>): void => {
    clearTimeout(timer);
    if (!isOver) callback(...ended);
    isOver = true;
  };
  socket.once('secureConnect', () => end(null, limitHeaderLines(socket)));
  socket.once('close', () => end(late, null));
  // Stays, because undici adds its own later.
  socket.on('error', (cause) => end(cause, null));
};

/** `connections` is the maximum per host. `ca`: certificate authorities that replace the public ones. */
type Options = { allowPrivate: boolean; connections: number; resolver?: Resolve; ca?: string; maxHeaderBytes?: number };

/** Connections to hosts that owners choose, such as providers and websites. The address guard of webhooks applies. */
export const openGuardedAgent = ({ allowPrivate, connections, resolver, ca, maxHeaderBytes }: Options): Dispatcher => {
  // HTTP/1.1 only: over HTTP/2, undici would repeat a refused request by itself.
  const lookup = guardedLookup({ allowPrivate, resolver });
  const connect = buildConnector({ timeout: CONNECT_MS, allowH2: false, lookup });
  const secureContext = createGuardedContext(ca ? { ca } : {});
  const agent = new Agent({
    allowH2: false,
    pipelining: 1,
    connections,
    keepAliveTimeout: IDLE_MS,
    keepAliveMaxTimeout: IDLE_MS,
    ...(maxHeaderBytes && { maxHeaderSize: maxHeaderBytes }),
    connect: (options, callback) => {
      const defaultPort = options.protocol === 'https:' ? '443' : '80';
      // `lookup` is not called for an IP address in the URL, so the address is checked here.
      const host = options.hostname.replace(/^\[|\]$/g, '');
      if (isIP(host) !== 0 && !isAllowedPeer(host, { allowPrivate })) {
        callback(new AddressRefused('the URL has an address that is not public'), null);
        return;
      }
      connect({ ...options, protocol: 'http:', port: options.port || defaultPort }, (error, socket) => {
        if (error) callback(error, null);
        else if (!isAllowedPeer(socket.remoteAddress, { allowPrivate })) {
          socket.destroy();
          callback(new AddressRefused('the name resolves to an address that is not public'), null);
        } else if (options.protocol !== 'https:') callback(null, limitHeaderLines(socket));
        else secureInTime(socket, { host, secureContext }, callback);
      });
    },
  });
  return agent.compose(refuseFloods);
};
