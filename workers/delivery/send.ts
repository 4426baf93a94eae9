import { performance } from 'node:perf_hooks';
import { createSecureContext } from 'node:tls';
import { guardedLookup, type Resolve } from '../../src/events/address-guard.ts';
import { Attempt, type AttemptSettings } from './send/attempt.ts';
import type { Dial } from './send/connection.ts';
import { createPool } from './send/pool.ts';
import type { SendRequest } from './send/request.ts';
import type { SendResult } from './send/result.ts';
import { createSlots } from './send/slots.ts';

export type { SendRequest } from './send/request.ts';
export { ERROR_KINDS, type ErrorKind, type SendResult, type Timings } from './send/result.ts';

export interface SenderOptions {
  userAgent: string;
  allowPrivate: boolean;
  perEndpointConnections: number;
  maxSockets?: number;
  deadlineMs?: number;
  bodyGraceMs?: number;
  resolver?: Resolve;
  /** Authorities in place of the public ones. */
  ca?: string;
  /** Opens TCP connections; tests give one that maps public addresses to their own listener. */
  dial?: Dial;
}
export interface Sender {
  /** Never throws and never writes a request twice. Waiting for a free connection is no part of the deadline. */
  send: (request: SendRequest) => Promise<SendResult>;
  /** Lets what is under way end; what has not begun ends `not_sent: shutdown`. */
  close: () => Promise<void>;
}

/**
 * The HTTP client of the deliveries: plain HTTP/1.1 on `net` and `tls`, one request to a socket at a time, nothing
 * followed and nothing repeated. General clients re-send in some corner (a reset stream, a closed idle connection)
 * and do not say whether bytes have left; here that is one line of code, and what is recorded is what was written.
 */
export const createSender = (options: SenderOptions): Sender => {
  const { perEndpointConnections, maxSockets = 512, resolver, allowPrivate } = options;
  const pool = createPool();
  const slots = createSlots({ perEndpoint: perEndpointConnections, total: maxSockets });
  const settings: AttemptSettings = {
    userAgent: options.userAgent,
    allowPrivate,
    deadlineMs: options.deadlineMs ?? 5000,
    bodyGraceMs: options.bodyGraceMs ?? 1000,
    lookup: guardedLookup({ allowPrivate, resolver }),
    // Made once: it reads every authority there is.
    secureContext: createSecureContext({ minVersion: 'TLSv1.3', ...(options.ca && { ca: options.ca }) }),
    dial: options.dial,
    // Of the sockets there may be, those under way come first.
    makeRoom: () => slots.inUse + pool.size > maxSockets && pool.dropOne(),
  };
  const waiting = new Set<() => void>();
  let drained: (() => void) | null = null;
  let closing = false;

  const run = (request: SendRequest, settled: (result: SendResult) => void): void => {
    const attempt = new Attempt(request, settings, pool, (result) => {
      settled(result);
      slots.leave(request.endpointId);
      if (closing && slots.inUse === 0) drained?.();
    });
    attempt.start();
  };

  const unsent = (request: SendRequest, settled: (result: SendResult) => void, kind: 'too_late' | 'shutdown') =>
    new Attempt(request, settings, pool, settled).settle(kind);

  const send = (request: SendRequest): Promise<SendResult> =>
    new Promise((resolve) => {
      if (closing) return unsent(request, resolve, 'shutdown');
      let timer: NodeJS.Timeout | undefined;
      const start = () => {
        clearTimeout(timer);
        waiting.delete(abandon);
        run(request, resolve);
      };
      const abandon = () => {
        if (!slots.quit(request.endpointId, start)) return;
        clearTimeout(timer);
        waiting.delete(abandon);
        unsent(request, resolve, closing ? 'shutdown' : 'too_late');
      };
      if (slots.enter(request.endpointId, start)) return;
      waiting.add(abandon);
      if (request.notAfter !== undefined)
        timer = setTimeout(abandon, Math.max(0, request.notAfter - performance.now()));
    });

  const finishAll = async (): Promise<void> => {
    closing = true;
    for (const abandon of waiting) abandon();
    if (slots.inUse > 0) {
      await new Promise<void>((resolve) => {
        drained = resolve;
      });
    }
    pool.close();
  };
  let closed: Promise<void> | null = null;

  return { send, close: () => (closed ??= finishAll()) };
};
