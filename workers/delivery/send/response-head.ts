const MAX_KEPT_BYTES = 16 * 1024;
const STATUS_LINE = /^HTTP\/1\.([01]) +([1-9]\d\d)(?: |$)/;
const HEADER_NAME = /^[\w!#$%&'*+.^`|~-]+$/;
const LENGTH = /^\d{1,15}$/;
const ENDS_CHUNKED = /(?:^|,)\s*chunked$/i;
const SERVER_CLOSES_SOON = /(?:^|[,\s])timeout=[01](?:$|\D)/i;

export interface ResponseHead {
  status: number;
  headers: Record<string, string>;
  /** Another request may follow on this connection, as far as the head tells. */
  reusable: boolean;
  body: { framing: 'none' | 'chunked' | 'until_close' } | { framing: 'length'; length: number };
}

/** Null for what is not the head of an HTTP/1 response. */
export const parseHead = (text: string): ResponseHead | null => {
  const lines = text.split('\n');
  const [, minor, code] = STATUS_LINE.exec((lines[0] ?? '').trimEnd()) ?? [];
  if (code === undefined) return null;
  const status = Number(code);
  const { headers, sound } = readHeaders(lines);
  const body = framingOf(status, headers);
  const ends = minor === '0' || /\bclose\b/i.test(headers.connection ?? '');
  const early = SERVER_CLOSES_SOON.test(headers['keep-alive'] ?? '');
  return { status, headers, body, reusable: sound && !ends && !early && isPlain(status, headers, body.framing) };
};

const readHeaders = (lines: string[]): { headers: Record<string, string>; sound: boolean } => {
  const headers: Record<string, string> = {};
  let sound = true;
  let kept = 0;
  for (const line of lines.slice(1)) {
    const colon = line.indexOf(':');
    const name = line.slice(0, Math.max(0, colon)).toLowerCase();
    if (!HEADER_NAME.test(name)) {
      if (line.trim() !== '') sound = false;
      continue;
    }
    kept += line.length;
    // What is left out may have said how the body ends.
    if (kept > MAX_KEPT_BYTES) return { headers, sound: false };
    const value = line.slice(colon + 1).trim();
    // A header may be called "constructor".
    headers[name] = Object.hasOwn(headers, name) ? `${headers[name]}, ${value}` : value;
  }
  return { headers, sound };
};

const framingOf = (status: number, headers: Record<string, string>): ResponseHead['body'] => {
  if (status === 204 || status === 304 || status === 101) return { framing: 'none' };
  const encoding = headers['transfer-encoding'];
  if (encoding !== undefined) return { framing: ENDS_CHUNKED.test(encoding) ? 'chunked' : 'until_close' };
  const length = headers['content-length'];
  if (length === undefined || !LENGTH.test(length)) return { framing: 'until_close' };
  return length === '0' ? { framing: 'none' } : { framing: 'length', length: Number(length) };
};

/** False where sender and reader might disagree on the end, and a rest be taken for the next answer. */
const isPlain = (status: number, headers: Record<string, string>, framing: string): boolean => {
  const encoding = headers['transfer-encoding'];
  const length = headers['content-length'];
  if (status === 101 || framing === 'until_close') return false;
  if (status === 204 || status === 304) return encoding === undefined && (length ?? '0') === '0';
  return encoding === undefined || length === undefined;
};
