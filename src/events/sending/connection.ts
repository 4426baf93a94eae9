import { connect as netConnect, isIP, type LookupFunction, type Socket, type TcpNetConnectOpts } from 'node:net';
import { performance } from 'node:perf_hooks';
import type { SecureContext, TLSSocket } from 'node:tls';
import type { Client, Dispatcher } from 'undici';
import type { HttpExchange, Phase } from './exchange.ts';
import { clientOf, onceChecked } from '../../platform/http/undici.ts';
import { AddressRefused, isAllowedPeer, socketHost } from '../../platform/http/address-guard.ts';
import { secure } from '../../platform/http/guarded-tls.ts';

// A connection older than this is closed after use, so that DNS changes take effect.
const MAX_AGE_MS = 60_000;
// The limit of a whole response in bytes as received, because undici does not limit status lines or chunk extensions.
const MAX_RESPONSE_BYTES = 256 * 1024;

/** One socket and its undici client. */
export class Connection {
  /** Called when the connection has closed. */
  onClose: (() => void) | null = null;
  readonly remoteAddress: string | null;
  readonly tls: { version: string; validTo: number } | null;
  private readonly openedAt = performance.now();
  private readonly socket: Socket | TLSSocket;
  private readonly raw: Socket;
  private readonly client: Client;
  private exchange: HttpExchange | null = null;
  private readBefore = 0;

  constructor(origin: string, socket: Socket | TLSSocket, raw: Socket) {
    this.socket = socket;
    this.raw = raw;
    this.remoteAddress = raw.remoteAddress ?? null;
    this.tls = 'encrypted' in socket ? describeTls(socket) : null;
    this.client = clientOf(origin, socket);
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

  /** Calls `use` after a whole turn of the event loop, in which a close that has arrived is noticed. */
  onceChecked(use: () => void): void {
    onceChecked(use, { used: Boolean(this.exchange?.wroteAt) });
  }

  /**
   * undici calls `onRequestStart` and then writes synchronously: in this tick on a new connection, one turn of the
   * event loop later on a used connection. If undici cannot begin, it calls only `onResponseError`.
   */
  dispatch(options: Dispatcher.DispatchOptions, exchange: HttpExchange): void {
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

const closeSocket = (raw: Socket, reset: boolean): void => {
  if (reset && !raw.destroyed && !raw.connecting) raw.resetAndDestroy();
  else raw.destroy();
};

const describeTls = (socket: TLSSocket) => ({
  version: socket.getProtocol() ?? 'unknown',
  validTo: Date.parse(socket.getPeerCertificate().valid_to),
});

export type Dial = (options: TcpNetConnectOpts) => Socket;
/** When each step of an attempt ended. */
export interface Trace {
  /** The current step. If this step fails, its name is the name of the failure. */
  phase: Phase;
  startedAt: number;
  remoteAddress: string | null;
  resolvedAt: number | null;
  connectedAt: number | null;
  securedAt: number | null;
}
export interface DialSettings {
  allowPrivate: boolean;
  lookup: LookupFunction;
  secureContext: SecureContext;
  dial?: Dial | undefined;
}

export const newTrace = (): Trace => {
  const steps = { resolvedAt: null, connectedAt: null, securedAt: null };
  return { phase: 'dns', startedAt: performance.now(), remoteAddress: null, ...steps };
};

type Opened = (error: Error | null, connection: Connection | null) => void;

// If an address has not connected after this time, the next address is tried in parallel. Node's default of 250 ms is
// too short for distant hosts.
const NEXT_ADDRESS_AFTER_MS = 1000;

/**
 * Connects, checks the peer's address before any byte is sent, and sets up TLS. Returns a function that aborts the
 * attempt.
 */
export const openConnection = (url: URL, trace: Trace, settings: DialSettings, opened: Opened): (() => void) => {
  const host = socketHost(url);
  const { allowPrivate, lookup, dial = netConnect } = settings;
  let finished = false;
  const finish = (error: Error | null, socket: Socket | TLSSocket | null) => {
    if (finished) return;
    finished = true;
    if (error) closeSocket(raw, true);
    opened(error, socket && new Connection(url.origin, socket, raw));
  };

  trace.phase = isIP(host) === 0 ? 'dns' : 'connect';
  const raw = dial({
    host,
    port: url.port === '' ? (url.protocol === 'https:' ? 443 : 80) : Number(url.port),
    noDelay: true,
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: NEXT_ADDRESS_AFTER_MS,
    lookup: (name, options, callback) =>
      lookup(name, options, (error, ...answer) => {
        trace.resolvedAt = performance.now();
        if (!error) trace.phase = 'connect';
        callback(error, ...answer);
      }),
  });
  raw.on('error', (error) => finish(error, null));
  raw.once('close', () => finish(new Error('closed while connecting'), null));
  raw.once('connect', () => {
    if (finished) return;
    trace.connectedAt = performance.now();
    if (!isAllowedPeer(raw.remoteAddress, { allowPrivate })) {
      return finish(new AddressRefused('connected to an address that is not public'), null);
    }
    trace.remoteAddress = raw.remoteAddress ?? null;
    if (url.protocol === 'http:') return finish(null, raw);
    trace.phase = 'tls';
    const socket = secure(raw, host, settings.secureContext);
    socket.on('error', (error) => finish(error, null));
    socket.once('secureConnect', () => {
      trace.securedAt = performance.now();
      finish(null, socket);
    });
  });
  return () => finish(new Error('aborted'), null);
};

/**
 * Idle connections, by endpoint and origin. The newest connection is used first. undici closes connections that are
 * idle for too long, and a closed connection is removed from the pool.
 */
export class Pool {
  private readonly idle = new Map<string, Connection[]>();
  private readonly perKey: number;
  private count = 0;

  constructor({ perKey }: { perKey: number }) {
    this.perKey = perKey;
  }

  get size(): number {
    return this.count;
  }

  take(key: string): Connection | null {
    for (let next = this.idle.get(key)?.at(-1); next; next = this.idle.get(key)?.at(-1)) {
      this.remove(key, next);
      if (next.alive) return next;
    }
    return null;
  }

  put(key: string, connection: Connection): void {
    const connections = this.idle.get(key) ?? [];
    if (connections.length >= this.perKey) return connection.close(false);
    this.idle.set(key, connections);
    connections.push(connection);
    connection.onClose = () => this.remove(key, connection);
    this.count += 1;
  }

  /** Closes an idle connection to make room for a new one. */
  dropOne(): void {
    for (const [key, [oldest]] of this.idle) {
      if (!oldest) continue;
      this.remove(key, oldest);
      return oldest.close(false);
    }
  }

  close(): void {
    for (const connections of this.idle.values()) for (const connection of connections) connection.close(false);
    this.idle.clear();
    this.count = 0;
  }

  private remove(key: string, connection: Connection): void {
    const connections = this.idle.get(key) ?? [];
    const at = connections.indexOf(connection);
    if (at === -1) return;
    connections.splice(at, 1);
    if (connections.length === 0) this.idle.delete(key);
    connection.onClose = null;
    this.count -= 1;
  }
}
