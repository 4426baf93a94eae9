import { AssertionError } from 'node:assert';
import { performance } from 'node:perf_hooks';
import { errors } from 'undici';
import { AddressRefused, NameUnresolved } from '../../../src/events/address-guard.ts';
import type { Connection } from './connection.ts';
import type { Exchange } from './exchange.ts';
import type { Phase, Trace } from './open.ts';

/** Why a request has no status. `too_late` and `shutdown` leave the event as it was: it may be sent afresh. */
export const ERROR_KINDS = [
  'address_refused', // the URL or an address of its name is not a public one
  'dns', // the name has no address
  'connect', // no TCP connection, refused or unanswered
  'tls', // no TLS 1.3, a certificate that does not hold, or an unanswered handshake
  'too_late', // past `notAfter` before anything was written
  'shutdown', // the sender was closed before anything was written
  'timeout', // written, and no whole response head within the deadline
  'reset', // written, and the connection was closed or reset before a response
  'bad_response', // written, and what came back is not HTTP/1
  'internal', // a fault of this service
] as const;
export type ErrorKind = (typeof ERROR_KINDS)[number];

/** Milliseconds each step took; null for a step that did not happen. `firstByte` counts from the request's last byte. */
export interface Timings {
  dns: number | null;
  connect: number | null;
  tls: number | null;
  firstByte: number | null;
  total: number;
}

export interface SendResult {
  outcome: 'delivered' | 'rejected' | 'not_sent' | 'unknown';
  errorKind: ErrorKind | null;
  /** What an operator may want to know besides the kind: an error code or a short sentence. */
  errorDetail: string | null;
  /** Bytes of the request may have left. */
  wrote: boolean;
  status: number | null;
  responseHeaders: Record<string, string>;
  responseBody: string | null;
  truncated: boolean;
  timings: Timings;
  remoteAddress: string | null;
  requestHeaders: Record<string, string>;
  tls: { version: string; daysToExpiry: number | null } | null;
  retryAfterSeconds: number | null;
}

const DAY_MS = 86_400_000;

export const connectionFailure = (error: unknown, phase: Phase): { kind: ErrorKind; detail: string } => {
  if (error instanceof AddressRefused) return { kind: 'address_refused', detail: error.message };
  if (error instanceof NameUnresolved) return { kind: 'dns', detail: describe(error.cause ?? error) };
  return { kind: phase, detail: describe(error) };
};

// Two of undici's errors are told from others of their class by nothing but their words.
const UNASKED_CONTINUE = 'bad response';
const UNASKED_UPGRADE = 'bad upgrade';

/** undici's word for a 101 nobody asked for, which it does not let through. */
export const isUpgrade = (error: Error): boolean => error.message === UNASKED_UPGRADE;

/** Of a request that was written and has no status. */
export const responseFailure = (error: Error): { kind: ErrorKind; detail: string } => {
  if (error.message === UNASKED_CONTINUE)
    return { kind: 'bad_response', detail: '100 Continue, which was not asked for' };
  if (error instanceof errors.SocketError) return { kind: 'reset', detail: 'closed before a whole response' };
  const isBreach = [errors.HTTPParserError, errors.UndiciError, AssertionError].some((known) => error instanceof known);
  return isBreach
    ? { kind: 'bad_response', detail: error.message.slice(0, 200) }
    : { kind: 'reset', detail: describe(error) };
};

export const describe = (error: unknown): string => {
  if (error instanceof AggregateError && error.errors.length > 0) return describe(error.errors[0]);
  if (!(error instanceof Error)) return 'unknown error';
  return 'code' in error && typeof error.code === 'string' ? error.code : error.message.slice(0, 200);
};

const span = (from: number | null, to: number | null): number | null =>
  from === null || to === null ? null : Math.round((to - from) * 10) / 10;

const tlsOf = ({ tls }: Connection): SendResult['tls'] => {
  if (!tls) return null;
  const daysToExpiry = Number.isNaN(tls.validTo) ? null : Math.floor((tls.validTo - Date.now()) / DAY_MS);
  return { version: tls.version, daysToExpiry };
};

/** Seconds or a date, as RFC 9110 has it; anything else is no wish at all. */
const retryAfterOf = (wish: string | undefined): number | null => {
  if (wish === undefined) return null;
  if (/^\d{1,9}$/.test(wish)) return Number(wish);
  const until = /^[A-Z][a-z]{2,8}[, ]/.test(wish) ? Date.parse(wish) : Number.NaN;
  return Number.isNaN(until) ? null : Math.max(0, Math.ceil((until - Date.now()) / 1000));
};

interface Ended {
  kind: ErrorKind | null;
  detail: string | null;
  trace: Trace;
  connection: Connection | null;
  exchange: Exchange;
  requestHeaders: Record<string, string>;
}

export const resultOf = ({ kind, detail, trace, connection, exchange, requestHeaders }: Ended): SendResult => {
  const { response, wroteAt, firstByteAt } = exchange;
  const { status, headers, truncated } = response;
  const answered = kind === null;
  const wrote = wroteAt !== null;
  const answer = status >= 200 && status < 300 ? 'delivered' : 'rejected';
  return {
    outcome: answered ? answer : wrote ? 'unknown' : 'not_sent',
    errorKind: kind,
    errorDetail: detail,
    wrote,
    status: answered ? status : null,
    responseHeaders: headers,
    responseBody: answered ? response.text() : null,
    truncated,
    timings: {
      dns: span(trace.startedAt, trace.resolvedAt),
      connect: span(trace.resolvedAt ?? trace.startedAt, trace.connectedAt),
      tls: span(trace.connectedAt, trace.securedAt),
      firstByte: span(wroteAt, firstByteAt),
      total: span(trace.startedAt, performance.now()) ?? 0,
    },
    remoteAddress: connection?.remoteAddress ?? trace.remoteAddress,
    requestHeaders,
    tls: connection && tlsOf(connection),
    retryAfterSeconds: answered ? retryAfterOf(headers['retry-after']) : null,
  };
};
