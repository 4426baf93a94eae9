import type { Dispatcher } from 'undici';
import { DAY_MS, secondsOfRetryAfter, serverNow } from '../../platform/process/clock.ts';
import { performance } from 'node:perf_hooks';
import { checkEndpointUrl, guardedLookup, type Resolve } from '../../platform/http/address-guard.ts';
import {
  type Connection,
  type Dial,
  type DialSettings,
  newTrace,
  openConnection,
  Pool,
  type Trace,
} from './connection.ts';
import {
  connectionFailure,
  describe,
  type SendFailure,
  HttpExchange,
  type HttpExchangeListener,
  TOO_LATE,
} from './exchange.ts';
import { createGuardedContext } from '../../platform/http/guarded-tls.ts';
import { TIMING } from '../../platform/process/time-limits.ts';
import type { Header } from '../delivery.ts';

/**
 * The duration of each step in milliseconds; null for a step that did not happen. `firstByte` is the time from the last
 * byte of the request to the first byte of the response.
 */
interface SendTimings {
  dns: number | null;
  connect: number | null;
  tls: number | null;
  firstByte: number | null;
  total: number;
}

export interface SendResult {
  outcome: 'delivered' | 'rejected' | 'not_sent' | 'unknown';
  errorKind: SendFailure | null;
  /** Details for operators: an error code or a short sentence. */
  errorDetail: string | null;
  /** True if some bytes of the request may have been sent. */
  wrote: boolean;
  status: number | null;
  responseHeaders: Header[];
  responseBody: string | null;
  truncated: boolean;
  timings: SendTimings;
  remoteAddress: string | null;
  requestHeaders: Record<string, string>;
  tls: { version: string; daysToExpiry: number | null } | null;
  retryAfterSeconds: number | null;
}

const span = (from: number | null, to: number | null): number | null =>
  from === null || to === null ? null : Math.round((to - from) * 10) / 10;

const tlsOf = ({ tls }: Connection): SendResult['tls'] => {
  if (!tls) return null;
  const daysToExpiry = Number.isNaN(tls.validTo) ? null : Math.floor((tls.validTo - serverNow()) / DAY_MS);
  return { version: tls.version, daysToExpiry };
};

interface Ended {
  kind: SendFailure | null;
  detail: string | null;
  trace: Trace;
  connection: Connection | null;
  exchange: HttpExchange;
  requestHeaders: Record<string, string>;
}

const resultOf = ({ kind, detail, trace, connection, exchange, requestHeaders }: Ended): SendResult => {
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
    retryAfterSeconds: answered ? secondsOfRetryAfter(headers.find(({ name }) => name === 'retry-after')?.value) : null,
  };
};

export interface SendRequest {
  endpointId: string;
  url: string;
  body: Buffer;
  /**
   * The headers, or a function that returns them. The function is called immediately before the write, so that the
   * signature contains the time of sending.
   */
  headers: Record<string, string> | ((timestampSeconds: number) => Record<string, string>);
  deadlineMs?: number;
  /** Nothing may be written after this time, on the clock of `performance.now()`. */
  notAfter?: number;
}
interface ComposedRequest {
  headers: Record<string, string>;
  options: Dispatcher.DispatchOptions;
}

const UNSAFE = /[^\t\x20-\x7e]/;

/** The request for undici, and its headers as they appear on the wire. */
const composeRequest = (url: URL, userAgent: string, { body, headers }: SendRequest): ComposedRequest => {
  const own = typeof headers === 'function' ? headers(Math.floor(serverNow() / 1000)) : headers;
  // undici itself writes the first two headers and the last one, in this order.
  const all: Record<string, string> = {
    host: url.host,
    connection: 'keep-alive',
    'User-Agent': userAgent,
    'Accept-Encoding': 'identity',
    ...own,
    'content-length': String(body.length),
  };
  // Checked, because undici accepts non-ASCII characters in headers.
  for (const value of Object.values(all)) if (UNSAFE.test(value)) throw new Error('a header cannot be sent');
  const path = url.pathname + url.search;
  return { headers: all, options: { method: 'POST', path, headers: all, body } };
};

interface AttemptSettings extends DialSettings {
  userAgent: string;
  deadlineMs: number;
  bodyGraceMs: number;
  /** Called before a socket is opened. */
  makeRoom: () => void;
}

/**
 * Sends one request once. If an idle connection turns out to be closed before the write, another connection is used.
 * After the write no other connection is used, so no failure can send the bytes a second time.
 */
class Attempt implements HttpExchangeListener {
  private readonly trace = newTrace();
  private readonly request: SendRequest;
  private readonly settings: AttemptSettings;
  private readonly pool: Pool;
  private readonly settled: (result: SendResult) => void;
  private readonly deadlineAt: number;
  private url: URL | null = null;
  private key = '';
  private connection: Connection | null = null;
  private exchange = new HttpExchange(this);
  private requestHeaders: Record<string, string> = {};
  private abortConnect: (() => void) | null = null;
  private timer: NodeJS.Timeout | undefined;
  private ended = false;

  constructor(request: SendRequest, settings: AttemptSettings, pool: Pool, settled: (result: SendResult) => void) {
    this.request = request;
    this.settings = settings;
    this.pool = pool;
    this.settled = settled;
    this.deadlineAt = this.trace.startedAt + (request.deadlineMs ?? settings.deadlineMs);
  }

  start(): void {
    const checked = checkEndpointUrl(this.request.url, this.settings);
    if (!checked.ok) return this.settle('address_refused', checked.reason);
    if (!this.mayWrite()) return this.settle('too_late');
    this.setTimer(this.deadlineAt);
    this.url = checked.url;
    this.key = `${this.request.endpointId} ${checked.url.origin}`;
    this.findConnection(checked.url);
  }

  settle(kind: SendFailure | null, detail: string | null = null): void {
    if (this.ended) return;
    this.ended = true;
    clearTimeout(this.timer);
    this.abortConnect?.();
    this.release(kind);
    const { trace, connection, exchange, requestHeaders } = this;
    this.settled(resultOf({ kind, detail, trace, connection, exchange, requestHeaders }));
  }

  mayWrite(): boolean {
    const { notAfter = Number.POSITIVE_INFINITY } = this.request;
    // The timer alone is not enough, because after the process was stopped and continued, this code may run before it.
    return !this.ended && performance.now() <= Math.min(notAfter, this.deadlineAt);
  }

  onStatus(): void {
    // The rest of the body gets a short time, not the whole deadline. Most bodies arrive together with the head, so the
    // timer starts one step later and is rarely needed.
    queueMicrotask(() => {
      if (!this.ended) this.setTimer(Math.min(this.deadlineAt, performance.now() + this.settings.bodyGraceMs));
    });
  }

  onNotWritten(error: Error): void {
    if (this.ended) return;
    if (error === TOO_LATE) return this.settle('too_late');
    if (!this.url || this.connection?.alive) return this.settle('internal', describe(error));
    // The failed connection was opened for this request, so another new connection would probably fail too.
    if (this.trace.connectedAt !== null) return this.settle(this.trace.phase, describe(error));
    this.findConnection(this.url);
  }

  private findConnection(url: URL): void {
    const idle = this.pool.take(this.key);
    if (!idle) return this.connect(url);
    this.connection = idle;
    idle.onceChecked(() => {
      if (idle.alive) this.write(idle, url);
      else if (!this.ended) this.findConnection(url);
    });
  }

  private connect(url: URL): void {
    this.connection = null;
    const opened = (error: Error | null, connection: Connection | null) => {
      this.abortConnect = null;
      if (connection) return this.write(connection, url);
      const { kind, detail } = connectionFailure(error, this.trace.phase);
      this.settle(kind, detail);
    };
    this.settings.makeRoom();
    try {
      this.abortConnect = openConnection(url, this.trace, this.settings, opened);
    } catch (error) {
      this.settle('internal', describe(error));
    }
  }

  private write(connection: Connection, url: URL): void {
    this.connection = connection;
    this.exchange = new HttpExchange(this);
    try {
      const { headers, options } = composeRequest(url, this.settings.userAgent, this.request);
      this.requestHeaders = headers;
      connection.dispatch(options, this.exchange);
    } catch (error) {
      this.settle('internal', describe(error));
    }
  }

  private setTimer(time: number): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.onTimer(), Math.max(0, time - performance.now()));
  }

  private onTimer(): void {
    const { response, wroteAt } = this.exchange;
    if (response.status !== 0) {
      response.truncated = true;
      this.settle(null);
    } else if (wroteAt !== null) this.settle('timeout');
    else if (this.connection) this.settle('too_late');
    else this.settle(this.trace.phase, 'no answer within the deadline');
  }

  private release(kind: SendFailure | null): void {
    const { connection, exchange } = this;
    if (!connection) return;
    // If the connection must not be used again, undici closes it after this callback.
    if (exchange.done && connection.reusable) this.pool.put(this.key, connection);
    else connection.close(kind !== null || exchange.response.truncated);
  }
}

export interface SenderOptions {
  userAgent: string;
  allowPrivate: boolean;
  /** The maximum number of idle connections that are kept for an endpoint. */
  perEndpointConnections: number;
  /** Above this number of sockets, idle connections are closed to make room for new ones. */
  maxSockets?: number;
  deadlineMs?: number;
  bodyGraceMs?: number;
  resolver?: Resolve;
  /** Certificate authorities that replace the public ones. */
  ca?: string;
  /** Opens TCP connections. Tests pass a function that maps public addresses to their own listener. */
  dial?: Dial;
}
export interface Sender {
  /**
   * Sends immediately, so the caller must limit the number in flight. Never throws, and never writes a request twice.
   */
  send: (request: SendRequest) => Promise<SendResult>;
  /** Waits for sends in flight. A send that is requested later fails with `shutdown`. */
  close: () => Promise<void>;
}

/**
 * The HTTP client for deliveries. undici only writes the request and reads the response. This module opens the socket
 * and sets the deadlines, so that no redirect is followed and no request is repeated.
 */
export const createSender = (options: SenderOptions): Sender => {
  const { perEndpointConnections, maxSockets = 512, resolver, allowPrivate } = options;
  const pool = new Pool({ perKey: perEndpointConnections });
  const settings: AttemptSettings = {
    userAgent: options.userAgent,
    allowPrivate,
    deadlineMs: options.deadlineMs ?? TIMING.deliveryDeadlineMs,
    bodyGraceMs: options.bodyGraceMs ?? TIMING.bodyGraceMs,
    lookup: guardedLookup({ allowPrivate, resolver }),
    secureContext: createGuardedContext({ minVersion: 'TLSv1.3', ...(options.ca && { ca: options.ca }) }),
    dial: options.dial,
    // Sends in flight take precedence over idle connections.
    makeRoom: () => active + pool.size > maxSockets && pool.dropOne(),
  };
  let active = 0;
  let drained: (() => void) | null = null;
  let closed: Promise<void> | null = null;

  const send = (request: SendRequest): Promise<SendResult> =>
    new Promise((resolve) => {
      if (closed) return new Attempt(request, settings, pool, resolve).settle('shutdown');
      active += 1;
      const settled = (result: SendResult) => {
        active -= 1;
        resolve(result);
        if (active === 0) drained?.();
      };
      new Attempt(request, settings, pool, settled).start();
    });

  const finishAll = async (): Promise<void> => {
    if (active > 0) {
      await new Promise<void>((resolve) => {
        drained = resolve;
      });
    }
    pool.close();
  };

  return { send, close: () => (closed ??= finishAll()) };
};
