import type { Dispatcher } from 'undici';
import { AddressRefused, NameUnresolved } from '../../platform/http/address-guard.ts';
import type { IncomingHttpHeaders } from 'node:http';
import { breachOf } from '../../platform/http/undici.ts';
import type { Header } from '../delivery.ts';
import { performance } from 'node:perf_hooks';

/** The steps before a request can be written. The name of a failed step is also the name of the failure. */
export type Phase = 'dns' | 'connect' | 'tls';

/** Why a request has no status. `too_late` and `shutdown` leave the event pending. */
export const SEND_FAILURES = [
  'address_refused', // the URL or an address of its name is not public
  'dns', // the name has no address
  'connect', // no TCP connection, refused or unanswered
  'tls', // no TLS 1.3, an invalid certificate, or an unanswered handshake
  'too_late', // past `notAfter` before anything was written
  'shutdown', // the sender was closed before anything was written
  'timeout', // written, and no whole response head within the deadline
  'reset', // written, and the connection was closed or reset before a response
  'bad_response', // written, and what came back is not HTTP/1
  'internal', // a fault of this service
] as const;
export type SendFailure = (typeof SEND_FAILURES)[number];

export const connectionFailure = (error: unknown, phase: Phase): { kind: SendFailure; detail: string } => {
  if (error instanceof AddressRefused) return { kind: 'address_refused', detail: error.message };
  if (error instanceof NameUnresolved) return { kind: 'dns', detail: describe(error.cause ?? error) };
  return { kind: phase, detail: describe(error) };
};

/** The failure of a request that was written and got no status. */
const responseFailure = (error: Error): { kind: SendFailure; detail: string } => {
  const breach = breachOf(error);
  if (breach === 'unasked_continue') return { kind: 'bad_response', detail: '100 Continue, which was not asked for' };
  if (breach === 'closed') return { kind: 'reset', detail: 'closed before a whole response' };
  return breach === 'not_http'
    ? { kind: 'bad_response', detail: error.message.slice(0, 200) }
    : { kind: 'reset', detail: describe(error) };
};

export const describe = (error: unknown): string => {
  if (error instanceof AggregateError && error.errors.length > 0) return describe(error.errors[0]);
  if (!(error instanceof Error)) return 'unknown error';
  return 'code' in error && typeof error.code === 'string' ? error.code : error.message.slice(0, 200);
};

const MAX_BODY_BYTES = 16 * 1024;
const MAX_HEADER_BYTES = 16 * 1024;
/** A receiver that sends its body byte by byte would hold up all other sends. */
const MAX_BODY_PIECES = 500;

/** The stored part of a response. Only its status decides the outcome. The rest is for operators. */
class KeptResponse {
  /** 0 until a final status has been read. */
  status = 0;
  headers: Header[] = [];
  truncated = false;
  private body: Buffer[] = [];
  private bytes = 0;
  private pieces = 0;

  start(status: number, headers: IncomingHttpHeaders): void {
    this.status = status;
    let kept = 0;
    for (const [name, values = ''] of Object.entries(headers)) {
      for (const value of [values].flat()) {
        kept += name.length + value.length;
        if (kept > MAX_HEADER_BYTES) return;
        this.headers.push({ name, value });
      }
    }
  }

  /** Adds bytes of the body. Returns false once the body exceeds a limit. */
  push(bytes: Buffer): boolean {
    const room = MAX_BODY_BYTES - this.bytes;
    const kept = bytes.subarray(0, room);
    if (kept.length > 0) this.body.push(kept);
    this.bytes += kept.length;
    this.pieces += 1;
    if (bytes.length > room || this.pieces > MAX_BODY_PIECES) this.truncated = true;
    return !this.truncated;
  }

  /** The body as text. Invalid UTF-8 becomes U+FFFD. A character that was cut at the limit is dropped. */
  text(): string {
    const bytes = Buffer.concat(this.body);
    if (!this.truncated) return bytes.toString();
    return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes, { stream: true });
  }
}

export interface HttpExchangeListener {
  /** Called immediately before the write. */
  mayWrite(): boolean;
  /** The status is known; the body may still follow. */
  onStatus(): void;
  /** The request was written and has ended, with a status or with a kind of failure. */
  settle(kind: SendFailure | null, detail?: string): void;
  /** The request has ended and nothing was written. */
  onNotWritten(error: Error): void;
}

// More interim (1xx) responses than real servers send.
const MAX_INTERIM = 16;
export const TOO_LATE = new Error('too late to be written');

/** One request and its response on one connection, as undici reports them. */
export class HttpExchange implements Dispatcher.DispatchHandler {
  readonly response = new KeptResponse();
  wroteAt: number | null = null;
  firstByteAt: number | null = null;
  /** True when undici no longer uses the connection. */
  done = false;
  private interim = 0;
  private readonly listener: HttpExchangeListener;

  constructor(listener: HttpExchangeListener) {
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
    if (breachOf(error) === 'unasked_upgrade') return this.onUpgrade({});
    const { kind, detail } = responseFailure(error);
    this.onBroken(kind, detail);
  }

  /** Called when more bytes arrived than a response may have. */
  onFlood(): void {
    if (this.wroteAt !== null) this.onBroken('bad_response', 'the response is too large');
  }

  /** Ends a broken exchange. If a status was received, it decides the outcome, even if the body is incomplete. */
  private onBroken(kind: SendFailure, detail: string): void {
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
