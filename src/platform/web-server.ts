import { readFileSync } from 'node:fs';
import { createServer, type RequestListener, type Server } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { Config } from './config.ts';
import { answerMalformed } from './malformed-requests.ts';

const KEEP_ALIVE_MS = 75_000;
const IDLE_SWEEP_MS = 100;
/**
 * Node's check of the Host header is turned off. No code depends on this header, and Node would refuse a request
 * without it by an answer with an empty body.
 */
const OPTIONS = { requireHostHeader: false };

/** Plain HTTP, or TLS 1.3 only if a certificate is configured (docs/contract.md, TLS). */
export const createWebServer = (
  { TLS_CERT_FILE, TLS_KEY_FILE }: Pick<Config, 'TLS_CERT_FILE' | 'TLS_KEY_FILE'>,
  listener: RequestListener,
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
  answerMalformed(server);
  return server;
};

export const listen = (server: Server, { host, port }: { host: string; port: number }): Promise<number> =>
  new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () => {
      server.off('error', reject);
      resolve((server.address() as AddressInfo).port);
    });
  });

/** Lets requests in flight end. Idle connections are closed immediately, all others after `deadlineMs`. */
export const closeWebServer = (server: Server, deadlineMs: number): Promise<void> =>
  new Promise((resolve) => {
    const sweep = setInterval(() => server.closeIdleConnections(), IDLE_SWEEP_MS);
    const cut = setTimeout(() => server.closeAllConnections(), deadlineMs);
    server.close(() => {
      clearInterval(sweep);
      clearTimeout(cut);
      resolve();
    });
    server.closeIdleConnections();
  });
