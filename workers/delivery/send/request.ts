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
  bytes: Buffer;
}

const NAME = /^[\w-]+$/;
const UNSAFE = /[^\t\x20-\x7e]/;

/** The bytes to write, in one piece, and the headers as they stand in them. */
export const composeRequest = (url: URL, userAgent: string, { body, headers }: SendRequest): ComposedRequest => {
  const own = typeof headers === 'function' ? headers(Math.floor(Date.now() / 1000)) : headers;
  const all: Record<string, string> = {
    Host: url.host,
    'User-Agent': userAgent,
    'Accept-Encoding': 'identity',
    ...own,
    'Content-Length': String(body.length),
  };
  let head = `POST ${url.pathname}${url.search} HTTP/1.1\r\n`;
  for (const [name, value] of Object.entries(all)) {
    if (!NAME.test(name) || UNSAFE.test(value)) throw new Error(`header ${name.slice(0, 40)} cannot be sent`);
    head += `${name}: ${value}\r\n`;
  }
  head += '\r\n';
  const bytes = Buffer.allocUnsafe(head.length + body.length);
  bytes.write(head, 0, 'latin1');
  body.copy(bytes, head.length);
  return { headers: all, bytes };
};
