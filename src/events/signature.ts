import { createHmac, randomBytes } from 'node:crypto';

const PREFIX = 'whsec_';

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

/**
 * The headers of Standard Webhooks (https://www.standardwebhooks.com), one signature for each secret. The key is what
 * follows `whsec_`, decoded. Node decodes older secrets too, which are in base64url.
 */
export const standardHeaders = ({ body, secrets, timestamp, id }: SignedEvent & { id: string }) => ({
  'webhook-id': id,
  'webhook-timestamp': String(timestamp),
  'webhook-signature': secrets
    .map((secret) => {
      const hmac = createHmac('sha256', Buffer.from(secret.slice(PREFIX.length), 'base64'));
      return `v1,${hmac.update(`${id}.${timestamp}.`).update(body).digest('base64')}`;
    })
    .join(' '),
});

/** In the form of Standard Webhooks, so that its libraries take the secret as it is shown. */
export const newWebhookSecret = (): string => `${PREFIX}${randomBytes(32).toString('base64')}`;
