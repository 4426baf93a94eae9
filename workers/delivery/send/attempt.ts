import { performance } from 'node:perf_hooks';
import { checkEndpointUrl } from '../../../src/events/address-guard.ts';
import { type Connection, type DialSettings, type Listener, openConnection, type Trace } from './connection.ts';
import type { Pool } from './pool.ts';
import { composeRequest, type SendRequest } from './request.ts';
import { ResponseReader } from './response-reader.ts';
import {
  connectionFailure,
  describe,
  type ErrorKind,
  retryAfterOf,
  type SendResult,
  timingsOf,
  tlsOf,
} from './result.ts';

export interface AttemptSettings extends DialSettings {
  userAgent: string;
  deadlineMs: number;
  bodyGraceMs: number;
  /** Called before a socket is opened. */
  makeRoom: () => void;
}

/**
 * One request, once. The steps only lead forward: an idle connection found closed before the write is replaced, but
 * after the write there is no way back to here, so no failure whatever can send the bytes a second time.
 */
export class Attempt implements Listener {
  private readonly trace: Trace;
  private readonly reader = new ResponseReader();
  private readonly request: SendRequest;
  private readonly settings: AttemptSettings;
  private readonly pool: Pool;
  private readonly settled: (result: SendResult) => void;
  private connection: Connection | null = null;
  private giveUp: (() => void) | null = null;
  private timer: NodeJS.Timeout | undefined;
  private key = '';
  private requestHeaders: Record<string, string> = {};
  private wroteAt: number | null = null;
  private firstByteAt: number | null = null;
  private over = false;
  private graceRuns = false;

  constructor(request: SendRequest, settings: AttemptSettings, pool: Pool, settled: (result: SendResult) => void) {
    this.request = request;
    this.settings = settings;
    this.pool = pool;
    this.settled = settled;
    const startedAt = performance.now();
    const step = { resolvedAt: null, connectedAt: null, securedAt: null };
    this.trace = { phase: 'dns', startedAt, remoteAddress: null, ...step };
  }

  start(): void {
    const checked = checkEndpointUrl(this.request.url, this.settings);
    if (!checked.ok) return this.settle('address_refused', checked.reason);
    if (this.late()) return this.settle('too_late');
    this.timer = setTimeout(() => this.timeUp(), this.deadlineMs);
    this.key = `${this.request.endpointId} ${checked.url.origin}`;
    this.findConnection(checked.url);
  }

  settle(kind: ErrorKind | null, detail: string | null = null): void {
    if (this.over) return;
    this.over = true;
    clearTimeout(this.timer);
    this.release(kind);
    this.settled(this.result(kind, detail));
  }

  onData(bytes: Buffer): void {
    this.firstByteAt ??= performance.now();
    this.reader.push(bytes);
    if (this.reader.done) this.finish();
    else if (this.reader.status !== 0 && !this.graceRuns) this.startGrace();
  }

  onClose(error: Error | null): void {
    this.reader.end();
    if (this.reader.status !== 0) this.settle(null);
    else this.settle('reset', error ? describe(error) : this.reader.failure);
  }

  private findConnection(url: URL): void {
    const idle = this.pool.take(this.key);
    if (!idle) return this.connect(url);
    // One whole turn of the event loop, so that a close which has already arrived is seen before the write, not after:
    // the first callback may still run in the turn whose events were fetched before.
    idle.listener = { onData: () => idle.close(false), onClose: () => {} };
    const use = () => {
      if (this.over) return idle.close(false);
      if (idle.alive) this.write(idle, url);
      else this.findConnection(url);
    };
    setImmediate(() => setImmediate(use));
  }

  private connect(url: URL): void {
    const opened = (error: Error | null, connection: Connection | null) => {
      this.giveUp = null;
      if (connection && !this.over) return this.write(connection, url);
      connection?.close(true);
      if (!error) return;
      const { kind, detail } = connectionFailure(error, this.trace.phase);
      this.settle(kind, detail);
    };
    this.settings.makeRoom();
    try {
      this.giveUp = openConnection(url, this.trace, this.settings, opened);
    } catch (error) {
      this.settle('internal', describe(error));
    }
  }

  private write(connection: Connection, url: URL): void {
    this.connection = connection;
    connection.listener = this;
    try {
      const { headers, bytes } = composeRequest(url, this.settings.userAgent, this.request);
      this.requestHeaders = headers;
      if (this.late()) return this.settle('too_late');
      this.wroteAt = performance.now();
      connection.socket.write(bytes);
    } catch (error) {
      this.settle('internal', describe(error));
    }
  }

  private get deadlineMs(): number {
    return this.request.deadlineMs ?? this.settings.deadlineMs;
  }

  private late(): boolean {
    const { notAfter = Number.POSITIVE_INFINITY } = this.request;
    // The deadline too: a process that was stopped may come here before its timer has rung.
    return performance.now() > Math.min(notAfter, this.trace.startedAt + this.deadlineMs);
  }

  /** The status is known: the rest of the body is worth a moment, not the whole deadline. */
  private startGrace(): void {
    this.graceRuns = true;
    const spent = performance.now() - this.trace.startedAt;
    const left = this.deadlineMs - spent;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.timeUp(), Math.max(0, Math.min(left, this.settings.bodyGraceMs)));
  }

  private timeUp(): void {
    if (this.reader.status !== 0) {
      this.reader.cut();
      this.settle(null);
    } else if (this.wroteAt !== null) this.settle('timeout');
    else this.settle(this.trace.phase, 'no answer within the deadline');
  }

  private finish(): void {
    if (this.reader.failure === null) this.settle(null);
    else this.settle('bad_response', this.reader.failure);
  }

  private release(kind: ErrorKind | null): void {
    this.giveUp?.();
    const { connection } = this;
    if (!connection) return;
    connection.listener = null;
    const unused = this.wroteAt === null && kind === 'too_late';
    const answered = kind === null && this.reader.done && this.reader.reusable;
    if ((unused || answered) && connection.reusable) this.pool.put(this.key, connection);
    else connection.close(kind !== null || this.reader.truncated);
  }

  private result(kind: ErrorKind | null, detail: string | null): SendResult {
    const { reader, wroteAt, connection } = this;
    const wrote = wroteAt !== null;
    const answered = kind === null;
    const fine = reader.status >= 200 && reader.status < 300;
    return {
      outcome: answered ? (fine ? 'delivered' : 'rejected') : wrote ? 'unknown' : 'not_sent',
      errorKind: kind,
      errorDetail: detail,
      wrote,
      status: answered ? reader.status : null,
      responseHeaders: reader.headers,
      responseBody: answered ? reader.text() : null,
      truncated: reader.truncated,
      timings: timingsOf(this.trace, wroteAt, this.firstByteAt, performance.now()),
      remoteAddress: connection?.remoteAddress ?? this.trace.remoteAddress,
      requestHeaders: this.requestHeaders,
      tls: connection ? tlsOf(connection) : null,
      retryAfterSeconds: answered ? retryAfterOf(reader) : null,
    };
  }
}
