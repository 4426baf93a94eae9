import { createHmac, timingSafeEqual } from 'node:crypto';

export interface VerifyOptions {
  /**
   * The largest allowed difference, in seconds, between the sender's clock and the clock of this machine. It applies in
   * both directions.
   */
  toleranceSeconds?: number;
  /** Unix time in seconds. The default is the system clock. */
  now?: number;
}
export type WebhookRefusal = 'missing_t' | 'missing_v1' | 'stale' | 'mismatch';
export type WebhookVerdict = { ok: true; timestamp: number } | { ok: false; reason: WebhookRefusal };

const TIMESTAMP = /^\d{1,12}$/;

/**
 * Checks the `X-Factory-Signature` of a request. Pass the bytes of the body as they arrived, before any parsing,
 * because JSON that is serialised again may have other bytes. During a rotation, pass both secrets, because the sender
 * signs with both.
 */
export const verifyWebhook = (
  rawBody: Uint8Array | string,
  header: string | readonly string[] | null | undefined,
  secrets: string | readonly string[],
  { toleranceSeconds = 300, now = Date.now() / 1000 }: VerifyOptions = {},
): WebhookVerdict => {
  const keys = typeof secrets === 'string' ? [secrets] : secrets;
  // An empty key is refused, because anyone can sign with it and a missing setting often becomes one.
  if (keys.length === 0 || keys.includes('')) throw new TypeError('verifyWebhook needs the secret of the endpoint');

  const parts = [header ?? []]
    .flat()
    .join(',')
    .split(',')
    .map((part) => part.trim());
  const t = parts.find((part) => part.startsWith('t='))?.slice('t='.length);
  if (t === undefined || !TIMESTAMP.test(t)) return { ok: false, reason: 'missing_t' };
  const given = parts.filter((part) => part.startsWith('v1=')).map((part) => part.slice('v1='.length));
  if (given.every((hex) => hex === '')) return { ok: false, reason: 'missing_v1' };
  const timestamp = Number(t);
  if (!(Math.abs(now - timestamp) <= toleranceSeconds)) return { ok: false, reason: 'stale' };

  let matched = false;
  for (const key of keys) {
    const expected = Buffer.from(createHmac('sha256', key).update(`${t}.`).update(rawBody).digest('hex'));
    // All pairs are compared, so that the time does not reveal which pair matched.
    for (const hex of given) {
      const candidate = Buffer.from(hex);
      if (candidate.length === expected.length && timingSafeEqual(candidate, expected)) matched = true;
    }
  }
  return matched ? { ok: true, timestamp } : { ok: false, reason: 'mismatch' };
};
