import * as z from 'zod';
import type { ZodOpenApiOperationObject, ZodOpenApiPathsObject } from 'zod-openapi';
import type { PublicOperation } from '../assistants/operation.ts';
import type { Operation } from '../operator-api/operation.ts';
import { OPERATIONS } from '../operator-api/operations.ts';
import type { ErrorCode } from '../platform/errors.ts';
import type { Declaration } from '../platform/operation.ts';
import { PUBLIC_OPERATIONS } from './operations.ts';
import { answersOf, type Limited, problems } from './responses.ts';

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
  // `rate_limited`: wrong operator tokens are limited per client address. `forbidden`: a token's scope may not allow
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
