import * as z from 'zod';
import type { ZodOpenApiOperationObject, ZodOpenApiPathsObject } from 'zod-openapi';
import type { Operation } from '../operator-api/operation.ts';
import { OPERATIONS } from '../operator-api/operations.ts';
import type { ErrorCode } from '../platform/errors.ts';
import { noContentUnlimited, problemsUnlimited, unlimited } from './responses.ts';

const JSON_TYPE = 'application/json';
const OPERATOR_PREFIX = '/operator/v1';

const AUDIENCE: Record<Operation['audience'], string> = {
  anyone: '',
  operators: 'For owners and agents.',
  owners: 'For owners.',
};

const errorsOf = ({ audience, body, query, errors = [], method }: Operation): ErrorCode[] => {
  const codes: ErrorCode[] = ['internal_error', 'unavailable', ...errors];
  if (audience !== 'anyone') codes.push('not_signed_in');
  if (audience === 'owners' || method !== 'get') codes.push('forbidden');
  if (body) codes.push('payload_too_large', 'invalid_json');
  if (body || query) codes.push('validation_failed');
  return [...new Set(codes)];
};

const paramsOf = (path: string): string[] => [...path.matchAll(/:(\w+)/g)].map(([, name]) => name as string);

const describe = (one: Operation): ZodOpenApiOperationObject => {
  const names = paramsOf(one.path);
  return {
    operationId: one.id,
    summary: one.summary,
    description: AUDIENCE[one.audience],
    tags: [one.tag],
    security: one.audience === 'anyone' ? [] : [{ session: [] }],
    requestParams: {
      ...(names.length > 0 && { path: z.object(Object.fromEntries(names.map((name) => [name, z.string()]))) }),
      ...(one.query && { query: one.query }),
    },
    ...(one.body && { requestBody: { required: true, content: { [JSON_TYPE]: { schema: one.body } } } }),
    responses: {
      ...(one.answer
        ? { [String(one.status ?? 200)]: unlimited(JSON_TYPE, one.answer, 'Done.', { limited: one.limited === true }) }
        : { '204': noContentUnlimited }),
      ...problemsUnlimited(...errorsOf(one)),
    },
  };
};

/** What the dashboard calls, from the table that its router is made of. */
export const operatorPaths: ZodOpenApiPathsObject = Object.fromEntries(
  [...Map.groupBy(OPERATIONS, ({ path }) => path)].map(([path, some]) => [
    `${OPERATOR_PREFIX}${path.replace(/:(\w+)/g, '{$1}')}`,
    Object.fromEntries(some.map((one) => [one.method, describe(one)])),
  ]),
);
