import { parseHead } from './response-head.ts';

const MAX_HEAD_BYTES = 32 * 1024;
const MAX_LINE_BYTES = 1024;
export const MAX_BODY_BYTES = 16 * 1024;

const CHUNK_SIZE = /^([\da-f]{1,12})[\t ]*(?:;|$)/i;
const NOTHING: Buffer = Buffer.alloc(0);

type Part = 'head' | 'length' | 'chunk_size' | 'chunk' | 'chunk_end' | 'trailers' | 'until_close' | 'done';

/**
 * Reads one HTTP/1 response from bytes nobody vouches for. The status decides the delivery, so the head must be whole
 * and sane; what follows is kept as far as it goes, and any oddity in it only costs the connection its reuse.
 */
export class ResponseReader {
  /** 0 until a final (not 1xx) head has been read. */
  status = 0;
  headers: Record<string, string> = {};
  truncated = false;
  reusable = true;
  failure: string | null = null;
  private part: Part = 'head';
  private left = 0;
  private held = NOTHING;
  private headBytes = 0;
  private body: Buffer[] = [];
  private bodyBytes = 0;

  get done(): boolean {
    return this.part === 'done';
  }

  push(bytes: Buffer): void {
    let rest = bytes;
    while (rest.length > 0 && this.part !== 'done') {
      if (this.part === 'head') rest = this.pushHead(rest);
      else if (this.part === 'length' || this.part === 'chunk') rest = this.pushCounted(rest);
      else if (this.part === 'until_close') rest = this.keep(rest, rest.length);
      else rest = this.pushLine(rest);
    }
    // Bytes past the end would be read as the answer to the next request.
    if (rest.length > 0) this.reusable = false;
  }

  /** The peer will say no more. */
  end(): void {
    this.reusable = false;
    if (this.part === 'done') return;
    if (this.status === 0) this.failure = 'closed before a whole response';
    else if (this.part !== 'until_close') this.truncated = true;
    this.part = 'done';
  }

  /** Enough has been read, or waited for. */
  cut(): void {
    this.truncated = true;
    this.reusable = false;
    this.part = 'done';
  }

  /** Invalid UTF-8 becomes U+FFFD, except for a character that only the cap has cut. */
  text(): string {
    const bytes = this.body.length === 1 ? (this.body[0] ?? NOTHING) : Buffer.concat(this.body);
    return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes, { stream: this.truncated });
  }

  private fail(reason: string): Buffer {
    this.failure = reason;
    this.reusable = false;
    this.part = 'done';
    return NOTHING;
  }

  private pushHead(bytes: Buffer): Buffer {
    const from = Math.max(0, this.held.length - 2);
    const head = this.held.length === 0 ? bytes : Buffer.concat([this.held, bytes]);
    // An SSH or SMTP greeting would otherwise be waited on until the deadline.
    if (!'HTTP/'.startsWith(head.toString('latin1', 0, 5))) return this.fail('not an HTTP/1 response');
    const end = endOfHead(head, from);
    this.held = end === -1 ? head : NOTHING;
    if (this.headBytes + (end === -1 ? head.length : end) > MAX_HEAD_BYTES) return this.fail('headers too large');
    if (end === -1) return NOTHING;
    this.headBytes += end;
    this.readHead(head.toString('latin1', 0, end));
    return head.subarray(end);
  }

  private readHead(text: string): void {
    const head = parseHead(text);
    if (!head) return void this.fail('not an HTTP/1 response');
    const { status, headers, reusable, body } = head;
    if (status < 200 && status !== 101) return; // an interim response: the final one follows
    this.status = status;
    this.headers = headers;
    this.reusable = reusable;
    if (body.framing === 'length') this.left = body.length;
    this.part = body.framing === 'none' ? 'done' : body.framing === 'chunked' ? 'chunk_size' : body.framing;
  }

  private pushCounted(bytes: Buffer): Buffer {
    const counted = Math.min(this.left, bytes.length);
    const rest = this.keep(bytes, counted);
    if (this.done) return rest;
    this.left -= counted;
    if (this.left === 0) this.part = this.part === 'length' ? 'done' : 'chunk_end';
    else if (this.part === 'length' && this.bodyBytes === MAX_BODY_BYTES) this.cut();
    return rest;
  }

  private keep(bytes: Buffer, count: number): Buffer {
    const room = MAX_BODY_BYTES - this.bodyBytes;
    const kept = bytes.subarray(0, Math.min(count, room));
    if (kept.length > 0) this.body.push(kept);
    this.bodyBytes += kept.length;
    if (count > room) this.cut();
    return bytes.subarray(count);
  }

  private pushLine(bytes: Buffer): Buffer {
    const newline = bytes.indexOf(10);
    const piece = newline === -1 ? bytes : bytes.subarray(0, newline + 1);
    this.held = Buffer.concat([this.held, piece]);
    if (this.held.length > MAX_LINE_BYTES) this.cut();
    else if (newline !== -1) this.readLine(this.held.toString('latin1').trimEnd());
    return bytes.subarray(piece.length);
  }

  private readLine(line: string): void {
    this.held = NOTHING;
    if (this.part === 'trailers') {
      if (line === '') this.part = 'done';
    } else if (this.part === 'chunk_end') {
      if (line === '') this.part = 'chunk_size';
      else this.cut();
    } else {
      const [, size] = CHUNK_SIZE.exec(line) ?? [];
      if (size === undefined) return this.cut();
      this.left = Number.parseInt(size, 16);
      this.part = this.left === 0 ? 'trailers' : 'chunk';
    }
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
