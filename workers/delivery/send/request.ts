import type { Dispatcher } from 'undici';
import { serverNow } from '../../../src/platform/clock.ts';

export interface SendRequest {
  endpointId: string;
  url: string;
  body: Buffer;
  /**
   * The headers, or a function that returns them. The function is called immediately before the write, so that the
   * signature contains the time of sending.
   */
  headers: Record<string, string> | ((timestampSeconds: number) => Record<string, string>);
  deadlineMs?: number;
  /** Nothing may be written after this time, on the clock of `performance.now()`. */
  notAfter?: number;
}
export interface ComposedRequest {
  headers: Record<string, string>;
  options: Dispatcher.DispatchOptions;
}

const UNSAFE = /[^\t\x20-\x7e]/;

/** The request for undici, and its headers as they appear on the wire. */
export const composeRequest = (url: URL, userAgent: string, { body, headers }: SendRequest): ComposedRequest => {
  const own = typeof headers === 'function' ? headers(Math.floor(serverNow() / 1000)) : headers;
  // undici itself writes the first two headers and the last one, in this order.
  const all: Record<string, string> = {
    host: url.host,
    connection: 'keep-alive',
    'User-Agent': userAgent,
    'Accept-Encoding': 'identity',
    ...own,
    'content-length': String(body.length),
  };
  // Checked, because undici accepts non-ASCII characters in headers.
  for (const value of Object.values(all)) if (UNSAFE.test(value)) throw new Error('a header cannot be sent');
  const path = url.pathname + url.search;
  return { headers: all, options: { method: 'POST', path, headers: all, body } };
};
