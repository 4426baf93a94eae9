import { quoted } from '../../parts/shell-words.ts';
import type { Delivery } from '../../types.ts';

const MADE_BY_CURL = new Set(['host', 'connection', 'content-length', 'x-factory-signature', 'accept-encoding']);

/**
 * The request as a curl command. The command computes a new signature in the shell, because the stored request has no
 * signature and an old one would have expired. The copied text does not contain the secret.
 */
export const curlOf = ({ url, body, requestHeaders }: Delivery): string => {
  const headers = Object.entries(requestHeaders)
    .filter(([name]) => !MADE_BY_CURL.has(name.toLowerCase()))
    .flatMap(([name, value]) => [value].flat().map((one) => `  -H ${quoted(`${name}: ${one}`)} \\`));
  return [
    '# Set WEBHOOK_SECRET to the endpoint’s signing secret. It signs the request again.',
    `body=${quoted(body ?? '')}`,
    't=$(date +%s)',
    `v1=$(printf '%s.%s' "$t" "$body" | openssl dgst -sha256 -hmac "$WEBHOOK_SECRET" | sed 's/^.* //')`,
    `curl -i ${quoted(url ?? '')} \\`,
    ...headers,
    '  -H "X-Factory-Signature: t=$t,v1=$v1" \\',
    '  --data-raw "$body"',
  ].join('\n');
};
