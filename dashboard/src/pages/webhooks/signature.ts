const FRESH_S = 300;

export type Verdict = { ok: boolean; title: string; why: string };

const hex = (bytes: ArrayBuffer): string =>
  [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, '0')).join('');

const sign = async (secret: string, text: string): Promise<string> => {
  const encoder = new TextEncoder();
  const algorithm = { name: 'HMAC', hash: 'SHA-256' };
  const key = await crypto.subtle.importKey('raw', encoder.encode(secret), algorithm, false, ['sign']);
  return hex(await crypto.subtle.sign('HMAC', key, encoder.encode(text)));
};

const compactJson = (text: string): string | null => {
  try {
    return JSON.stringify(JSON.parse(text));
  } catch {
    return null;
  }
};

/** Explains a wrong signature: tries common mistakes until one of them produces the given signature. */
const findMistake = async (
  timestamp: string,
  signatures: string[],
  { body, secret }: Pasted,
): Promise<string | null> => {
  const compact = compactJson(body);
  const tries: [words: string, body: string, secret: string][] = [
    ['The body has extra whitespace at its start or end. Use the exact bytes received.', body.trim(), secret],
    ['The secret has spaces around it.', body, secret.trim()],
    ['Both the body and the secret have spaces around them.', body.trim(), secret.trim()],
    ['The secret is incomplete: it must start with “whsec_”.', body, `whsec_${secret.trim()}`],
    ...(compact === null
      ? []
      : [
          [
            'The body was reformatted. Check the raw bytes, before a JSON parser reads them.',
            compact,
            secret.trim(),
          ] as [string, string, string],
        ]),
  ];
  for (const [words, triedBody, triedSecret] of tries) {
    if (triedBody === body && triedSecret === secret) continue;
    if (triedSecret === '') continue;
    if (signatures.includes(await sign(triedSecret, `${timestamp}.${triedBody}`))) return words;
  }
  return null;
};

type Pasted = { header: string; body: string; secret: string };

const wrong = (title: string, why: string): Verdict => ({ ok: false, title, why });

const ageWords = (seconds: number): string =>
  seconds >= 0 ? `${Math.round(seconds / 60)} minutes old` : `${Math.round(-seconds / 60)} minutes ahead of this clock`;

/**
 * Verifies a header, body and secret as a receiver would, and returns the reason for a failure. The check runs in the
 * browser, so none of these values is sent to a server.
 */
export const verify = async (pasted: Pasted, nowS = Date.now() / 1000): Promise<Verdict> => {
  const header = pasted.header.trim().replace(/^x-factory-signature:\s*/i, '');
  const timestamp = /(?:^|,)\s*t=(\d+)/.exec(header)?.[1];
  const signatures = [...header.matchAll(/(?:^|,)\s*v1=([0-9a-f]{64})/gi)].map(([, value = '']) => value.toLowerCase());
  if (timestamp === undefined)
    return wrong('The header is not complete', 'It has no time: it should start with t= and a number.');
  if (header.includes('[redacted]')) {
    return wrong(
      'The signature is not in this header',
      'The dashboard hides the signature. Take the header from your server’s log.',
    );
  }
  if (signatures.length === 0) {
    return wrong('The header is not complete', 'It has no signature: v1= and 64 hexadecimal digits are missing.');
  }
  if (!signatures.includes(await sign(pasted.secret, `${timestamp}.${pasted.body}`))) {
    const mistake = await findMistake(timestamp, signatures, pasted);
    return wrong(
      'The signature is wrong',
      mistake ??
        'The secret, the body or the time differs from what was signed. The signed text is t, a dot, and the raw body.',
    );
  }
  const age = nowS - Number(timestamp);
  if (Math.abs(age) > FRESH_S) {
    return {
      ok: true,
      title: 'The signature is right, but not fresh',
      why: `It is ${ageWords(age)}. A receiver should refuse a time more than ${FRESH_S / 60} minutes off: the request may be a replay.`,
    };
  }
  return {
    ok: true,
    title: 'The signature is right',
    why: 'Header, body and secret belong together, and the time is fresh.',
  };
};
