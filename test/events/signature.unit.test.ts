import { describe, expect, it } from 'vitest';
import { newWebhookSecret, signEvent } from '../../src/events/signature.ts';

const secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwRZ0mSkAg3aI';
const timestamp = 1767225600;
const body = '{"event":"webhook.test","payload":{"ping":"pong"}}';

describe('a signature', () => {
  it('equals that of printf "%s" "$t.$body" | openssl dgst -sha256 -hmac "$secret"', () => {
    expect(signEvent({ body, secrets: [secret], timestamp })).toBe(
      `t=${timestamp},v1=cded15bdff5d93ddb5b662383bd42f1013da18b8b072d70c1e7868d86fa9147f`,
    );
  });

  it('is the same for text and for its bytes', () => {
    const text = 'Grüße 👋';
    const secrets = [secret];
    expect(signEvent({ body: text, secrets, timestamp })).toBe(
      signEvent({ body: Buffer.from(text), secrets, timestamp }),
    );
  });

  it('names both secrets of a rotation, the new one first', () => {
    const other = newWebhookSecret();
    const [, own] = signEvent({ body, secrets: [secret], timestamp }).split(',');
    const [, others] = signEvent({ body, secrets: [other], timestamp }).split(',');
    expect(signEvent({ body, secrets: [other, secret], timestamp })).toBe(`t=${timestamp},${others},${own}`);
  });

  it('is refused without a secret', () => {
    expect(() => signEvent({ body, secrets: [], timestamp })).toThrow('at least one secret');
  });
});

it('a new secret is whsec_ and 32 random bytes in base64, as Standard Webhooks has it', () => {
  const secrets = Array.from({ length: 100 }, newWebhookSecret);
  for (const one of secrets) expect(one).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
  expect(new Set(secrets).size).toBe(100);
});
