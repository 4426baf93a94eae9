import { isIP, type LookupFunction, connect as netConnect, type Socket, type TcpNetConnectOpts } from 'node:net';
import { performance } from 'node:perf_hooks';
import { type SecureContext, connect as tlsConnect, type TLSSocket } from 'node:tls';
import { AddressRefused, isAllowedPeer, socketHost } from '../../../src/webhooks/address-guard.ts';
import { Connection, closeSocket } from './connection.ts';
import type { Phase } from './failure.ts';

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

const secure = (raw: Socket, host: string, { secureContext }: DialSettings): TLSSocket => {
  // TLS does not allow an IP address as server name, and names in certificates have no trailing dot.
  const servername = isIP(host) === 0 ? host.replace(/\.$/, '') : '';
  return tlsConnect({
    socket: raw,
    host,
    servername,
    secureContext,
    ALPNProtocols: ['http/1.1'],
    rejectUnauthorized: true, // explicit, so that NODE_TLS_REJECT_UNAUTHORIZED has no effect
  });
};

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
    const socket = secure(raw, host, settings);
    socket.on('error', (error) => finish(error, null));
    socket.once('secureConnect', () => {
      trace.securedAt = performance.now();
      finish(null, socket);
    });
  });
  return () => finish(new Error('aborted'), null);
};
