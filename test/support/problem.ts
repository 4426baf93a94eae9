import { expect } from 'vitest';

const SHAPE = {
  code: expect.stringMatching(/^[a-z_]+$/),
  message: expect.stringMatching(/^.{5,200}$/),
  requestId: expect.stringMatching(/^[\w-]{8,64}$/),
};

/**
 * Status, code and field of an error, such as `422 validation_failed session_id`. It first checks the whole response
 * (docs/contract.md, Errors): JSON of exactly `{error: {code, message, field?, details?, requestId}}`, with the request
 * id in the header too.
 */
export const problemOf = (answer: { status: number; headers: Headers; body: unknown }): string => {
  const { error } = answer.body as { error: { code: string; field?: string; details?: unknown[]; requestId: string } };
  const detail = { field: expect.any(String), code: expect.any(String), message: expect.any(String) };
  expect(answer.body).toEqual({
    error: {
      ...SHAPE,
      ...(error.field !== undefined && {
        field: expect.any(String),
        details: (error.details ?? [null]).map(() => detail),
      }),
    },
  });
  expect(answer.headers.get('content-type')).toMatch(/^application\/json/);
  expect(answer.headers.get('x-request-id')).toBe(error.requestId);
  if ([429, 503].includes(answer.status)) expect(answer.headers.get('retry-after')).toMatch(/^[1-9]\d*$/);
  return [answer.status, error.code, error.field].filter((part) => part !== undefined).join(' ');
};
