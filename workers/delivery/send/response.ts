import type { IncomingHttpHeaders } from 'node:http';
import type { Header } from '../../../src/deliveries/delivery.ts';

const MAX_BODY_BYTES = 16 * 1024;
const MAX_HEADER_BYTES = 16 * 1024;

/** The stored part of a response. Only its status decides the outcome. The rest is for operators. */
export class KeptResponse {
  /** 0 until a final status has been read. */
  status = 0;
  headers: Header[] = [];
  truncated = false;
  private body: Buffer[] = [];
  private bytes = 0;

  start(status: number, headers: IncomingHttpHeaders): void {
    this.status = status;
    let kept = 0;
    for (const [name, values = ''] of Object.entries(headers)) {
      for (const value of [values].flat()) {
        kept += name.length + value.length;
        if (kept > MAX_HEADER_BYTES) return;
        this.headers.push({ name, value });
      }
    }
  }

  /** Adds bytes of the body. Returns false once the body exceeds the limit. */
  push(bytes: Buffer): boolean {
    const room = MAX_BODY_BYTES - this.bytes;
    const kept = bytes.subarray(0, room);
    if (kept.length > 0) this.body.push(kept);
    this.bytes += kept.length;
    if (bytes.length > room) this.truncated = true;
    return !this.truncated;
  }

  /** The body as text. Invalid UTF-8 becomes U+FFFD. A character that was cut at the limit is dropped. */
  text(): string {
    const bytes = Buffer.concat(this.body);
    if (!this.truncated) return bytes.toString();
    return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes, { stream: true });
  }
}
