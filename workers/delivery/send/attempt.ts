import { performance } from 'node:perf_hooks';
import { checkEndpointUrl } from '../../../src/webhooks/address-guard.ts';
import type { Connection } from './connection.ts';
import { Exchange, type ExchangeListener, TOO_LATE } from './exchange.ts';
import { type DialSettings, newTrace, openConnection } from './open.ts';
import type { Pool } from './pool.ts';
import { composeRequest, type SendRequest } from './request.ts';
import { connectionFailure, describe, type ErrorKind } from './failure.ts';
import { resultOf, type SendResult } from './result.ts';

export interface AttemptSettings extends DialSettings {
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
export class Attempt implements ExchangeListener {
  private readonly trace = newTrace();
  private readonly request: SendRequest;
  private readonly settings: AttemptSettings;
  private readonly pool: Pool;
  private readonly settled: (result: SendResult) => void;
  private readonly deadlineAt: number;
  private url: URL | null = null;
  private key = '';
  private connection: Connection | null = null;
  private exchange = new Exchange(this);
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

  settle(kind: ErrorKind | null, detail: string | null = null): void {
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
    this.exchange = new Exchange(this);
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

  private release(kind: ErrorKind | null): void {
    const { connection, exchange } = this;
    if (!connection) return;
    // If the connection must not be used again, undici closes it after this callback.
    if (exchange.done && connection.reusable) this.pool.put(this.key, connection);
    else connection.close(kind !== null || exchange.response.truncated);
  }
}
