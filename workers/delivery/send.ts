import { createSecureContext } from 'node:tls';
import { guardedLookup, type Resolve } from '../../src/webhooks/address-guard.ts';
import { Attempt, type AttemptSettings } from './send/attempt.ts';
import type { Dial } from './send/open.ts';
import { createPool } from './send/pool.ts';
import type { SendRequest } from './send/request.ts';
import type { SendResult } from './send/result.ts';
import { TIMING } from '../../src/platform/timing.ts';

export type { SendRequest } from './send/request.ts';
export { ERROR_KINDS, type ErrorKind } from './send/failure.ts';
export type { SendResult, Timings } from './send/result.ts';

export interface SenderOptions {
  userAgent: string;
  allowPrivate: boolean;
  /** The maximum number of idle connections that are kept for an endpoint. */
  perEndpointConnections: number;
  /** Above this number of sockets, idle connections are closed to make room for new ones. */
  maxSockets?: number;
  deadlineMs?: number;
  bodyGraceMs?: number;
  resolver?: Resolve;
  /** Certificate authorities that replace the public ones. */
  ca?: string;
  /** Opens TCP connections. Tests pass a function that maps public addresses to their own listener. */
  dial?: Dial;
}
export interface Sender {
  /**
   * Sends immediately, so the caller must limit the number in flight. Never throws, and never writes a request twice.
   */
  send: (request: SendRequest) => Promise<SendResult>;
  /** Waits for sends in flight. A send that is requested later fails with `shutdown`. */
  close: () => Promise<void>;
}

/**
 * The HTTP client for deliveries. undici only writes the request and reads the response. This module opens the socket
 * and sets the deadlines, so that no redirect is followed and no request is repeated.
 */
export const createSender = (options: SenderOptions): Sender => {
  const { perEndpointConnections, maxSockets = 512, resolver, allowPrivate } = options;
  const pool = createPool({ perKey: perEndpointConnections });
  const settings: AttemptSettings = {
    userAgent: options.userAgent,
    allowPrivate,
    deadlineMs: options.deadlineMs ?? TIMING.deliveryDeadlineMs,
    bodyGraceMs: options.bodyGraceMs ?? TIMING.bodyGraceMs,
    lookup: guardedLookup({ allowPrivate, resolver }),
    // Created once, because creation loads all certificate authorities.
    secureContext: createSecureContext({ minVersion: 'TLSv1.3', ...(options.ca && { ca: options.ca }) }),
    dial: options.dial,
    // Sends in flight take precedence over idle connections.
    makeRoom: () => active + pool.size > maxSockets && pool.dropOne(),
  };
  let active = 0;
  let drained: (() => void) | null = null;
  let closed: Promise<void> | null = null;

  const send = (request: SendRequest): Promise<SendResult> =>
    new Promise((resolve) => {
      if (closed) return new Attempt(request, settings, pool, resolve).settle('shutdown');
      active += 1;
      const settled = (result: SendResult) => {
        active -= 1;
        resolve(result);
        if (active === 0) drained?.();
      };
      new Attempt(request, settings, pool, settled).start();
    });

  const finishAll = async (): Promise<void> => {
    if (active > 0) {
      await new Promise<void>((resolve) => {
        drained = resolve;
      });
    }
    pool.close();
  };

  return { send, close: () => (closed ??= finishAll()) };
};
