/**
 * Reads one HTTP/1.x response from bytes nobody vouches for. The status decides the delivery, so the head must be
 * whole and sane; what follows is kept as far as it goes, and any oddity in it only costs the connection its reuse.
 */
const MAX_HEAD_BYTES = 32 * 1024;
const MAX_KEPT_HEADER_BYTES = 16 * 1024;
const MAX_LINE_BYTES = 1024;
export const MAX_BODY_BYTES = 16 * 1024;

const STATUS_LINE = /^HTTP\/1\.([01]) +([1-9]\d\d)(?: |$)/;
const HEADER_NAME = /^[\w!#$%&'*+.^`|~-]+$/;
const LENGTH = /^\d{1,15}$/;
const CHUNK_SIZE = /^([\da-f]{1,12})[\t ]*(?:;|$)/i;
const SERVER_CLOSES_SOON = /(?:^|[,\s])timeout=[01](?:$|\D)/i;
const NOTHING: Buffer = Buffer.alloc(0);

type Framing = 'head' | 'length' | 'chunk_size' | 'chunk' | 'chunk_end' | 'trailers' | 'until_close' | 'done';

export class ResponseReader {
  /** 0 until a final (not 1xx) head has been read. */
  status = 0;
  headers: Record<string, string> = {};
  truncated = false;
  reusable = true;
  failure: string | null = null;
  private framing: Framing = 'head';
  private left = 0;
  private held: Buffer = NOTHING;
  private headBytes = 0;
  private body: Buffer[] = [];
  private bodyBytes = 0;

  get done(): boolean {
    return this.framing === 'done';
  }

  push(bytes: Buffer): void {
    let rest = bytes;
    while (rest.length > 0 && this.framing !== 'done') {
      if (this.framing === 'head') rest = this.pushHead(rest);
      else if (this.framing === 'length' || this.framing === 'chunk') rest = this.pushCounted(rest);
      else if (this.framing === 'until_close') rest = this.keep(rest, rest.length);
      else rest = this.pushLine(rest);
    }
    // Bytes past the end would be read as the answer to the next request.
    if (rest.length > 0) this.reusable = false;
  }

  /** The peer will say no more. */
  end(): void {
    this.reusable = false;
    if (this.framing === 'done') return;
    if (this.status === 0) this.failure ??= 'closed before a whole response';
    this.truncated ||= this.status !== 0 && this.framing !== 'until_close';
    this.framing = 'done';
  }

  /** Enough has been read, or waited for. */
  cut(): void {
    this.truncated = true;
    this.reusable = false;
    this.framing = 'done';
  }

  /** Invalid UTF-8 becomes U+FFFD, except for a character that only the cap has cut. */
  text(): string {
    const bytes = this.body.length === 1 ? (this.body[0] ?? NOTHING) : Buffer.concat(this.body);
    return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes, { stream: this.truncated });
  }

  private fail(reason: string): Buffer {
    this.failure = reason;
    this.reusable = false;
    this.framing = 'done';
    return NOTHING;
  }

  private pushHead(bytes: Buffer): Buffer {
    const from = Math.max(0, this.held.length - 2);
    const head = this.held.length === 0 ? bytes : Buffer.concat([this.held, bytes]);
    // An SSH or SMTP greeting would otherwise be waited on until the deadline.
    if (!'HTTP/'.startsWith(head.toString('latin1', 0, 5))) return this.fail('not an HTTP/1 response');
    const end = endOfHead(head, from);
    if (this.headBytes + (end === -1 ? head.length : end) > MAX_HEAD_BYTES) return this.fail('headers too large');
    if (end === -1) {
      this.held = head;
      return NOTHING;
    }
    this.held = NOTHING;
    this.headBytes += end;
    this.readHead(head.toString('latin1', 0, end));
    return head.subarray(end);
  }

  private readHead(text: string): void {
    const lines = text.split('\n');
    const [, minor, code] = STATUS_LINE.exec((lines[0] ?? '').trimEnd()) ?? [];
    if (code === undefined) return void this.fail('not an HTTP/1 response');
    const status = Number(code);
    if (status < 200 && status !== 101) return; // an interim response: the final one follows
    const headers = this.readHeaders(lines);
    this.status = status;
    this.headers = headers;
    const persistent = minor === '1' ? !/\bclose\b/i.test(headers.connection ?? '') : false;
    if (!persistent || SERVER_CLOSES_SOON.test(headers['keep-alive'] ?? '')) this.reusable = false;
    this.frame(status, headers['transfer-encoding'], headers['content-length']);
  }

  private readHeaders(lines: string[]): Record<string, string> {
    const headers: Record<string, string> = {};
    let kept = 0;
    for (const line of lines.slice(1)) {
      const colon = line.indexOf(':');
      const name = line.slice(0, Math.max(0, colon)).toLowerCase();
      if (!HEADER_NAME.test(name)) {
        if (line.trim() !== '') this.reusable = false;
        continue;
      }
      kept += line.length;
      if (kept > MAX_KEPT_HEADER_BYTES) {
        // The framing may be among what is left out.
        this.reusable = false;
        break;
      }
      const value = line.slice(colon + 1).trim();
      // A header may be called "constructor".
      headers[name] = Object.hasOwn(headers, name) ? `${headers[name]}, ${value}` : value;
    }
    return headers;
  }

  private frame(status: number, encoding: string | undefined, length: string | undefined): void {
    if (status === 204 || status === 304 || status === 101) {
      if (status === 101 || encoding !== undefined || (length ?? '0') !== '0') this.reusable = false;
      this.framing = 'done';
    } else if (encoding !== undefined) {
      if (length !== undefined) this.reusable = false;
      this.framing = /(?:^|,)\s*chunked$/i.test(encoding) ? 'chunk_size' : 'until_close';
    } else if (length !== undefined && LENGTH.test(length)) {
      this.left = Number(length);
      this.framing = this.left === 0 ? 'done' : 'length';
    } else {
      this.framing = 'until_close';
    }
    if (this.framing === 'until_close') this.reusable = false;
  }

  private pushCounted(bytes: Buffer): Buffer {
    const counted = Math.min(this.left, bytes.length);
    const rest = this.keep(bytes, counted);
    if (this.framing === 'done') return rest;
    this.left -= counted;
    if (this.left === 0) this.framing = this.framing === 'length' ? 'done' : 'chunk_end';
    else if (this.framing === 'length' && this.bodyBytes === MAX_BODY_BYTES) this.cut();
    return rest;
  }

  private keep(bytes: Buffer, count: number): Buffer {
    const room = MAX_BODY_BYTES - this.bodyBytes;
    const part = bytes.subarray(0, Math.min(count, room));
    if (part.length > 0) this.body.push(part);
    this.bodyBytes += part.length;
    if (count > room) this.cut();
    return bytes.subarray(count);
  }

  private pushLine(bytes: Buffer): Buffer {
    const newline = bytes.indexOf(10);
    const part = newline === -1 ? bytes : bytes.subarray(0, newline + 1);
    this.held = Buffer.concat([this.held, part]);
    if (this.held.length > MAX_LINE_BYTES) this.cut();
    else if (newline !== -1) this.readLine(this.held.toString('latin1').trimEnd());
    return bytes.subarray(part.length);
  }

  private readLine(line: string): void {
    this.held = NOTHING;
    if (this.framing === 'trailers') {
      if (line === '') this.framing = 'done';
      return;
    }
    if (this.framing === 'chunk_end') {
      if (line !== '') this.cut();
      else this.framing = 'chunk_size';
      return;
    }
    const [, hex] = CHUNK_SIZE.exec(line) ?? [];
    if (hex === undefined) return this.cut();
    this.left = Number.parseInt(hex, 16);
    this.framing = this.left === 0 ? 'trailers' : 'chunk';
  }
}

/** Just past the empty line, or -1. A bare line feed counts as a line's end, as RFC 9112 permits. */
const endOfHead = (bytes: Buffer, from: number): number => {
  for (let at = bytes.indexOf(10, from); at !== -1; at = bytes.indexOf(10, at + 1)) {
    if (bytes[at + 1] === 10) return at + 2;
    if (bytes[at + 1] === 13 && bytes[at + 2] === 10) return at + 3;
  }
  return -1;
};
