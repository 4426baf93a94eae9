import { type NextFunction, type Request, type RequestHandler, type Response, Router } from 'express';
import { noStranger } from '../platform/http/http.ts';
import { limitEachAssistant, workOn } from '../platform/http/request-slots.ts';
import { holdFor, networkOf } from '../platform/http/shares.ts';
import type { TakeTurn } from '../platform/http/json-body.ts';
import { bodyReader, type Declaration, mount, type Served } from '../platform/http/operation.ts';
import type { OrUnavailable } from '../platform/mongo/silence.ts';
import { serverDate } from '../platform/process/clock.ts';
import { bearerIn } from '../platform/process/credentials.ts';
import { ApiError, type ErrorCode, notFound } from '../platform/process/errors.ts';
import { isUuid } from '../platform/process/ids.ts';
import { workFor } from '../platform/process/slices.ts';
import type { Assistant } from './assistant.ts';
import { type ChannelCall, type ChannelCalls, isAddressAccepted, isTokenAccepted } from './channel.ts';
import { type RateLimiter, rateLimitHeaders } from './rate-limit.ts';
import type { AssistantStore } from './store.ts';

/**
 * How a call is authenticated, and which rate-limit window counts the call. With `key or poll` (of messages) and `key or
 * event poll`, a long poll counts in a window of its own. Without `limiter`, calls are not counted, and a missing token
 * gives 404. `hasOwnTurn`: its handler decides when it is worked on. `isMessage`: more of these are worked on at once.
 */
type Admission =
  | { auth: 'apiKey'; limiter: 'key' | 'key or poll' | 'key or event poll'; hasOwnTurn?: true; isMessage?: true }
  | { auth: 'verifyToken' | 'secretAddress'; limiter: 'channel'; isMessage?: true }
  | { auth: 'none' | 'metricsToken'; limiter?: never };

/** One operation of the public API. `tag`: its section of the API document. */
export type PublicOperation = Declaration & Admission & { tag: string };

export const publicOperation = <const One extends PublicOperation>(one: One): One => one;

type Limiter = NonNullable<PublicOperation['limiter']>;

/**
 * Works on a few requests of an assistant's callers at once. One whose caller leaves counts until its work is over
 * (`working`), and a message until it is at the gate (src/turns/gate.ts).
 */
const takeTurnAs =
  (kind: 'request' | 'message'): TakeTurn =>
  (res, signal) =>
    limitEachAssistant(callerOf(res).assistant.assistantId, res, { kind, signal });

export const takeTurn = takeTurnAs('request');

/** A handler of requests that have taken their turn. */
export const working =
  (handle: RequestHandler): RequestHandler =>
  (req, res, next) =>
    workOn(res, Promise.resolve(handle(req, res, next)));

/**
 * Routes for public operations. The checks follow docs/contract.md, Order of checks: 404 for an unknown channel, 401
 * and 429 come first. Only then is the body read, which may give 413 or 422.
 */
export const createPublicRouter = (
  access: Access,
  all: { operation: PublicOperation; handle: RequestHandler }[],
): Router => {
  const admits: Record<Limiter, RequestHandler> = {
    key: access.byApiKey,
    'key or poll': access.byApiKeyOrPoll,
    'key or event poll': access.byApiKeyOrEventPoll,
    channel: access.byChannel,
  };
  const router = Router({ caseSensitive: true });
  const served = all.map(({ operation, handle }): Served => {
    const admit = operation.limiter ? [admits[operation.limiter]] : [];
    const isLimited = operation.limiter !== undefined && !('hasOwnTurn' in operation);
    const take = takeTurnAs('isMessage' in operation ? 'message' : 'request');
    const last = isLimited ? [...bodyReader(operation, take), working(handle)] : [...bodyReader(operation), handle];
    return { operation, handlers: [...admit, ...last] };
  });
  mount(router, served);
  return router;
};

/** The authenticated caller of a request, kept in `res.locals.caller`. */
type Caller = {
  assistant: Assistant;
  channel: 'api' | 'webhook';
  keyId: string | null;
  keyTurnsPerMonth: number | null;
  limitPerMinute: number;
};

export const callerOf = (res: Response): Caller => res.locals.caller as Caller;

type CallDetails = Pick<ChannelCall, 'sessionId' | 'conversationId'>;

/**
 * Adds details of a turn to the request's entry in the list of channel calls. Does nothing for requests of other
 * channels, which have no such entry.
 */
export const noteCall = (res: Response, details: CallDetails): void => {
  if (res.locals.callDetails) Object.assign(res.locals.callDetails as CallDetails, details);
};

const unauthorized = (code: ErrorCode): ApiError => new ApiError(code, { headers: { 'WWW-Authenticate': 'Bearer' } });

type Dependencies = {
  assistants: Pick<AssistantStore, 'findApiKey' | 'hasFoundApiKey' | 'findAssistant'>;
  rateLimiter: Pick<RateLimiter, 'forApiKey' | 'forChannel' | 'forFailing' | 'forLongPoll' | 'isLate' | 'slowDown'>;
  channelCalls: ChannelCalls;
  orUnavailable: OrUnavailable;
};

const CALLER_LEFT = 499;

/** True for a long poll: a request that asks the API to wait for something new, and has the parameters to do so. */
const isLongPoll = (query: Request['query'], needs: string[]): boolean => {
  const given = needs.map((name) => query[name]);
  return given.every((value) => typeof value === 'string' && /^\d{1,15}$/.test(value)) && Number(query['wait']) > 0;
};

/**
 * The first checks of a request (docs/contract.md, Order of checks): 404 for an unknown channel, 401 for a wrong key or
 * token, 429 above the rate limit. The body is read after these checks. Each request that fails with 404 or 401 counts
 * against the network of its client. Above the limit of that network, the client gets 429 instead.
 */
export type Access = {
  byApiKey: RequestHandler;
  byApiKeyOrPoll: RequestHandler;
  byApiKeyOrEventPoll: RequestHandler;
  byChannel: RequestHandler;
};

export const createAccess = ({ assistants, rateLimiter, channelCalls, orUnavailable }: Dependencies): Access => {
  const refuse = async (req: Request, res: Response, error: ApiError): Promise<never> => {
    noStranger(res);
    await rateLimiter.forFailing(networkOf(req.ip));
    throw error;
  };

  /** Anybody may invent keys, and thousands of queries for them would come before those of others. */
  const waitBeforeQuery = async (req: Request, res: Response, bearer: string): Promise<void> => {
    const network = networkOf(req.ip);
    if (!rateLimiter.isLate(network) || assistants.hasFoundApiKey(bearer)) return;
    noStranger(res);
    await rateLimiter.slowDown(network);
    if (res.closed) throw unauthorized('invalid_api_key'); // nobody reads it
  };

  const admit = async (res: Response, caller: Caller, limited: Promise<Parameters<typeof rateLimitHeaders>[0]>) => {
    noStranger(res);
    const state = await limited;
    res.set(rateLimitHeaders(state));
    res.locals.caller = caller;
    // The share belongs to the assistant, not to the key, because an assistant may have many keys.
    holdFor(res, caller.assistant.assistantId);
  };

  /** What follows is work for the assistant. */
  const goOn = (res: Response, next: NextFunction): void => workFor(callerOf(res).assistant.assistantId, next);

  const withKey = async (req: Request, res: Response, limitOf: RateLimiter['forApiKey']): Promise<void> => {
    const bearer = bearerIn(req.headers.authorization);
    if (bearer === null) return refuse(req, res, unauthorized('missing_api_key'));
    await waitBeforeQuery(req, res, bearer);
    const key = await orUnavailable(assistants.findApiKey(bearer));
    const assistant = key && (await orUnavailable(assistants.findAssistant(key.assistantId)));
    if (!key || !assistant) return refuse(req, res, unauthorized('invalid_api_key'));
    const limit = key.limitPerMinute;
    const { keyId, turnsPerMonth: keyTurnsPerMonth } = key;
    const caller: Caller = { assistant, channel: 'api', keyId, keyTurnsPerMonth, limitPerMinute: limit };
    await admit(res, caller, limitOf(keyId, limit, assistant.assistantId));
  };

  /** Authenticates by API key: chat API and conversation endpoints. */
  const byApiKey: RequestHandler = async (req, res, next) => {
    await withKey(req, res, rateLimiter.forApiKey);
    goOn(res, next);
  };

  /** The same as `byApiKey`, but long polls count in a rate-limit window of their own. */
  const orPoll =
    (needs: string[]): RequestHandler =>
    async (req, res, next) => {
      await withKey(req, res, isLongPoll(req.query, needs) ? rateLimiter.forLongPoll : rateLimiter.forApiKey);
      goOn(res, next);
    };

  /** Adds the call to the list of channel calls when the response ends, whatever the outcome. */
  const recordCall = (assistantId: string, res: Response): void => {
    const [at, since] = [serverDate().toISOString(), performance.now()];
    const details: CallDetails = {};
    res.locals.callDetails = details;
    res.on('close', () => {
      const left = !res.writableFinished;
      const error = left ? 'caller_left' : (res.locals.errorCode as string | undefined);
      channelCalls.record(assistantId, {
        at,
        status: left ? CALLER_LEFT : res.statusCode,
        ms: Math.round(performance.now() - since),
        ...(error !== undefined && { error }),
        ...details,
      });
    });
  };

  /**
   * Authenticates the inbound webhook channel, by its token or by the secret in its address. An unknown or disconnected
   * channel gives 404 before they are checked.
   */
  const byChannel: RequestHandler = async (req, res, next) => {
    const assistantId = String(req.params.assistant_id);
    const assistant = isUuid(assistantId) ? await orUnavailable(assistants.findAssistant(assistantId)) : null;
    if (assistant) recordCall(assistantId, res);
    if (!assistant?.channel.connected) return refuse(req, res, notFound());
    const { secret } = req.params;
    const isAccepted =
      typeof secret === 'string'
        ? isAddressAccepted(assistant.channel, secret)
        : isTokenAccepted(assistant.channel, bearerIn(req.headers.authorization));
    if (!isAccepted) return refuse(req, res, unauthorized('invalid_verify_token'));
    const limit = assistant.channel.limitPerMinute;
    const limited = rateLimiter.forChannel(assistantId, limit);
    const caller: Caller = {
      assistant,
      channel: 'webhook',
      keyId: null,
      keyTurnsPerMonth: null,
      limitPerMinute: limit,
    };
    await admit(res, caller, limited);
    goOn(res, next);
  };

  return {
    byApiKey,
    byApiKeyOrPoll: orPoll(['wait', 'after_seq']),
    byApiKeyOrEventPoll: orPoll(['wait']),
    byChannel,
  };
};
