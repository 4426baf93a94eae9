import { STATUS_CODES } from 'node:http';
import * as z from 'zod';
import type { ZodOpenApiResponseObject, ZodOpenApiResponsesObject } from 'zod-openapi';
import { ApiError, ErrorBody, type ErrorCode, invalid } from '../platform/errors.ts';
import type { Declaration } from '../platform/operation.ts';

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
export type Limited = { answers: boolean; errors: readonly ErrorCode[] };

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
export const problems = (codes: readonly ErrorCode[], limited: Limited): ZodOpenApiResponsesObject =>
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
export const answersOf = (one: Declaration, limited: Limited): ZodOpenApiResponsesObject => {
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
