import * as z from 'zod';

export type ErrorCode =
  | 'missing_api_key'
  | 'invalid_api_key'
  | 'invalid_verify_token'
  | 'invalid_visitor_token'
  | 'invalid_user_signature'
  | 'not_signed_in'
  | 'forbidden'
  | 'not_found'
  | 'method_not_allowed'
  | 'conflict'
  | 'payload_too_large'
  | 'validation_failed'
  | 'invalid_json'
  | 'idempotency_key_reused'
  | 'rate_limited'
  | 'session_busy'
  | 'quota_exceeded'
  | 'internal_error'
  | 'reply_timeout'
  | 'unavailable'
  // For bytes that are not a valid request.
  | 'malformed_request'
  | 'request_timeout'
  | 'headers_too_large';

const STATUS: Record<ErrorCode, number> = {
  missing_api_key: 401,
  invalid_api_key: 401,
  invalid_verify_token: 401,
  invalid_visitor_token: 401,
  invalid_user_signature: 401,
  not_signed_in: 401,
  forbidden: 403,
  not_found: 404,
  method_not_allowed: 405,
  conflict: 409,
  payload_too_large: 413,
  validation_failed: 422,
  invalid_json: 422,
  idempotency_key_reused: 422,
  rate_limited: 429,
  session_busy: 429,
  quota_exceeded: 429,
  internal_error: 500,
  reply_timeout: 500,
  unavailable: 503,
  malformed_request: 400,
  request_timeout: 408,
  headers_too_large: 431,
};

const MESSAGE: Record<ErrorCode, string> = {
  missing_api_key: 'Send your API key in the header "Authorization: Bearer <API_KEY>".',
  invalid_api_key: 'This API key is not valid. It may have been revoked or rotated.',
  invalid_verify_token: 'This channel needs its verify token in the header "Authorization: Bearer <VERIFY_TOKEN>".',
  invalid_visitor_token: 'This visitor token is not valid, or no longer. Start a session.',
  invalid_user_signature: 'The signature of this user id is not right, or no longer valid.',
  not_signed_in: 'Sign in first.',
  forbidden: 'Your role does not allow this.',
  not_found: 'Nothing was found at this address.',
  method_not_allowed: 'This method is not allowed here. See the Allow header.',
  conflict: 'What is stored does not allow this now. Read it again.',
  payload_too_large: 'The request body is larger than 64 KiB.',
  validation_failed: 'A field of the request is not valid.',
  invalid_json: 'The body must be one JSON object sent as application/json in UTF-8.',
  idempotency_key_reused: 'This Idempotency-Key was used with another session_id or message.',
  rate_limited: 'Too many requests. Wait the number of seconds in Retry-After.',
  session_busy: 'This session has 20 unanswered messages. Wait for a reply, then send again.',
  quota_exceeded: 'The monthly quota of turns is used up. Wait the number of seconds in Retry-After.',
  internal_error: 'Something failed in the service. It is safe to send the same request again.',
  reply_timeout: 'The reply is not ready yet. Send the same request again to get it.',
  unavailable: 'The service is unavailable. The request was not accepted; try again shortly.',
  malformed_request: 'These bytes are not an HTTP/1.1 request.',
  request_timeout: 'The request did not arrive in time.',
  headers_too_large: 'The request line and headers are larger than 16 KiB, or the headers are more than 100.',
};

const ERROR_CODES = Object.keys(STATUS) as ErrorCode[];

/** The maximum number of wrong fields that an answer lists. */
export const MAX_DETAILS = 20;

const ErrorDetail = z.object({ field: z.string(), code: z.string(), message: z.string() });
export type ErrorDetail = z.infer<typeof ErrorDetail>;

/** The body of every error response (docs/contract.md, Errors). */
export const ErrorBody = z
  .object({
    error: z.object({
      code: z.enum(ERROR_CODES),
      message: z.string().meta({ description: 'For people. Never quotes the input.' }),
      field: z.string().optional().meta({ description: 'The first wrong field, as a dotted path.' }),
      details: z
        .array(ErrorDetail)
        .max(MAX_DETAILS)
        .optional()
        .meta({ description: `The wrong fields, at most ${MAX_DETAILS}.` }),
      requestId: z.string(),
      type: z.string().optional().meta({ description: 'Only under `/v1`, as clients of OpenAI’s protocol read it.' }),
      param: z.string().nullish().meta({ description: 'Only under `/v1`: the same as `field`, or null.' }),
    }),
  })
  .meta({ id: 'Error' });
export type ErrorBody = z.infer<typeof ErrorBody>;

/**
 * An error that the caller can correct or must know about (docs/contract.md, Errors). A message never quotes the input,
 * a stack or an internal name. `headers` are sent with the response. `details` lists the wrong fields; `field` is the
 * first of these.
 */
export class ApiError extends Error {
  readonly code: ErrorCode;
  readonly status: number;
  readonly details: ErrorDetail[];
  readonly headers: Record<string, string>;

  constructor(
    code: ErrorCode,
    options: { message?: string; details?: ErrorDetail[]; headers?: Record<string, string>; cause?: unknown } = {},
  ) {
    super(options.message ?? MESSAGE[code], { cause: options.cause });
    this.name = 'ApiError';
    this.code = code;
    this.status = STATUS[code];
    this.details = (options.details ?? []).slice(0, MAX_DETAILS);
    this.headers = options.headers ?? {};
  }

  toBody(requestId: string): ErrorBody {
    const first = this.details[0];
    return {
      error: {
        code: this.code,
        message:
          first && this.details.length === 1 && this.code === 'validation_failed'
            ? `${first.field} ${first.message}`
            : this.message,
        ...(first && { field: first.field }),
        ...(this.details.length > 0 && { details: this.details }),
        requestId,
      },
    };
  }
}

export const invalid = (field: string, code: string, message: string): ApiError =>
  new ApiError('validation_failed', { details: [{ field, code, message }] });

/** The error when the stored state does not allow the change. The caller must read the state again and decide. */
export const conflict = (message: string, ...details: ErrorDetail[]): ApiError =>
  new ApiError('conflict', { message, details });

export const notFound = (): ApiError => new ApiError('not_found');

export const orNotFound = <Found extends object>(found: Found | null | undefined): Found => {
  if (!found) throw notFound();
  return found;
};

/**
 * The error when MongoDB or Redis is unavailable. Use it only when the request was certainly not accepted
 * (docs/contract.md, Errors).
 */
export const unavailable = (cause?: unknown): ApiError =>
  new ApiError('unavailable', { cause, headers: { 'Retry-After': '1' } });
