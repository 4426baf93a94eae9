import type { IncomingHttpHeaders } from 'node:http';
import { performance } from 'node:perf_hooks';
import type { Dispatcher } from 'undici';
import { KeptResponse } from './response.ts';
import { type ErrorKind, isUpgrade, responseFailure } from './failure.ts';

export interface ExchangeListener {
  /** Called immediately before the write. */
  mayWrite(): boolean;
  /** The status is known; the body may still follow. */
  onStatus(): void;
  /** The request was written and has ended, with a status or with a kind of failure. */
  settle(kind: ErrorKind | null, detail?: string): void;
  /** The request has ended and nothing was written. */
  onNotWritten(error: Error): void;
}

// More interim (1xx) responses than real servers send.
const MAX_INTERIM = 16;
export const TOO_LATE = new Error('too late to be written');

/** One request and its response on one connection, as undici reports them. */
export class Exchange implements Dispatcher.DispatchHandler {
  readonly response = new KeptResponse();
  wroteAt: number | null = null;
  firstByteAt: number | null = null;
  /** True when undici no longer uses the connection. */
  done = false;
  private interim = 0;
  private readonly listener: ExchangeListener;

  constructor(listener: ExchangeListener) {
    this.listener = listener;
  }

  /**
   * undici's `writeH1` calls this and then writes synchronously, so the decision to write is still valid when the first
   * byte is sent. An error thrown in this method cancels the request and leaves the connection usable.
   */
  onRequestStart(): void {
    if (this.wroteAt !== null || !this.listener.mayWrite()) throw TOO_LATE;
    this.wroteAt = performance.now();
  }

  onResponseStarted(): void {
    this.firstByteAt ??= performance.now();
  }

  onResponseStart(_: Dispatcher.DispatchController, status: number, headers: IncomingHttpHeaders): void {
    if (status >= 200) {
      this.response.start(status, headers);
      this.listener.onStatus();
    } else if (status === 101) {
      this.onUpgrade(headers);
    } else if (++this.interim > MAX_INTERIM) {
      this.listener.settle('bad_response', 'too many interim responses');
    }
  }

  onResponseData(_: Dispatcher.DispatchController, bytes: Buffer): void {
    if (!this.response.push(bytes)) this.listener.settle(null);
  }

  onResponseEnd(): void {
    this.done = true;
    this.listener.settle(null);
  }

  onResponseError(_: Dispatcher.DispatchController, error: Error): void {
    if (this.wroteAt === null) {
      this.done = error === TOO_LATE;
      return this.listener.onNotWritten(error);
    }
    if (isUpgrade(error)) return this.onUpgrade({});
    const { kind, detail } = responseFailure(error);
    this.onBroken(kind, detail);
  }

  /** Called when more bytes arrived than a response may have. */
  onFlood(): void {
    if (this.wroteAt !== null) this.onBroken('bad_response', 'the response is too large');
  }

  /** Ends a broken exchange. If a status was received, it decides the outcome, even if the body is incomplete. */
  private onBroken(kind: ErrorKind, detail: string): void {
    if (this.response.status === 0) return this.listener.settle(kind, detail);
    this.response.truncated = true;
    this.listener.settle(null);
  }

  /** A 101 response that was not requested ends the exchange, because the following bytes are not HTTP. */
  private onUpgrade(headers: IncomingHttpHeaders): void {
    this.response.start(101, headers);
    this.listener.settle(null);
  }
}
