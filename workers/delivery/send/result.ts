import { performance } from 'node:perf_hooks';
import type { Connection } from './connection.ts';
import type { Exchange } from './exchange.ts';
import type { Header } from '../../../src/deliveries/delivery.ts';
import type { ErrorKind } from './failure.ts';
import type { Trace } from './open.ts';
import { serverNow } from '../../../src/platform/clock.ts';

/**
 * The duration of each step in milliseconds; null for a step that did not happen. `firstByte` is the time from the last
 * byte of the request to the first byte of the response.
 */
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
  /** Details for operators: an error code or a short sentence. */
  errorDetail: string | null;
  /** True if some bytes of the request may have been sent. */
  wrote: boolean;
  status: number | null;
  responseHeaders: Header[];
  responseBody: string | null;
  truncated: boolean;
  timings: Timings;
  remoteAddress: string | null;
  requestHeaders: Record<string, string>;
  tls: { version: string; daysToExpiry: number | null } | null;
  retryAfterSeconds: number | null;
}

const DAY_MS = 86_400_000;

const span = (from: number | null, to: number | null): number | null =>
  from === null || to === null ? null : Math.round((to - from) * 10) / 10;

const tlsOf = ({ tls }: Connection): SendResult['tls'] => {
  if (!tls) return null;
  const daysToExpiry = Number.isNaN(tls.validTo) ? null : Math.floor((tls.validTo - serverNow()) / DAY_MS);
  return { version: tls.version, daysToExpiry };
};

/** Reads a `Retry-After` header, which has seconds or a date (RFC 9110). Other values are ignored. */
const retryAfterOf = (value: string | undefined): number | null => {
  if (value === undefined) return null;
  if (/^\d{1,9}$/.test(value)) return Number(value);
  const until = /^[A-Z][a-z]{2,8}[, ]/.test(value) ? Date.parse(value) : Number.NaN;
  return Number.isNaN(until) ? null : Math.max(0, Math.ceil((until - serverNow()) / 1000));
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
    retryAfterSeconds: answered ? retryAfterOf(headers.find(({ name }) => name === 'retry-after')?.value) : null,
  };
};
