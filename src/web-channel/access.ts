import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Request, RequestHandler, Response } from 'express';
import * as z from 'zod';
import type { Assistant } from '../assistants/assistant.ts';
import { type RateLimiter, rateLimitHeaders } from '../assistants/rate-limit.ts';
import type { AssistantStore } from '../assistants/store.ts';
import { createByteShares, holdFor, networkOf } from '../platform/http/shares.ts';
import { noStranger } from '../platform/http/http.ts';
import type { OrUnavailable } from '../platform/mongo/silence.ts';
import { serverNow } from '../platform/process/clock.ts';
import { bearerIn } from '../platform/process/credentials.ts';
import { createPauses } from '../platform/process/deadline.ts';
import { ApiError, notFound } from '../platform/process/errors.ts';
import { conversationKeyOf, isUuid } from '../platform/process/ids.ts';
import { addTo } from '../platform/process/slots.ts';
import { parseUrl } from '../platform/process/validation.ts';
import type { VisitorLimit, WebOperation } from './operations.ts';

/** How long a browser may come back to its conversation. */
const ANONYMOUS_S = 365 * 86_400;
/** How long a signature of the customer’s server lets a page talk. The page then presents a new one. */
const SIGNED_IN_S = 86_400;
const TOKEN_MAX = 1_200;

/** `i`: the secret that signed the user’s id, so that its rotation ends the token. */
const Claims = z.object({ s: z.string(), x: z.int(), i: z.string().optional() });
type Claims = z.infer<typeof Claims>;

type Visitor = { sessionId: string; key: string };

type Keys = Pick<Assistant, 'sessionKey' | 'web'>;

const signatureOf = (sessionKey: string, claims: string): Buffer =>
  createHmac('sha256', sessionKey).update(`web visitor\0${claims}`).digest();

const tokenOf = (sessionKey: string, claims: Claims): string => {
  const text = Buffer.from(JSON.stringify(claims)).toString('base64url');
  return `${text}.${signatureOf(sessionKey, text).toString('base64url')}`;
};

const inSeconds = (seconds: number): number => Math.floor(serverNow() / 1000) + seconds;

type Started = { token: string; expiresAt: Date };

const startWith = (sessionKey: string, claims: Claims): Started => ({
  token: tokenOf(sessionKey, claims),
  expiresAt: new Date(claims.x * 1000),
});

/** A session for a browser that has none. */
export const startAnonymous = ({ sessionKey }: Keys): Started =>
  startWith(sessionKey, { s: `web_${randomBytes(16).toString('base64url')}`, x: inSeconds(ANONYMOUS_S) });

/**
 * The session of a user whose id is signed: the same in every browser. Its id contains the user's id, by which
 * operators and receivers of events know the user, and a part that nobody can guess.
 */
export const startSignedIn = ({ sessionKey }: Keys, user: { userId: string; identityId: string }): Started => {
  const { userId, identityId } = user;
  const secret = createHmac('sha256', sessionKey).update(`web user\0${userId}`).digest('base64url').slice(0, 22);
  return startWith(sessionKey, { s: `web_${secret}_${userId}`, x: inSeconds(SIGNED_IN_S), i: identityId });
};

const claimsIn = (text: string): Claims | null => {
  try {
    return Claims.parse(JSON.parse(Buffer.from(text, 'base64url').toString()));
  } catch {
    return null;
  }
};

/** The visitor whom a token belongs to. Null if this assistant did not make the token, or if it is no longer valid. */
const visitorOfToken = (token: string, { sessionKey, web }: Keys): Visitor | null => {
  const [text = '', signature = '', ...rest] = token.length <= TOKEN_MAX ? token.split('.') : [];
  const given = Buffer.from(signature, 'base64url');
  const right = signatureOf(sessionKey, text);
  if (rest.length > 0 || given.length !== right.length || !timingSafeEqual(given, right)) return null;
  const claims = claimsIn(text);
  if (!claims || claims.x * 1000 <= serverNow()) return null;
  if (claims.i !== undefined && claims.i !== web.identity?.id) return null;
  return { sessionId: claims.s, key: conversationKeyOf({ sessionKey, sessionId: claims.s, playground: false }) };
};

const ALLOWED = {
  'Access-Control-Allow-Methods': 'GET, POST',
  'Access-Control-Allow-Headers': 'Authorization, Content-Type, Idempotency-Key',
  // The longest time that Chromium keeps the answer.
  'Access-Control-Max-Age': '7200',
};

/** What a request to the web channel concerns, kept in `res.locals.web`. */
type WebCaller = { assistant: Assistant; visitor: Visitor | null };

const callerOf = (res: Response): WebCaller => res.locals.web as WebCaller;
export const assistantOf = (res: Response): Assistant => callerOf(res).assistant;

export const visitorOf = (res: Response): Visitor => {
  const { visitor } = callerOf(res);
  if (!visitor) throw new Error('this operation takes no visitor token');
  return visitor;
};

const bearerOf = ({ headers }: Request): string => bearerIn(headers.authorization) ?? '';

const unauthorized = () => new ApiError('invalid_visitor_token', { headers: { 'WWW-Authenticate': 'Bearer' } });

type Dependencies = {
  assistants: Pick<AssistantStore, 'findAssistant'>;
  rateLimiter: Pick<RateLimiter, 'forFailing' | 'forWebMessages' | 'forWebReads' | 'forWebStarts'>;
  publicUrl: string | undefined;
  orUnavailable: OrUnavailable;
};

/**
 * The first checks of a request (docs/contract.md, Web channel): 404 if the channel is off, 403 for a page of an origin
 * that is not allowed, 401 for a wrong visitor token, 429 above a limit. The body is read after these checks.
 */
type WebAccess = {
  /** Answers CORS, and finds the assistant. Runs before anything else of the channel. */
  fromAllowedOrigin: RequestHandler;
  admit: (operation: WebOperation) => RequestHandler;
  /** Counts a failing request against its network, then throws. */
  refuse: (req: Request, error: ApiError) => Promise<never>;
};

export const createWebAccess = ({ assistants, rateLimiter, publicUrl, orUnavailable }: Dependencies): WebAccess => {
  const own = publicUrl === undefined ? undefined : URL.parse(publicUrl)?.origin;

  /** True for the hosted page and for the preview in the dashboard. */
  const isOwn = (origin: string, req: Request): boolean => origin === own || parseUrl(origin)?.host === req.host;

  const refuse = async (req: Request, error: ApiError): Promise<never> => {
    if (req.res) noStranger(req.res);
    await rateLimiter.forFailing(networkOf(req.ip));
    throw error;
  };

  const fromAllowedOrigin: RequestHandler = async (req, res, next) => {
    const { assistant_id: assistantId } = req.params as { assistant_id: string };
    const { origin } = req.headers;
    res.vary('Origin');
    const assistant = isUuid(assistantId) ? await orUnavailable(assistants.findAssistant(assistantId)) : null;
    if (!assistant?.web.enabled) return refuse(req, notFound());
    // Browsers send no origin with a read of their own site's page; programs may leave it out, and could invent one.
    if (origin !== undefined) {
      if (!assistant.web.origins.includes(origin) && !isOwn(origin, req))
        return refuse(req, new ApiError('forbidden', { message: 'This origin may not show the widget.' }));
      res.set('Access-Control-Allow-Origin', origin);
    }
    if (req.method === 'OPTIONS') return void res.set(ALLOWED).status(204).end();
    res.set({ 'Access-Control-Expose-Headers': 'Retry-After, X-Request-Id', 'Cache-Control': 'no-store' });
    res.locals.web = { assistant, visitor: null } satisfies WebCaller;
    next();
  };

  /** Throws 429 with the state of the window that is used up. */
  const countFor: Record<VisitorLimit, (network: string) => Promise<object>> = {
    reads: async (network) => rateLimitHeaders(await rateLimiter.forWebReads(network)),
    starts: async (network) => rateLimitHeaders(await rateLimiter.forWebStarts(network)),
    messages: async (network) => rateLimitHeaders(await rateLimiter.forWebMessages(network)),
  };

  const admit =
    ({ auth, limiter }: WebOperation): RequestHandler =>
    async (req, res, next) => {
      const caller = callerOf(res);
      if (auth === 'visitor') {
        caller.visitor = visitorOfToken(bearerOf(req), caller.assistant);
        if (!caller.visitor) return refuse(req, unauthorized());
      }
      noStranger(res);
      const network = networkOf(req.ip);
      res.set(await countFor[limiter](network));
      // The network holds the answer, not the assistant: visitors who do not read must not block the assistant's API
      // keys.
      holdFor(res, `web ${network}`);
      next();
    };

  return { fromAllowedOrigin, admit, refuse };
};

/** How many requests of one session may wait in this process: some tabs, each with one. */
const WAITING_OF_SESSION = 4;
/**
 * How many requests of visitors wait in this process. Each of them reads every second. An assistant may have as many as
 * remain free.
 */
const WAITING_MAX = 4_000;
const LOOK_EVERY_MS = 1_000;
/**
 * While a person answers, the store is read this often, so that the visitor sees a message sooner. If many wait, less
 * often: a full process reads for each of them every second.
 */
const LOOK_FOR_PERSON_MS = 300;
/**
 * After a look, a read waits so many times as long as the look took, a second at most: a look at a large conversation may
 * read its whole document from the disk, and the looks of all assistants share one line.
 */
const LOOK_REST_TIMES = 50;

type Head = { seq: number; status: string };
type Known = { after: number; status: string | undefined };

const isNews = (head: Head | null, { after, status }: Known): boolean =>
  head ? head.seq !== after || (status !== undefined && head.status !== status) : after > 0;

/**
 * Waits until the session has something new, the time is up, or the visitor has left. Requests above a limit do not
 * wait; the widget then asks less often.
 */
type WaitForNews = (
  session: { key: string; assistantId: string },
  known: Known & { waitMs: number; res: Response },
) => Promise<void>;

export const createWaitForNews = ({
  find,
  draining,
}: {
  find: (key: string, assistantId: string) => Promise<Head | null>;
  draining: AbortSignal;
}): WaitForNews => {
  /** The requests that wait, by their session and by their assistant. */
  const ofSession = new Map<string, number>();
  const ofAssistant = new Map<string, number>();
  const places = createByteShares(WAITING_MAX);

  const { pause, endAll } = createPauses();
  draining.addEventListener('abort', endAll, { once: true });

  const forPersonMs = (assistantId: string): number => {
    // An assistant with fewer than the average does not wait longer because of those that have more.
    const many = Math.min(places.inUse, (ofAssistant.get(assistantId) ?? 0) * ofAssistant.size);
    return Math.max(LOOK_FOR_PERSON_MS, (LOOK_EVERY_MS * many) / WAITING_MAX);
  };

  const look: WaitForNews = async ({ key, assistantId }, { after, status, waitMs, res }) => {
    const until = performance.now() + waitMs;
    for (;;) {
      const since = performance.now();
      const head = await find(key, assistantId);
      const restMs = Math.min(LOOK_EVERY_MS, LOOK_REST_TIMES * (performance.now() - since));
      if (isNews(head, { after, status }) || performance.now() >= until || res.closed || draining.aborted) return;
      const pauseMs = Math.max(restMs, head?.status === 'escalated' ? forPersonMs(assistantId) : LOOK_EVERY_MS);
      await pause(Math.min(pauseMs, Math.max(0, until - performance.now())));
    }
  };

  return async (session, known) => {
    const { key, assistantId } = session;
    if ((ofSession.get(key) ?? 0) >= WAITING_OF_SESSION || !places.take(assistantId, 1)) return;
    addTo(ofSession, key, 1);
    addTo(ofAssistant, assistantId, 1);
    try {
      await look(session, known);
    } finally {
      places.release(assistantId, 1);
      addTo(ofAssistant, assistantId, -1);
      addTo(ofSession, key, -1);
    }
  };
};
