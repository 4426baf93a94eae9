import { Stack } from '@mantine/core';
import { Code } from '../../parts/code.tsx';
import { quoted } from '../../parts/shell-words.ts';
import type { Reply } from '../../types.ts';

/** The same turn through the chat API. The key is a placeholder, because stored keys are never shown. */
const curlOf = (sessionId: string, message: string): string =>
  [
    `curl ${quoted(`${window.location.origin}/api/v1/chat`)} \\`,
    `  -H "Authorization: Bearer $API_KEY" \\`,
    `  -H 'Content-Type: application/json' \\`,
    `  --data-raw ${quoted(JSON.stringify({ session_id: sessionId, message }))}`,
  ].join('\n');

/** What a caller of the chat API sends, and what it gets. */
export const AsCaller = ({ sessionId, message, reply }: { sessionId: string; message: string; reply: Reply }) => (
  <Stack gap={6} className="as-caller">
    <span className="dim">Request. $API_KEY stands for a key of this assistant.</span>
    <Code text={curlOf(sessionId, message)} label="request" />
    <span className="dim">Response: 200 OK</span>
    <Code text={JSON.stringify(reply)} label="response" />
  </Stack>
);
