import type { Socket } from 'node:net';
import { performance } from 'node:perf_hooks';
import type { TLSSocket } from 'node:tls';
import { type buildConnector, Client, type Dispatcher } from 'undici';
import type { Exchange } from './exchange.ts';

// Well below the 2 s after which the hastiest common servers drop an idle connection: a request that meets the
// closing would end `unknown`.
const IDLE_MS = 1500;
// A server that names its own limit is believed, less this much.
const IDLE_MARGIN_MS = 1000;
// A busy connection is given up now and then, so that a moved name is followed.
const MAX_AGE_MS = 60_000;
const MAX_HEADER_BYTES = 32 * 1024;
// Of one response, with all there is around head and body: undici has no limit of its own for endless status lines,
// chunk extensions and the like.
const MAX_RESPONSE_BYTES = 256 * 1024;

const CLIENT_OPTIONS: Client.Options = {
  pipelining: 1,
  allowH2: false,
  useMilo: false, // said aloud, so that the environment has no say in which parser reads
  maxHeaderSize: MAX_HEADER_BYTES,
  // Every attempt has deadlines of its own.
  headersTimeout: 0,
  bodyTimeout: 0,
  keepAliveTimeout: IDLE_MS,
  keepAliveMaxTimeout: IDLE_MS,
  keepAliveTimeoutThreshold: IDLE_MARGIN_MS,
};

/**
 * Hands over the one socket, once. undici opens a new connection for whatever is left in a client's queue when its
 * socket goes, and in some corners puts back there what it had begun to write. Here it has nothing to open: what is in
 * the queue then fails, and no request can be written a second time or to an address that was not checked.
 */
const oneShot = (socket: Socket): buildConnector.connector => {
  let prepared: Socket | null = socket;
  return (_, callback) => {
    const handed = prepared;
    prepared = null;
    // Not within the call: undici would not look at its queue again. The error must have none of undici's own codes,
    // which it takes for passing troubles.
    queueMicrotask(() => (handed ? callback(null, handed) : callback(new Error('the connection is gone'), null)));
  };
};

/** One socket, and the undici client that speaks on it. Whatever arrives while it is idle makes undici close it. */
export class Connection {
  /** Called once it is closed. */
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
   * Between this and a write lies one whole turn of the event loop, so that a close which has already arrived is seen
   * before the write, not after. It takes two callbacks: the first may run in the turn whose events were fetched before.
   * On a socket that was used undici adds the second by itself, in `dispatch`.
   */
  onceChecked(use: () => void): void {
    if (this.exchange?.wroteAt) setImmediate(use);
    else setImmediate(() => setImmediate(use));
  }

  /**
   * undici calls `onRequestStart` and writes in the same stretch of code: in this tick on a new connection, one turn of
   * the event loop later on one that was used before. It calls `onResponseError` alone when it could not begin.
   */
  dispatch(options: Dispatcher.DispatchOptions, exchange: Exchange): void {
    this.exchange = exchange;
    this.readBefore = this.socket.bytesRead;
    this.client.dispatch(options, exchange);
  }

  /** With `reset`, the kernel drops what it still holds to send instead of delivering it late. */
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
