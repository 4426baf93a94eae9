import type { Request, RequestHandler, Response } from 'express';
import type { Connection } from 'mongoose';
import type { RateLimiter } from '../assistants/rate-limit.ts';
import { limitEachPerson, limitEachTeam } from '../platform/http/request-slots.ts';
import { holdFor, networkOf, takeTurnsFor } from '../platform/http/shares.ts';
import { ApiError } from '../platform/process/errors.ts';
import type { OrUnavailable } from '../platform/mongo/silence.ts';
import { workFor } from '../platform/process/slices.ts';
import { parseUrl } from '../platform/process/validation.ts';
import { type Audience, mayUse, type Operator, operatorModel, sessionModel, toOperator } from './operator.ts';
import { endSession, isCurrent, readSession, storedIdOf, type StoredSession } from './session.ts';
import type { OperatorStore } from './store.ts';
import { type OperatorCaller, callerOfToken, type OperatorToken, readToken, type TokenStore } from './token.ts';

/** A session that a long request was started in. */
export type SessionRef = { sessionId: string; operatorId: string };

/**
 * Reads again which sessions still exist, for requests that stay open. The answer has one place for each session: its
 * operator as stored now, or null if the session has ended.
 */
export type FindSignedIn = (refs: SessionRef[]) => Promise<(Operator | null)[]>;

export const createFindSignedIn = (connection: Connection): FindSignedIn => {
  const [sessions, operators] = [sessionModel(connection), operatorModel(connection)];

  return async (refs) => {
    const ids = refs.map(({ sessionId }) => storedIdOf(sessionId));
    const [foundSessions, foundOperators] = await Promise.all([
      sessions.find({ _id: { $in: ids } }).lean(),
      operators.find({ _id: { $in: [...new Set(refs.map(({ operatorId }) => operatorId))] } }).lean(),
    ]);
    const sessionById = new Map(foundSessions.map((one) => [one._id, one]));
    const operatorById = new Map(foundOperators.map((one) => [one._id, one]));
    return ids.map((id, at) => {
      const stored = sessionById.get(id);
      const operator = operatorById.get(refs[at]?.operatorId ?? '');
      if (!stored || !operator || operator.disabled) return null;
      const session = stored.session as StoredSession;
      const current = isCurrent(session, stored.expires ?? null) && session.generation === operator.generation;
      return current ? toOperator(operator) : null;
    });
  };
};

const READS = new Set(['GET', 'HEAD', 'OPTIONS']);

/** The signed-in operator or the token of a request, kept in `res.locals.operator` after authentication. */
export const operatorOf = (res: Response): OperatorCaller => res.locals.operator as OperatorCaller;

/**
 * The origin of a URL. Null if it has none of its own: `file:`, `data:` and extensions all share the opaque origin
 * "null".
 */
const originOf = (url: string | undefined): string | null => {
  const origin = parseUrl(url ?? '')?.origin ?? 'null';
  return origin === 'null' ? null : origin;
};

/**
 * The sender of a request: a person, or all tokens together that one person or the admin command has made. A person and
 * the tokens that this person has made are two senders.
 */
const senderOf = ({ operatorId, token }: Pick<OperatorCaller, 'operatorId' | 'token'>): string =>
  token ? `tokens of ${token.createdBy}` : operatorId;

/**
 * Who answers for the bytes of a request. A sender may have many tokens: those limited to the same assistants have one
 * share together, and so have all unlimited ones.
 */
const shareOf = (caller: OperatorCaller): string => caller.token?.assistantIds?.join(' ') ?? senderOf(caller);

/** All people, or all tokens, with the same assistants. Whoever has all of them is alone. */
export const teamOf = (caller: Pick<OperatorCaller, 'operatorId' | 'assistantIds' | 'token'>): string =>
  `${caller.token ? 'tokens' : 'people'} of ${caller.assistantIds?.join(' ') ?? senderOf(caller)}`;

type Asked = { req: Request; res: Response };

type AccessRule = {
  audience: Exclude<Audience, 'anyone'>;
  method: string;
  /** Null if the operation does not concern one assistant. */
  resource: string | null;
  peopleOnly?: true;
};

const checkToken = ({ scope, assistantIds }: OperatorToken, { method, resource, peopleOnly }: AccessRule): void => {
  const refuse = (message: string): never => {
    throw new ApiError('forbidden', { message });
  };
  if (peopleOnly) refuse('Operator tokens cannot do this. Sign in instead.');
  if (scope === 'read' && method !== 'get') refuse('This operator token may only read.');
  if (assistantIds !== null && resource === null) refuse('This operator token is limited to some assistants.');
};

/**
 * Authentication for the operator API. Every request loads its operator, so a disabled operator and ended sessions are
 * refused from the next request on, in every process.
 */
export type OperatorAccess = {
  fromOwnPages: RequestHandler;
  fromOwnPagesOrWithToken: RequestHandler;
  countAnonymous: RequestHandler;
  /** Who is signed in, within the limits of one person and of one team. */
  findSignedIn: (req: Request, res: Response) => Promise<OperatorCaller | null>;

  /** Accepts signed-in operators only. */
  signedInFor: (audience: AccessRule['audience']) => RequestHandler;

  /**
   * Accepts signed-in operators, and programs with an operator token. If a request has a token, its cookie is ignored.
   */
  signedInOrTokenFor: (rule: AccessRule) => RequestHandler;
};

export const createOperatorAccess = (dependencies: {
  operators: OperatorStore;
  tokens: Pick<TokenStore, 'findToken' | 'hasFoundToken'>;
  rateLimiter: Pick<RateLimiter, 'forFailing' | 'forAnonymous' | 'forToken' | 'isLate' | 'slowDown'>;
  publicUrl: string | undefined;
  orUnavailable: OrUnavailable;
}): OperatorAccess => {
  const { operators, tokens, rateLimiter, publicUrl, orUnavailable } = dependencies;
  const known = originOf(publicUrl);

  const isOwnPage = (req: Request): boolean => {
    const { origin, 'sec-fetch-site': site } = req.headers;
    if (site !== undefined && site !== 'same-origin') return false;
    if (origin === undefined) return true; // browsers send at least one of them; this is a program with a cookie jar
    const given = originOf(origin);
    return given !== null && (given === known || new URL(given).host === req.host);
  };

  /** Refuses changes, including sign-in, that a page of another site sends. Runs before the body is read. */
  const fromOwnPages: RequestHandler = (req, _res, next) => {
    if (READS.has(req.method) || isOwnPage(req)) return next();
    throw new ApiError('forbidden', { message: 'The request came from a page of another site.' });
  };

  /**
   * Like `fromOwnPages`, for operations that accept a token. A browser never adds a token by itself, so a request with
   * a token comes from a program and is not checked.
   */
  const fromOwnPagesOrWithToken: RequestHandler = (req, res, next) =>
    readToken(req.headers.authorization) === null ? fromOwnPages(req, res, next) : next();

  /** Counts a request that has no sign-in, before its body is read. */
  const countAnonymous: RequestHandler = async (req, _res, next) => {
    await rateLimiter.forAnonymous(networkOf(req.ip));
    next();
  };

  const limitTeamOf = (caller: OperatorCaller, res: Response): Promise<void> =>
    limitEachTeam(teamOf(caller), senderOf(caller), res);

  const findSignedIn = async (req: Request, res: Response): Promise<OperatorCaller | null> => {
    const session = readSession(req);
    const operator = session && (await orUnavailable(operators.findOperator(session.operatorId)));
    if (operator && !operator.disabled && operator.generation === session.generation) {
      const caller = { ...operator, token: null };
      await limitEachPerson(caller.operatorId, res);
      await limitTeamOf(caller, res);
      return caller;
    }
    if (req.session.operatorId !== undefined) await orUnavailable(endSession(req));
    return null;
  };

  const refuse = async (req: Request, message?: string): Promise<never> => {
    await rateLimiter.forFailing(networkOf(req.ip));
    throw new ApiError('not_signed_in', message === undefined ? {} : { message });
  };

  const getSignedIn = async ({ req, res }: Asked, audience: AccessRule['audience']): Promise<OperatorCaller> => {
    const operator = await findSignedIn(req, res);
    if (!operator) return refuse(req);
    if (!mayUse(operator.role, audience)) throw new ApiError('forbidden');
    return operator;
  };

  /** Anybody may invent tokens, and thousands of queries for them would come before those of others. */
  const waitBeforeQuery = async ({ req, res }: Asked, secret: string): Promise<void> => {
    const network = networkOf(req.ip);
    if (!rateLimiter.isLate(network) || tokens.hasFoundToken(secret)) return;
    await rateLimiter.slowDown(network);
    if (res.closed) throw new ApiError('not_signed_in'); // nobody reads it
  };

  const getWithToken = async ({ req, res }: Asked, secret: string, rule: AccessRule): Promise<OperatorCaller> => {
    await waitBeforeQuery({ req, res }, secret);
    const token = await orUnavailable(tokens.findToken(secret));
    if (!token) return refuse(req, 'This operator token is not valid. It may have been revoked.');
    const caller = callerOfToken(token);
    // Before it takes a slot of its team, because a late refusal would hold it.
    await rateLimiter.forToken(token.tokenId, teamOf(caller));
    await limitTeamOf(caller, res);
    checkToken(token, rule);
    return caller;
  };

  const signedInFor =
    (audience: AccessRule['audience']): RequestHandler =>
    async (req, res, next) => {
      res.locals.operator = await getSignedIn({ req, res }, audience);
      next();
    };

  const signedInOrTokenFor =
    (rule: AccessRule): RequestHandler =>
    async (req, res, next) => {
      const secret = readToken(req.headers.authorization);
      const caller = await (secret === null
        ? getSignedIn({ req, res }, rule.audience)
        : getWithToken({ req, res }, secret, rule));
      res.locals.operator = caller;
      holdFor(res, shareOf(caller));
      takeTurnsFor(res, senderOf(caller));
      workFor(shareOf(caller), next);
    };

  return { fromOwnPages, fromOwnPagesOrWithToken, countAnonymous, findSignedIn, signedInFor, signedInOrTokenFor };
};
