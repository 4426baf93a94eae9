import type { Secret } from '../../parts/secret.tsx';
import type { NewApiKey } from '../../types.ts';

const sampleFor = (apiKey: string): string =>
  [
    `curl ${window.location.origin}/api/v1/chat \\`,
    `  -H 'Authorization: Bearer ${apiKey}' \\`,
    `  -H 'Content-Type: application/json' \\`,
    `  -d '{"session_id":"visitor-42","message":"Hello"}'`,
  ].join('\n');

export const keySecretOf = ({ key, apiKey }: NewApiKey): Secret => ({
  title: `API key “${key.name}”`,
  label: 'API key',
  value: apiKey,
  sample: { label: 'Try it in a terminal', text: sampleFor(apiKey) },
});
