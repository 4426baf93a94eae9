import type { Request, RequestHandler, Response } from 'express';
import { ApiError } from '../platform/errors.ts';
import type { BeforeWriting } from '../platform/mongo-silence.ts';
import type { Operator } from './operator.ts';
import { type Audience, mayUse } from './roles.ts';
import { endSession, readSession } from './session.ts';
import type { OperatorStore } from './store.ts';

const READS = new Set(['GET', 'HEAD', 'OPTIONS']);

/** Who is signed in: found in `res.locals.operator` behind the door. */
export const operatorOf = (res: Response): Operator => res.locals.operator as Operator;

/** Of what is no web page (`file:`, `data:`, an extension) the standard has only the word "null", which is nobody's. */
const originOf = (url: string | undefined): string | null => {
  const origin = URL.parse(url ?? '')?.origin ?? 'null';
  return origin === 'null' ? null : origin;
};

/**
 * The doors of the operators' side. Every request looks its operator up: a disabled one, or one whose sessions were
 * ended, is out with the next request, whatever process it reaches.
 */
export const createOperatorAccess = (dependencies: {
  operators: OperatorStore;
  publicUrl: string | undefined;
  beforeWriting: BeforeWriting;
}) => {
  const { operators, publicUrl, beforeWriting } = dependencies;
  const known = originOf(publicUrl);

  const isOwnPage = (req: Request): boolean => {
    const { origin, 'sec-fetch-site': site } = req.headers;
    if (site !== undefined && site !== 'same-origin') return false;
    if (origin === undefined) return true; // no browser leaves both out of a change: a program with its own cookie jar
    const given = originOf(origin);
    return given !== null && (given === known || new URL(given).host === req.host);
  };

  /** A change that another site's page asks for is refused before anything is read, also a sign-in. */
  const fromOwnPages: RequestHandler = (req, _res, next) => {
    if (READS.has(req.method) || isOwnPage(req)) return next();
    throw new ApiError('forbidden', { message: 'The request came from a page of another site.' });
  };

  const findSignedIn = async (req: Request): Promise<Operator | null> => {
    const session = readSession(req);
    const operator = session && (await beforeWriting(operators.findOperator(session.operatorId)));
    if (operator && !operator.disabled && operator.generation === session.generation) return operator;
    if (req.session.operatorId !== undefined) await beforeWriting(endSession(req));
    return null;
  };

  const signedInFor =
    (audience: Exclude<Audience, 'anyone'>): RequestHandler =>
    async (req, res, next) => {
      const operator = await findSignedIn(req);
      if (!operator) throw new ApiError('not_signed_in');
      if (!mayUse(operator.role, audience)) throw new ApiError('forbidden');
      res.locals.operator = operator;
      next();
    };

  return { fromOwnPages, findSignedIn, signedInFor };
};

export type OperatorAccess = ReturnType<typeof createOperatorAccess>;
