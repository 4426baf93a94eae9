import { createDocument } from 'zod-openapi';
import { VERSION } from '../platform/version.ts';
import { chatPaths } from './chat.ts';
import { conversationPaths } from './conversations.ts';
import { operationPaths } from './operations.ts';
import { operatorPaths } from './operator.ts';
import { eventWebhooks } from './webhooks.ts';

const DESCRIPTION = `An assistant that answers visitors' messages and groups them into conversations.

Every answer that is not 2xx is \`{"error": {"code", "message", "field"?, "details"?, "requestId"}}\`; \`field\` is the first
wrong field. An unknown path is 404 \`not_found\`, another method 405 \`method_not_allowed\` with \`Allow\`; HEAD works
where GET does. Bytes that never became an HTTP request get 400 \`malformed_request\`, 408 \`request_timeout\` or 431
\`headers_too_large\`.

Checks come in this order: 404 (channel), 401, 429, 413, 422. Requests that fail at the door have a limit for each client
address, which turns only failing requests into 429. Unknown fields of a request are ignored; a response may only get new
ones in a version that says so.`;

const bearer = (description: string) => ({ type: 'http', scheme: 'bearer', description }) as const;

/** The whole API as OpenAPI 3.1, from the schemas the code itself uses. Built once, at start. */
export const createApiDocument = ({ serverUrl = '/' }: { serverUrl?: string | undefined } = {}) =>
  createDocument({
    openapi: '3.1.1',
    info: { title: 'Parley', version: VERSION, description: DESCRIPTION, license: { name: 'MIT', identifier: 'MIT' } },
    servers: [{ url: serverUrl }],
    tags: [
      { name: 'Chat', description: 'The ways in.' },
      { name: 'Conversations', description: 'What was said, and whose it is.' },
      { name: 'Events', description: 'What a customer’s server is told.' },
      { name: 'Operation', description: 'For those who run the service.' },
      { name: 'Operators', description: 'What the dashboard calls. A change from a page of another site is refused.' },
    ],
    paths: { ...chatPaths, ...conversationPaths, ...operationPaths, ...operatorPaths },
    webhooks: eventWebhooks,
    components: {
      securitySchemes: {
        apiKey: bearer('A key of one assistant. For servers only; shown once when it is made.'),
        verifyToken: bearer('Needed only where the channel has one.'),
        session: {
          type: 'apiKey',
          in: 'cookie',
          name: '__Host-parley',
          description: 'Set by `signIn`. Where callers use no TLS its name is `parley`.',
        },
        metricsToken: bearer('`METRICS_TOKEN` of the service.'),
      },
    },
  });

export type ApiDocument = ReturnType<typeof createApiDocument>;
