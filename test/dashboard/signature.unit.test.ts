import { expect, test } from 'vitest';
import { verify } from '../../dashboard/src/pages/webhooks/signature.ts';
import { newWebhookSecret, signEvent } from '../../src/events/signature.ts';

const NOW = 1_719_410_000;
const BODY = '{"event":"message.received","text":"ü"}';
const secret = newWebhookSecret();
const signed = (secrets = [secret], timestamp = NOW) => signEvent({ body: BODY, secrets, timestamp });

test('the verifier accepts the service’s signatures, also with two secrets', async () => {
  const verdicts = await Promise.all([
    verify({ header: signed(), body: BODY, secret }, NOW + 10),
    verify({ header: `X-Factory-Signature: ${signed()}`, body: BODY, secret }, NOW),
    verify({ header: signed([newWebhookSecret(), secret]), body: BODY, secret }, NOW),
  ]);

  expect(verdicts.map(({ ok, title }) => [ok, title])).toEqual(verdicts.map(() => [true, 'The signature is right']));
});

test.each([
  ['another secret', { secret: newWebhookSecret() }, /secret, the body or the time differs/],
  ['another body', { body: BODY.replace('ü', 'u') }, /secret, the body or the time differs/],
  ['a line break at the end of the body', { body: `${BODY}\n` }, /extra whitespace/],
  ['a reformatted body', { body: JSON.stringify(JSON.parse(BODY), null, 2) }, /reformatted/],
  ['a secret without its prefix', { secret: secret.replace('whsec_', '') }, /whsec_/],
  ['a secret with a space', { secret: ` ${secret}` }, /spaces around/],
  ['a header without a time', { header: signed().replace(/t=\d+,/, '') }, /no time/],
  ['a header without a signature', { header: `t=${NOW}` }, /no signature/],
  ['a header as the dashboard shows it', { header: `t=${NOW},v1=[redacted]` }, /hides the signature/],
])('the signature check fails for %s and shows the reason', async (_name, change, why) => {
  const verdict = await verify({ header: signed(), body: BODY, secret, ...change }, NOW);

  expect(verdict.ok).toBe(false);
  expect(verdict.why).toMatch(why);
});

test('an old correct signature is reported as correct but expired', async () => {
  const verdict = await verify({ header: signed(), body: BODY, secret }, NOW + 3600);

  expect(verdict).toMatchObject({ ok: true, title: 'The signature is right, but not fresh' });
  expect(verdict.why).toContain('60 minutes old');
});
