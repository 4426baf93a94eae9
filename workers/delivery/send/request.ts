import type { Dispatcher } from 'undici';
import { serverNow } from '../../../src/platform/clock.ts';

export interface SendRequest {
  endpointId: string;
  url: string;
  body: Buffer;
  /** A function is called when all is ready to be written, so that a signature carries the time of sending. */
  headers: Record<string, string> | ((timestampSeconds: number) => Record<string, string>);
  deadlineMs?: number;
  /** On `performance.now()`'s clock: past it, nothing may be written any more. */
  notAfter?: number;
}
export interface ComposedRequest {
  headers: Record<string, string>;
  options: Dispatcher.DispatchOptions;
}

const UNSAFE = /[^\t\x20-\x7e]/;

/** What undici is told to write, and the headers as they then stand on the wire. */
export const composeRequest = (url: URL, userAgent: string, { body, headers }: SendRequest): ComposedRequest => {
  const own = typeof headers === 'function' ? headers(Math.floor(serverNow() / 1000)) : headers;
  // undici writes the first two and the last itself, in these letters and places.
  const all: Record<string, string> = {
    host: url.host,
    connection: 'keep-alive',
    'User-Agent': userAgent,
    'Accept-Encoding': 'identity',
    ...own,
    'content-length': String(body.length),
  };
  // undici refuses line breaks, but lets bytes past ASCII through.
  for (const value of Object.values(all)) if (UNSAFE.test(value)) throw new Error('a header cannot be sent');
  const path = url.pathname + url.search;
  return { headers: all, options: { method: 'POST', path, headers: all, body } };
};
