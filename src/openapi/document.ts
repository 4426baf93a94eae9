import { createDocument } from 'zod-openapi';
import { VERSION } from '../platform/version.ts';
import { apiPaths } from './paths.ts';
import { eventWebhooks } from './webhooks.ts';

const DESCRIPTION = `An assistant that answers visitors' messages and groups them into conversations.

Every response that is not 2xx is \`{"error": {"code", "message", "field"?, "details"?, "requestId"}}\`; \`field\` is the first
wrong field. An unknown path gets 404 \`not_found\`; a wrong method gets 405 \`method_not_allowed\` with \`Allow\`. HEAD
works wherever GET does. Bytes that are not an HTTP request get 400 \`malformed_request\`, 408 \`request_timeout\` or 431
\`headers_too_large\`.

Checks run in this order: 404 (channel), 401, 429, 413, 422. Failing requests (401, unknown assistant) have a limit for each
client address; above it, only failing requests get 429. Unknown fields of a request are ignored. New fields of a response come only with a new
version.`;

const bearer = (description: string) => ({ type: 'http', scheme: 'bearer', description }) as const;

/** The whole API as an OpenAPI 3.1 document, built once at the start from the schemas that the code uses. */
export const createApiDocument = ({ serverUrl = '/' }: { serverUrl?: string | undefined } = {}) =>
  createDocument({
    openapi: '3.1.1',
    info: { title: 'Parley', version: VERSION, description: DESCRIPTION, license: { name: 'MIT', identifier: 'MIT' } },
    servers: [{ url: serverUrl }],
    tags: [
      { name: 'Chat', description: 'Send visitors’ messages and get replies.' },
      { name: 'Conversations', description: 'Read, escalate and erase conversations.' },
      { name: 'Events', description: 'The events that an endpoint receives.' },
      { name: 'Operation', description: 'Health, metrics and this document.' },
      {
        name: 'Operators',
        description:
          'The API of the dashboard. Changes requested by pages of other sites are refused. Programs use an operator token.',
      },
    ],
    paths: apiPaths,
    webhooks: eventWebhooks,
    components: {
      securitySchemes: {
        apiKey: bearer('An API key of one assistant. For servers only; shown once, when created.'),
        verifyToken: bearer('The channel’s verify token, if it has one.'),
        session: {
          type: 'apiKey',
          in: 'cookie',
          name: '__Host-parley',
          description: 'Set by `signIn`. Without TLS, its name is `parley`.',
        },
        operatorToken: bearer(
          'For programs: `op_…`, created by an owner in the dashboard or with `npm run admin -- token create`. Its scope is ' +
            '`read` (only GET) or `manage`, for all assistants or some.',
        ),
        metricsToken: bearer('`METRICS_TOKEN` of the service.'),
      },
    },
  });

export type ApiDocument = ReturnType<typeof createApiDocument>;
