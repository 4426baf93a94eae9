import type { Socket } from 'node:net';
import { performance } from 'node:perf_hooks';
import type { TLSSocket } from 'node:tls';
import { type buildConnector, Client, type Dispatcher } from 'undici';
import type { Exchange } from './exchange.ts';

// Shorter than the idle limit of some common servers, which is 2 s. A request that is sent while the server closes the
// connection would end `unknown`.
const IDLE_MS = 1500;
// Subtracted from the keep-alive time that a server announces, so that a connection is never used at the moment the
// server closes it.
const IDLE_MARGIN_MS = 1000;
// A connection older than this is closed after use, so that DNS changes take effect.
const MAX_AGE_MS = 60_000;
const MAX_HEADER_BYTES = 32 * 1024;
// The limit of a whole response in bytes as received, because undici does not limit status lines or chunk extensions.
const MAX_RESPONSE_BYTES = 256 * 1024;

const CLIENT_OPTIONS: Client.Options = {
  pipelining: 1,
  allowH2: false,
  useMilo: false, // explicit, so that the environment cannot choose the parser
  maxHeaderSize: MAX_HEADER_BYTES,
  // undici's own timeouts are off, because each attempt has its own deadline.
  headersTimeout: 0,
  bodyTimeout: 0,
  keepAliveTimeout: IDLE_MS,
  keepAliveMaxTimeout: IDLE_MS,
  keepAliveTimeoutThreshold: IDLE_MARGIN_MS,
};

/**
 * Gives undici one socket, once. When a client's socket closes, undici would open a new one for the requests left in
 * its queue, sometimes including a request that it had begun to write. Without another socket, those requests fail, so
 * no request is written twice or to an address that was not checked.
 */
const oneShot = (socket: Socket): buildConnector.connector => {
  let prepared: Socket | null = socket;
  return (_, callback) => {
    const handed = prepared;
    prepared = null;
    // The callback runs asynchronously, because otherwise undici does not process its queue. The error has no code,
    // because undici retries after some codes.
    queueMicrotask(() => (handed ? callback(null, handed) : callback(new Error('the connection is closed'), null)));
  };
};

/** One socket and its undici client. undici closes the socket if data arrives while the socket is idle. */
export class Connection {
  /** Called when the connection has closed. */
  onClose: (() => void) | null = null;
  readonly remoteAddress: string | null;
  readonly tls: { version: string; validTo: number } | null;
  private readonly openedAt = performance.now();
  private readonly socket: Socket | TLSSocket;
  private readonly raw: Socket;
  private readonly client: Client;
  private exchange: Exchange | null = null;
  private readBefore = 0;

  constructor(origin: string, socket: Socket | TLSSocket, raw: Socket) {
    this.socket = socket;
    this.raw = raw;
    this.remoteAddress = raw.remoteAddress ?? null;
    this.tls = 'encrypted' in socket ? describeTls(socket) : null;
    this.client = new Client(origin, { ...CLIENT_OPTIONS, connect: oneShot(socket) });
    socket.once('close', () => this.onClose?.());
    socket.on('readable', () => {
      if (socket.bytesRead - this.readBefore > MAX_RESPONSE_BYTES) this.flooded();
    });
  }

  get alive(): boolean {
    return !this.socket.destroyed;
  }

  get reusable(): boolean {
    return this.alive && performance.now() - this.openedAt < MAX_AGE_MS;
  }

  /**
   * Waits one whole turn of the event loop before a write, so that a close that has already arrived is noticed before
   * the write. A whole turn takes two callbacks, because the first may run in the current turn. On a used socket,
   * undici adds the second callback in `dispatch`.
   */
  onceChecked(use: () => void): void {
    if (this.exchange?.wroteAt) setImmediate(use);
    else setImmediate(() => setImmediate(use));
  }

  /**
   * undici calls `onRequestStart` and then writes synchronously: in this tick on a new connection, one turn of the
   * event loop later on a used connection. If undici cannot begin, it calls only `onResponseError`.
   */
  dispatch(options: Dispatcher.DispatchOptions, exchange: Exchange): void {
    this.exchange = exchange;
    this.readBefore = this.socket.bytesRead;
    this.client.dispatch(options, exchange);
  }

  /** With `reset`, the kernel drops unsent bytes instead of sending them late. */
  close(reset: boolean): void {
    closeSocket(this.raw, reset);
    this.socket.destroy();
  }

  private flooded(): void {
    this.exchange?.onFlood();
    this.close(true);
  }
}

export const closeSocket = (raw: Socket, reset: boolean): void => {
  if (reset && !raw.destroyed && !raw.connecting) raw.resetAndDestroy();
  else raw.destroy();
};

const describeTls = (socket: TLSSocket) => ({
  version: socket.getProtocol() ?? 'unknown',
  validTo: Date.parse(socket.getPeerCertificate().valid_to),
});
