import { STATUS_CODES } from 'node:http';
import * as z from 'zod';
import type { ZodOpenApiResponseObject, ZodOpenApiResponsesObject } from 'zod-openapi';
import { ApiError, ErrorBody, type ErrorCode, invalid } from '../platform/errors.ts';

const EXAMPLE_REQUEST_ID = '0b9e4a52-7f0c-4d7e-9a53-2f6f0e1d8c3b';

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

/** On every answer that a limit counted. */
const limits = {
  'X-RateLimit-Limit': wholeNumber('RateLimitLimit', 'Requests allowed within 60 s.'),
  'X-RateLimit-Remaining': wholeNumber('RateLimitRemaining', 'Requests left in this window.'),
  'X-RateLimit-Reset': wholeNumber('RateLimitReset', 'Seconds until the window ends.'),
};

const retryAfter = { 'Retry-After': wholeNumber('RetryAfter', 'Seconds to wait.') };
const challenge = { 'WWW-Authenticate': z.literal('Bearer') };
const replayed = {
  'Idempotent-Replayed': z
    .literal('true')
    .optional()
    .meta({ description: 'The response belongs to an earlier or concurrent request with the same message.' }),
};

const HEADERS: Partial<Record<ErrorCode, Record<string, z.ZodType>>> = {
  missing_api_key: challenge,
  invalid_api_key: challenge,
  invalid_verify_token: challenge,
  payload_too_large: limits,
  validation_failed: limits,
  rate_limited: { ...limits, ...retryAfter },
  unavailable: retryAfter,
};

const EXAMPLES: Partial<Record<ErrorCode, ApiError>> = {
  validation_failed: invalid('message', 'invalid', 'must not be blank'),
};

/** An error response from the error itself: what is documented is what is sent. */
const problem = (codes: ErrorCode[], headers = HEADERS[codes[0] as ErrorCode] ?? {}): ZodOpenApiResponseObject => {
  const errors = codes.map((code) => EXAMPLES[code] ?? new ApiError(code));
  return {
    description: errors.map(({ code, message }) => `\`${code}\`: ${message}`).join('\n\n'),
    headers: z.object({ ...requestId, ...headers }),
    content: {
      'application/json': {
        schema: ErrorBody,
        examples: Object.fromEntries(errors.map((error) => [error.code, { value: error.toBody(EXAMPLE_REQUEST_ID) }])),
      },
    },
  };
};

/** Error responses by status, each with the codes that can stand there. */
export const problems = (...codes: ErrorCode[]): ZodOpenApiResponsesObject =>
  Object.fromEntries(
    [...Map.groupBy(codes, (code) => new ApiError(code).status)].map(([status, some]) => [
      String(status),
      problem(some),
    ]),
  );

const WITHOUT_LIMITS: Partial<Record<ErrorCode, Record<string, z.ZodType>>> = {
  rate_limited: { ...limits, ...retryAfter },
  unavailable: retryAfter,
};

/** The same where no limit counts what succeeds. */
export const problemsUnlimited = (...codes: ErrorCode[]): ZodOpenApiResponsesObject =>
  Object.fromEntries(
    [...Map.groupBy(codes, (code) => new ApiError(code).status)].map(([status, some]) => [
      String(status),
      problem(some, WITHOUT_LIMITS[some[0] as ErrorCode] ?? {}),
    ]),
  );

/** Not found behind the door, where the limit has counted; before it (a channel), it has not. */
export const notFoundBehindTheDoor = { '404': problem(['not_found'], limits) };

export const ok = (
  schema: z.ZodType,
  {
    example,
    limited = true,
    replays = false,
    stream,
  }: { example: unknown; limited?: boolean; replays?: boolean; stream?: { description: string; example: string } },
): ZodOpenApiResponseObject => ({
  description: STATUS_CODES[200] ?? 'OK',
  headers: z.object({ ...requestId, ...(limited && limits), ...(replays && replayed) }),
  content: {
    'application/json': { schema, example },
    ...(stream && {
      'text/event-stream': { schema: z.string().meta({ description: stream.description }), example: stream.example },
    }),
  },
});

/** Accepted, to be asked for under `Location`. */
export const accepted = (schema: z.ZodType, example: unknown): ZodOpenApiResponseObject => ({
  description: 'Accepted; the reply follows at `Location`. Sent for `Prefer: respond-async`.',
  headers: z.object({
    ...requestId,
    ...limits,
    ...replayed,
    Location: z.string().meta({ description: 'Where to read the turn.' }),
    'Preference-Applied': z.literal('respond-async'),
  }),
  content: { 'application/json': { schema, example } },
});

export const noContent: ZodOpenApiResponseObject = {
  description: 'Done; no content.',
  headers: z.object({ ...requestId, ...limits }),
};

export const noContentUnlimited: ZodOpenApiResponseObject = {
  description: 'Done; no content.',
  headers: z.object(requestId),
};

/** Of those who watch the process. */
export const unlimited = (
  contentType: string,
  schema: z.ZodType,
  description: string,
  { limited = false } = {},
): ZodOpenApiResponseObject => ({
  description,
  headers: z.object({ ...requestId, ...(limited && limits) }),
  content: { [contentType]: { schema } },
});
