import { type RequestHandler, Router } from 'express';
import type { OperatorAccess } from '../operators/access.ts';
import { operatorOf } from '../operators/access.ts';
import { type Audit, boundedLine } from '../operators/audit.ts';
import { invalid } from '../platform/errors.ts';
import { requestIdOf } from '../platform/http.ts';
import type { Logger } from '../platform/logger.ts';
import { bodyReader, mount, type Served } from '../platform/operation.ts';
import { findUnstorable } from '../platform/storable.ts';
import { validate } from '../platform/validation.ts';
import type { ResourceAccess } from './resource-access.ts';
import { type Call, type Handled, type Note, type Operation, WRITTEN } from './operation.ts';

export const OPERATOR_PREFIX = '/operator/v1';

type Dependencies = { access: OperatorAccess; resourceAccess: ResourceAccess; audit: Audit; logger: Logger };

const DEFAULT_STATUS = 200;

/**
 * Writes the audit line after the change. If this write fails, the failure is logged, but the change stays and the
 * request succeeds.
 */
const auditLine =
  ({ audit, logger }: Dependencies) =>
  async ({ audit: action }: Operation, call: Call<Operation>, { target, details = {} }: Partial<Note>) => {
    if (action === undefined) return;
    const { operatorId, email, token } = operatorOf(call.res);
    const actor = token ? ('token' as const) : ('operator' as const);
    const whole = {
      actor,
      operatorId,
      email,
      action,
      details,
      requestId: requestIdOf(call.res),
      target: target ?? null,
    };
    const line = boundedLine(whole);
    await audit.record(line).catch((cause: unknown) => {
      logger.error({ err: cause, audit: line }, 'an audit line could not be written');
    });
  };

/**
 * Refuses strings that cannot be stored, in all known fields (docs/contract.md, Request). Unknown fields are not
 * checked, so that errors do not quote their names.
 */
const storable = <Value>(value: Value): Value => {
  const field = findUnstorable(value);
  if (field !== null) throw invalid(field, 'invalid', 'must be well-formed Unicode without NUL');
  return value;
};

const run =
  ({ operation, handle }: Handled, dependencies: Dependencies): RequestHandler =>
  async (req, res) => {
    const params = req.params as Record<string, string>; // only wildcard paths have lists
    let noted: Partial<Note> = params.id === undefined ? {} : { target: params.id };
    const call: Call<Operation> = {
      params,
      // The query is `undefined` for an operation without a query schema. `Call<One>` gives each handler the right
      // type.
      query: (operation.query && storable(validate(operation.query, req.query))) as Call<Operation>['query'],
      body: (operation.body && storable(validate(operation.body, req.body))) as Call<Operation>['body'],
      operator: operatorOf(res),
      note: (note) => {
        noted = note;
      },
      req,
      res,
    };
    const answer = await handle(call);
    await auditLine(dependencies)(operation, call, noted);
    if (answer === WRITTEN || res.headersSent) return; // the handler has written a stream
    if (operation.answer) res.status(operation.status ?? DEFAULT_STATUS).json(answer);
    else res.status(204).end();
  };

const headLast = (methods: string[]): string[] => [...methods, ...(methods.includes('GET') ? ['HEAD'] : [])];

/** Adds all operations with their checks to a router. Other methods on the same paths get 405. */
export const createOperatorRouter = (all: Handled[], dependencies: Dependencies): Router => {
  const router = Router({ caseSensitive: true });
  router.use((_req, res, next) => {
    res.setHeader('Cache-Control', 'no-store');
    next();
  });
  router.use(dependencies.access.fromOwnPagesOrWithToken);
  const served = all.map((one): Served => {
    const { operation } = one;
    const checks =
      operation.audience === 'anyone'
        ? [dependencies.access.fromOwnPages]
        : [dependencies.access.signedInOrTokenFor(operation), dependencies.resourceAccess(operation)];
    return { operation, handlers: [...checks, ...bodyReader(operation), run(one, dependencies)] };
  });
  mount(router, served, headLast);
  return router;
};
