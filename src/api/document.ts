import { STATUS_CODES } from 'node:http';
import * as z from 'zod';
import {
  createDocument,
  type oas32,
  type ZodOpenApiOperationObject,
  type ZodOpenApiPathItemObject,
  type ZodOpenApiPathsObject,
  type ZodOpenApiResponseObject,
  type ZodOpenApiResponsesObject,
} from 'zod-openapi';
import type { PublicOperation } from '../assistants/access.ts';
import { eventOperations } from '../events/http/events.ts';
import { completionOperations } from '../turns/http/completions.ts';
import { chatConversationOperations } from '../conversations/http.ts';
import { chatTurnOperations } from '../turns/http/turn-routes.ts';
import { monitoringOperations } from './monitoring.ts';
import type { Operation } from '../operators/operation.ts';
import { OPERATIONS, OPERATOR_PREFIX } from './operator-routes.ts';
import { ApiError, ErrorBody, type ErrorCode, invalid } from '../platform/process/errors.ts';
import type { Declaration } from '../platform/http/operation.ts';
import { DELIVERY_DEADLINE_MS } from '../platform/process/time-limits.ts';
import { VERSION } from '../platform/process/lifecycle.ts';
import { type WebOperation, webOperations } from '../web-channel/operations.ts';
import { EVENT_KINDS, type EventKind } from '../conversations/event.ts';
import { camelCased, EVENT_BODIES, WIRE_EVENTS } from '../events/wire.ts';

/** Every operation of the public API, for the document and for clients. */
export const PUBLIC_OPERATIONS: PublicOperation[] = [
  chatTurnOperations,
  completionOperations,
  chatConversationOperations,
  eventOperations,
  monitoringOperations,
].flatMap((some) => Object.values<PublicOperation>(some));

/** What the widget calls. */
export const WEB_OPERATIONS: WebOperation[] = Object.values(webOperations);

const EXAMPLE_REQUEST_ID = '0b9e4a52-7f0c-4d7e-9a53-2f6f0e1d8c3b';
const JSON_TYPE = 'application/json';

const wholeNumber = (id: string, description: string) =>
  z
    .string()
    .regex(/^\d+$/)
    .meta({ description, header: { id }, override: { type: 'integer', minimum: 0, pattern: undefined } });

const requestId = {
  'X-Request-Id': z
    .string()
    .meta({ description: 'The caller’s id if well-formed, otherwise a new one.', header: { id: 'RequestId' } }),
};

/** Headers of every answer to a request that a rate limit counted. */
const limits = {
  'X-RateLimit-Limit': wholeNumber('RateLimitLimit', 'Requests allowed within 60 s.'),
  'X-RateLimit-Remaining': wholeNumber('RateLimitRemaining', 'Requests left in this window.'),
  'X-RateLimit-Reset': wholeNumber('RateLimitReset', 'Seconds until the window ends.'),
};

const retryAfter = { 'Retry-After': wholeNumber('RetryAfter', 'Seconds to wait.') };
const challenge = { 'WWW-Authenticate': z.literal('Bearer') };

const HEADERS: Partial<Record<ErrorCode, Record<string, z.ZodType>>> = {
  missing_api_key: challenge,
  invalid_api_key: challenge,
  invalid_verify_token: challenge,
  invalid_visitor_token: challenge,
  rate_limited: { ...limits, ...retryAfter },
  unavailable: retryAfter,
};

const EXAMPLES: Partial<Record<ErrorCode, ApiError>> = {
  validation_failed: invalid('message', 'invalid', 'must not be blank'),
};

/** Describes a rate limit: whether it counts successful requests, and which errors occur after it has counted. */
type Limited = { answers: boolean; errors: readonly ErrorCode[] };

/**
 * An error response that is built from the error itself, so that the document shows what is really sent. The first code
 * decides the headers.
 */
const problem = (codes: ErrorCode[], limited: Limited): ZodOpenApiResponseObject => {
  const errors = codes.map((code) => EXAMPLES[code] ?? new ApiError(code));
  const [first] = codes as [ErrorCode];
  return {
    description: errors.map(({ code, message }) => `\`${code}\`: ${message}`).join('\n\n'),
    headers: z.object({ ...requestId, ...HEADERS[first], ...(limited.errors.includes(first) && limits) }),
    content: {
      [JSON_TYPE]: {
        schema: ErrorBody,
        examples: Object.fromEntries(errors.map((error) => [error.code, { value: error.toBody(EXAMPLE_REQUEST_ID) }])),
      },
    },
  };
};

/** Error responses by status, each with its possible codes. */
const problems = (codes: readonly ErrorCode[], limited: Limited): ZodOpenApiResponsesObject =>
  Object.fromEntries(
    [...Map.groupBy(new Set(codes), (code) => new ApiError(code).status)].map(([status, some]) => [
      String(status),
      problem(some, limited),
    ]),
  );

const usual = (one: Declaration, limited: Limited): ZodOpenApiResponseObject => {
  const counted = { ...requestId, ...(limited.answers && limits) };
  if (!one.answer) return { description: 'Done; no content.', headers: z.object(counted) };
  const { contentType = JSON_TYPE, answer: schema, answerExample: example, stream } = one;
  return {
    description: one.answerDescription ?? STATUS_CODES[200] ?? 'OK',
    headers: z.object({ ...counted, ...one.answerHeaders }),
    content: {
      [contentType]: { schema, ...(example !== undefined && { example }) },
      ...(stream && {
        'text/event-stream': { schema: z.string().meta({ description: stream.description }), example: stream.example },
      }),
    },
  };
};

/** The successful response and the other responses of a declaration. */
const answersOf = (one: Declaration, limited: Limited): ZodOpenApiResponsesObject => {
  const others = Object.entries(one.otherAnswers ?? {}).map(([status, { description, schema, example, ...other }]) => {
    const headers = { ...requestId, ...(limited.answers && limits), ...other.headers };
    const ofError = other.code === undefined ? {} : HEADERS[other.code];
    const content = { [JSON_TYPE]: { schema, ...(example !== undefined && { example }) } };
    return [status, { description, headers: z.object({ ...headers, ...ofError }), content }];
  });
  return {
    [String(one.answer ? (one.status ?? 200) : 204)]: usual(one, limited),
    ...(Object.fromEntries(others) as ZodOpenApiResponsesObject),
  };
};

type Security = Record<string, string[]>[];
type Access = { tag: string; security: Security; limited: Limited; errors: ErrorCode[] };

const paramsOf = ({ path, params }: Declaration): z.ZodObject | undefined => {
  const names = [...path.matchAll(/:(\w+)/g)].map(([, name]) => name as string);
  if (params || names.length === 0) return params;
  return z.object(Object.fromEntries(names.map((name) => [name, z.string()])));
};

const describe = (one: Declaration, { tag, security, limited, errors }: Access): ZodOpenApiOperationObject => {
  const path = paramsOf(one);
  const { headers: header, query, body, bodyExample: example, upload } = one;
  return {
    operationId: one.id,
    summary: one.summary,
    ...(one.description !== undefined && { description: one.description }),
    tags: [tag],
    security,
    ...((path || header || query) && {
      requestParams: { ...(path && { path }), ...(header && { header }), ...(query && { query }) },
    }),
    ...(body && {
      requestBody: {
        ...(!one.bodyOptional && { required: true }),
        content: { 'application/json': { schema: body, ...(example !== undefined && { example }) } },
      },
    }),
    ...(upload && {
      requestBody: {
        required: true,
        description: upload.description,
        content: { 'application/octet-stream': { schema: { type: 'string', format: 'binary' } } },
      },
    }),
    responses: { ...answersOf(one, limited), ...problems(errors, limited) },
  };
};

type Auth = PublicOperation['auth'];

const SECURITY: Record<Auth, Security> = {
  none: [],
  metricsToken: [{ metricsToken: [] }, {}],
  apiKey: [{ apiKey: [] }],
  verifyToken: [{ verifyToken: [] }, {}],
  secretAddress: [],
};

const UNAUTHORIZED: Record<Auth, ErrorCode[]> = {
  none: [],
  metricsToken: [],
  apiKey: ['missing_api_key', 'invalid_api_key'],
  verifyToken: ['invalid_verify_token'],
  secretAddress: ['invalid_verify_token'],
};

const INPUT: ErrorCode[] = ['payload_too_large', 'validation_failed', 'invalid_json'];

const describePublic = (one: PublicOperation): ZodOpenApiOperationObject => {
  const { tag, auth, limiter, errors = [] } = one;
  const input: ErrorCode[] = one.body ? INPUT : one.query ? ['validation_failed'] : [];
  const general: ErrorCode[] = limiter ? ['rate_limited', 'internal_error', 'unavailable'] : [];
  // For a channel, this list has no 404, because an unknown channel is refused before the rate limit counts the
  // request.
  const afterCounting: ErrorCode[] = auth === 'apiKey' ? [...INPUT, 'not_found'] : INPUT;
  return describe(one, {
    tag,
    security: SECURITY[auth],
    limited: { answers: limiter !== undefined, errors: limiter ? afterCounting : [] },
    errors: [...UNAUTHORIZED[auth], ...input, ...general, ...errors],
  });
};

const AUDIENCE: Record<Operation['audience'], string> = {
  anyone: '',
  operators: 'For owners and agents.',
  owners: 'For owners.',
};

const operatorErrors = ({ audience, resource, body, upload, query, errors = [], method }: Operation): ErrorCode[] => {
  const codes: ErrorCode[] = ['internal_error', 'unavailable', ...errors];
  // `rate_limited`: operator tokens are limited, and wrong ones per client address. `forbidden`: a token's scope may not allow
  // the operation.
  if (audience !== 'anyone') codes.push('not_signed_in', 'rate_limited', 'forbidden');
  if (method !== 'get') codes.push('forbidden');
  if (resource && resource !== 'filtered') codes.push('not_found');
  if (body) codes.push('payload_too_large', 'invalid_json');
  if (upload) codes.push('payload_too_large');
  if (body || query) codes.push('validation_failed');
  return [...new Set(codes)];
};

const operatorSecurity = ({ audience, peopleOnly }: Operation): Security => {
  if (audience === 'anyone') return [];
  return peopleOnly ? [{ session: [] }] : [{ session: [] }, { operatorToken: [] }];
};

const describeOperator = (one: Operation): ZodOpenApiOperationObject =>
  describe(
    { ...one, description: AUDIENCE[one.audience], answerDescription: 'Done.' },
    {
      tag: 'Operators',
      security: operatorSecurity(one),
      limited: { answers: one.limited === true, errors: [] },
      errors: operatorErrors(one),
    },
  );

const byPath = <One extends Declaration>(
  all: One[],
  { prefix = '', describeOne }: { prefix?: string; describeOne: (one: One) => ZodOpenApiOperationObject },
): ZodOpenApiPathsObject =>
  Object.fromEntries(
    [...Map.groupBy(all, ({ path }) => path)].map(([path, some]) => [
      `${prefix}${path.replace(/:(\w+)/g, '{$1}')}`,
      Object.fromEntries(some.map((one) => [one.method, describeOne(one)])),
    ]),
  );

/** 404: the channel is off. 403: the origin is not allowed. */
const OF_WEB: ErrorCode[] = ['not_found', 'forbidden', 'rate_limited', 'internal_error', 'unavailable'];

const describeWeb = (one: WebOperation): ZodOpenApiOperationObject => {
  const unauthorized: ErrorCode[] =
    one.auth === 'visitor' ? ['invalid_visitor_token'] : one.limiter === 'starts' ? ['invalid_user_signature'] : [];
  const input: ErrorCode[] = one.body ? INPUT : one.query ? ['validation_failed'] : [];
  return describe(one, {
    tag: 'Web channel',
    security: one.auth === 'visitor' ? [{ visitorToken: [] }] : [],
    limited: { answers: true, errors: INPUT },
    errors: [...unauthorized, ...OF_WEB, ...input, ...(one.errors ?? [])],
  });
};

/** The paths of the document, derived from the declarations that the routers use. */
const apiPaths: ZodOpenApiPathsObject = {
  ...byPath(PUBLIC_OPERATIONS, { describeOne: describePublic }),
  ...byPath(WEB_OPERATIONS, { describeOne: describeWeb }),
  ...byPath(OPERATIONS, { prefix: OPERATOR_PREFIX, describeOne: describeOperator }),
};

const eventHeaders = (event: EventKind) =>
  z.object({
    'X-Factory-Signature': z.string().meta({
      description:
        '`t=<unix seconds>,v1=<hex>`: HMAC-SHA256, keyed with the endpoint’s secret, over `<t>.<raw body>`. During a ' +
        'rotation there are two `v1`. Compare in constant time; allow 300 s of clock difference.',
      example: 't=1777889730,v1=5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e108d8bd',
    }),
    'X-Factory-Event': z.literal(event),
    'X-Factory-Event-Id': z.uuid().meta({ description: 'The same as `event_id`.' }),
    'X-Factory-Sequence': z
      .string()
      .regex(/^[1-9]\d*$/)
      .optional()
      .meta({
        description:
          'The number of this event among those of its conversation for your endpoint: 1, 2, 3 … without gaps. Not on test events.',
        override: { type: 'integer', minimum: 1, pattern: undefined },
      }),
    'X-Factory-Test': z
      .literal('true')
      .optional()
      .meta({ description: 'Present on test events: the payload is a sample.' }),
    'X-Factory-Redelivery': z
      .literal('true')
      .optional()
      .meta({ description: 'Present when an operator sent this event again.' }),
    'webhook-id': z
      .uuid()
      .optional()
      .meta({ description: 'The same as `event_id`, if the endpoint has `standardWebhooks`.' }),
    'webhook-timestamp': z.string().optional().meta({ description: 'Beside `webhook-id`: `t` of the signature.' }),
    'webhook-signature': z
      .string()
      .optional()
      .meta({ description: 'Beside `webhook-id`: `v1,<base64>` as in Standard Webhooks; two during a rotation.' }),
    traceparent: z
      .string()
      .optional()
      .meta({ description: 'W3C Trace Context of this request, where the service is set to send it.' }),
  });

const webhookOf = (event: EventKind): ZodOpenApiPathItemObject => ({
  post: {
    operationId: camelCased(event),
    summary: WIRE_EVENTS[event].when,
    description: `Sent once, without automatic retry. Answer within ${DELIVERY_DEADLINE_MS / 1000} s. The events of a conversation arrive in order.`,
    tags: ['Events'],
    security: [],
    requestParams: { header: eventHeaders(event) },
    requestBody: {
      required: true,
      content: {
        'application/json': {
          schema: EVENT_BODIES[event],
          example: {
            event,
            event_id: '9d1f7c2e-3b5a-4c6d-8e7f-0a1b2c3d4e5f',
            timestamp: 1_777_889_730,
            payload: WIRE_EVENTS[event].sample,
          },
        },
      },
    },
    responses: {
      '2XX': { description: 'Delivered. Any other status is recorded as rejected; redirects are not followed.' },
    },
  },
});

/** The events that a customer's server receives (docs/contract.md, Events). */
const eventWebhooks = Object.fromEntries(EVENT_KINDS.map((event) => [event, webhookOf(event)]));

const DESCRIPTION = `An assistant that answers visitors' messages and groups them into conversations.

Every response that is not 2xx is \`{"error": {"code", "message", "field"?, "details"?, "requestId"}}\`; \`field\` is the first
wrong field. An unknown path gets 404 \`not_found\`; a wrong method gets 405 \`method_not_allowed\` with \`Allow\`. HEAD
works wherever GET does. Bytes that are not an HTTP request get 400 \`malformed_request\`, 408 \`request_timeout\` or 431
\`headers_too_large\`.

Checks run in this order: 404 (channel), 401, 429, 413, 422. Failing requests (401, unknown assistant) have a limit for each
client address; above it, only failing requests get 429. Unknown fields of a request are ignored. New fields of a response come only with a new
version.`;

const bearer = (description: string) => ({ type: 'http', scheme: 'bearer', description }) as const;

type ApiDocument = oas32.OpenAPIObject;

const createApiDocument = (): ApiDocument =>
  createDocument({
    openapi: '3.1.1',
    info: { title: 'Parley', version: VERSION, description: DESCRIPTION, license: { name: 'MIT', identifier: 'MIT' } },
    servers: [{ url: '/' }],
    tags: [
      { name: 'Chat', description: 'Send visitors’ messages and get replies.' },
      { name: 'OpenAI’s protocol', description: 'The same turns for clients of OpenAI’s chat completions.' },
      { name: 'Web channel', description: 'What the widget and the hosted page call.' },
      { name: 'Conversations', description: 'Read, escalate and erase conversations.' },
      { name: 'Events', description: 'The events that an endpoint receives, and how their deliveries ended.' },
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
        visitorToken: bearer('Made by `startWebSession`, and kept by the visitor’s browser.'),
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

let built: ApiDocument | undefined;

/**
 * The whole API as an OpenAPI 3.1 document, from the schemas that the code uses. It takes 100 ms to build, so one process
 * builds it once, however many services it opens.
 */
export const apiDocument = (): ApiDocument => (built ??= createApiDocument());

/** The document as it is sent. */
export const apiDocumentText = (serverUrl = '/'): Buffer =>
  Buffer.from(JSON.stringify({ ...apiDocument(), servers: [{ url: serverUrl }] }));
