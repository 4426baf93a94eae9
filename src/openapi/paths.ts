import * as z from 'zod';
import type { PublicOperation } from '../assistants/operation.ts';
import { conversationOperations } from '../chat-api/conversation-operations.ts';
import { turnOperations } from '../chat-api/turn-operations.ts';
import { monitoringOperations } from '../monitoring/operations.ts';
import { STATUS_CODES } from 'node:http';
import type {
  ZodOpenApiOperationObject,
  ZodOpenApiPathsObject,
  ZodOpenApiResponseObject,
  ZodOpenApiResponsesObject,
} from 'zod-openapi';
import { ApiError, ErrorBody, type ErrorCode, invalid } from '../platform/errors.ts';
import type { Declaration } from '../platform/operation.ts';
import type { Operation } from '../operator-api/operation.ts';
import { OPERATIONS } from '../operator-api/operations.ts';

/** Every operation of the public API, for the document and for clients. */
export const PUBLIC_OPERATIONS: PublicOperation[] = [
  turnOperations,
  conversationOperations,
  monitoringOperations,
].flatMap((some) => Object.values<PublicOperation>(some));

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

const OPERATOR_PREFIX = '/operator/v1';

type Security = Record<string, string[]>[];
type Access = { security: Security; limited: Limited; errors: ErrorCode[] };

const paramsOf = ({ path, params }: Declaration): z.ZodObject | undefined => {
  const names = [...path.matchAll(/:(\w+)/g)].map(([, name]) => name as string);
  if (params || names.length === 0) return params;
  return z.object(Object.fromEntries(names.map((name) => [name, z.string()])));
};

const describe = (one: Declaration, { security, limited, errors }: Access): ZodOpenApiOperationObject => {
  const path = paramsOf(one);
  const { headers: header, query, body, bodyExample: example } = one;
  return {
    operationId: one.id,
    summary: one.summary,
    ...(one.description !== undefined && { description: one.description }),
    tags: [one.tag],
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
    responses: { ...answersOf(one, limited), ...problems(errors, limited) },
  };
};

type Auth = PublicOperation['auth'];

const SECURITY: Record<Auth, Security> = {
  none: [],
  metricsToken: [{ metricsToken: [] }, {}],
  apiKey: [{ apiKey: [] }],
  verifyToken: [{ verifyToken: [] }, {}],
};

const UNAUTHORIZED: Record<Auth, ErrorCode[]> = {
  none: [],
  metricsToken: [],
  apiKey: ['missing_api_key', 'invalid_api_key'],
  verifyToken: ['invalid_verify_token'],
};

const INPUT: ErrorCode[] = ['payload_too_large', 'validation_failed', 'invalid_json'];

const describePublic = (one: PublicOperation): ZodOpenApiOperationObject => {
  const { auth, limiter, errors = [] } = one;
  const input: ErrorCode[] = one.body ? INPUT : one.query ? ['validation_failed'] : [];
  const general: ErrorCode[] = limiter ? ['rate_limited', 'internal_error', 'unavailable'] : [];
  // For a channel, this list has no 404, because an unknown channel is refused before the rate limit counts the
  // request.
  const afterCounting: ErrorCode[] = auth === 'apiKey' ? [...INPUT, 'not_found'] : INPUT;
  return describe(one, {
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

const operatorErrors = ({ audience, resource, body, query, errors = [], method }: Operation): ErrorCode[] => {
  const codes: ErrorCode[] = ['internal_error', 'unavailable', ...errors];
  // `rate_limited`: operator tokens are limited, and wrong ones per client address. `forbidden`: a token's scope may not allow
  // the operation.
  if (audience !== 'anyone') codes.push('not_signed_in', 'rate_limited', 'forbidden');
  if (method !== 'get') codes.push('forbidden');
  if (resource && resource !== 'filtered') codes.push('not_found');
  if (body) codes.push('payload_too_large', 'invalid_json');
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

/** The paths of the document, derived from the declarations that the routers use. */
export const apiPaths: ZodOpenApiPathsObject = {
  ...byPath(PUBLIC_OPERATIONS, { describeOne: describePublic }),
  ...byPath(OPERATIONS, { prefix: OPERATOR_PREFIX, describeOne: describeOperator }),
};
