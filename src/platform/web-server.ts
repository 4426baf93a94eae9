import { readFileSync } from 'node:fs';
import { createServer, type RequestListener, type Server, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Config } from './config.ts';
import { answerMalformed } from './malformed-requests.ts';

const KEEP_ALIVE_MS = 75_000;
/**
 * How many connections may wait until the process accepts them. Node's default of 511 overflows in an overload, and a
 * client then waits for seconds until TCP tries again. The kernel limits this number too (`net.core.somaxconn`).
 */
const BACKLOG = 4_096;
const IDLE_SWEEP_MS = 100;
/**
 * Node's check of the Host header is turned off. No code depends on this header, and Node would refuse a request
 * without it by an answer with an empty body.
 */
const OPTIONS = { requireHostHeader: false };

/**
 * From the moment the process drains, each connection ends with its next response: the response says `Connection:
 * close`, so the client opens its next connection elsewhere. A connection that the server closes by itself can break a
 * request that is on its way.
 */
const endConnectionsByResponses = (server: Server, draining: AbortSignal): void => {
  const inFlight = new Set<ServerResponse>();
  server.prependListener('request', (_request, response: ServerResponse) => {
    if (draining.aborted) response.shouldKeepAlive = false;
    inFlight.add(response);
    response.once('close', () => inFlight.delete(response));
  });
  draining.addEventListener('abort', () => {
    for (const response of inFlight) response.shouldKeepAlive = false;
  });
};

const connections = new WeakMap<Server, Set<Socket>>();

/** Node's list of connections lacks those that have not finished their TLS handshake. */
const trackConnections = (server: Server): void => {
  const open = new Set<Socket>();
  connections.set(server, open);
  server.on('connection', (socket: Socket) => {
    open.add(socket);
    socket.once('close', () => open.delete(socket));
  });
};

const cutConnections = (server: Server): void => {
  for (const socket of connections.get(server) ?? []) socket.destroy();
};

/** Plain HTTP, or TLS 1.3 only if a certificate is configured (docs/contract.md, TLS). */
export const createWebServer = (
  { TLS_CERT_FILE, TLS_KEY_FILE }: Pick<Config, 'TLS_CERT_FILE' | 'TLS_KEY_FILE'>,
  listener: RequestListener,
  draining: AbortSignal,
): Server => {
  const server =
    TLS_CERT_FILE && TLS_KEY_FILE
      ? createTlsServer(
          { ...OPTIONS, cert: readFileSync(TLS_CERT_FILE), key: readFileSync(TLS_KEY_FILE), minVersion: 'TLSv1.3' },
          listener,
        )
      : createServer(OPTIONS, listener);
  // The timeout is longer than the idle time of common load balancers, so that none sends a request on a connection
  // that is closing.
  server.keepAliveTimeout = KEEP_ALIVE_MS;
  trackConnections(server);
  answerMalformed(server);
  endConnectionsByResponses(server, draining);
  return server;
};

export const listen = (server: Server, { host, port }: { host: string; port: number }): Promise<number> =>
  new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ port, host, backlog: BACKLOG }, () => {
      server.off('error', reject);
      resolve((server.address() as AddressInfo).port);
    });
  });

type Closing = {
  /** How long the server still accepts connections, so that a load balancer notices the stop before clients do. */
  graceMs: number;
  /** Connections that are still open after this time are cut. */
  cutAfterMs: number;
};

/** Stops accepting connections after the grace time, and lets requests in flight end. */
export const closeWebServer = async (server: Server, { graceMs, cutAfterMs }: Closing): Promise<void> => {
  const cut = setTimeout(() => cutConnections(server), cutAfterMs);
  if (graceMs > 0) await sleep(graceMs);
  await new Promise<void>((resolve) => {
    const sweep = setInterval(() => server.closeIdleConnections(), IDLE_SWEEP_MS);
    server.close(() => {
      clearInterval(sweep);
      clearTimeout(cut);
      resolve();
    });
    server.closeIdleConnections();
  });
};
