import { createHmac, randomBytes } from 'node:crypto';

interface SignedEvent {
  body: Buffer | string;
  /** The list has one secret. During the overlap of a rotation it has two, the new secret first. */
  secrets: readonly string[];
  timestamp: number;
}

/** The value of `X-Factory-Signature`. The HMAC key is the whole secret as it was shown, including `whsec_`. */
export const signEvent = ({ body, secrets, timestamp }: SignedEvent): string => {
  if (secrets.length === 0) throw new Error('an event is signed with at least one secret');
  let header = `t=${timestamp}`;
  for (const secret of secrets) {
    header += `,v1=${createHmac('sha256', secret).update(`${timestamp}.`).update(body).digest('hex')}`;
  }
  return header;
};

export const newWebhookSecret = (): string => `whsec_${randomBytes(32).toString('base64url')}`;
