import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { join } from 'node:path';
import { type RequestHandler, type Response, Router } from 'express';
import type { ChannelCalls } from '../assistants/channel.ts';
import type { RateLimiter } from '../assistants/rate-limit.ts';
import type { StoredConversation } from '../conversations/conversation.ts';
import { builtFiles, OWN_ORIGIN, pageHeaders, requestIdOf } from '../platform/http/http.ts';
import { sendJson, toJson } from '../platform/http/json-body.ts';
import { bodyReader, mount, type Served } from '../platform/http/operation.ts';
import {
  type CostlyReads,
  createCostlyReads,
  freeCallerSlots,
  freeTeamSlot,
  limitEachSession,
  takeRoomForAnswer,
  workOn,
} from '../platform/http/request-slots.ts';
import { holderOf, holdFor, senderOf } from '../platform/http/shares.ts';
import type { InboxRecords } from '../inbox/records.ts';
import type { Inbox } from '../inbox/inbox.ts';
import type { LiveUpdates } from '../live/live.ts';
import type { OrUnavailable } from '../platform/mongo/silence.ts';
import { createOperatorAccess, type OperatorAccess, operatorOf } from '../operators/access.ts';
import { type Audit, boundedLine } from '../operators/audit.ts';
import { hasAssistant } from '../operators/operator.ts';
import { type Devices, ownCookiesOnly, readSessionCookie, type SignInLimits } from '../operators/session.ts';
import { readToken, type TokenStore } from '../operators/token.ts';
import { invalid, notFound, unavailable } from '../platform/process/errors.ts';
import type { Logger } from '../platform/process/logger.ts';
import { findUnstorable, validate } from '../platform/process/validation.ts';
import type { Service } from '../service.ts';
import type { Submit } from '../turns/start-turn.ts';
import type { StreamTurn } from '../turns/stream.ts';
import { exportOperations, exportRoutes, importOperations, importRoutes } from '../assistants/http/transfer.ts';
import { assistantOperations, assistantRoutes } from '../assistants/http/assistants.ts';
import { boardRoutes } from '../alerts/http/board.ts';
import {
  channelOperations,
  channelRoutes,
  webChannelOperations,
  webChannelRoutesForOwners,
} from '../assistants/http/channel.ts';
import {
  conversationDataOperations,
  conversationDataRoutes,
  conversationOperations,
  conversationRoutes,
} from '../inbox/http/conversations.ts';
import { deliveryOperations, deliveryRoutes } from '../events/http/deliveries.ts';
import { draftOperations, draftRoutes } from '../assistants/drafts/http.ts';
import { endpointOperations, endpointRoutes, recoveryOperations, recoveryRoutes } from '../events/http/endpoints.ts';
import { evaluationOperations, evaluationRoutes } from '../evaluation/http/evaluations.ts';
import { questionSetOperations, questionSetRoutes } from '../evaluation/http/question-sets.ts';
import {
  cannedReplyOperations,
  cannedReplyRoutes,
  managedTagOperations,
  managedTagRoutes,
} from '../inbox/http/settings.ts';
import {
  inboxOperations,
  inboxRoutes,
  liveOperations,
  liveRoutes,
  noteOperations,
  noteRoutes,
} from '../inbox/http/inbox.ts';
import { keyOperations, keyRoutes } from '../assistants/http/keys.ts';
import { knowledgeOperations, knowledgeRoutes, missOperations, missRoutes } from '../assistants/knowledge/http.ts';
import {
  type AuditNote,
  type Call,
  type Handled,
  type Operation,
  type Resource,
  WRITTEN,
} from '../operators/operation.ts';
import {
  auditOperations,
  auditRoutes,
  operatorOperations,
  operatorRoutes,
  tokenOperations,
  tokenRoutes,
} from '../operators/http/operators.ts';
import { alertOperations, alertRoutes, overviewOperations, overviewRoutes } from '../insights/http/overview.ts';
import { queueOperations, queueRoutes } from '../alerts/http/queues.ts';
import { sessionOperations, sessionRoutes } from '../operators/http/session.ts';
import { sourceOperations, sourceRoutes } from '../sources/http.ts';
import {
  isPlaygroundOf,
  playgroundOperations,
  playgroundRoutes,
  turnOperations,
  turnRoutes,
} from '../turns/http/operator-turns.ts';
import { usageOperations, usageRoutes } from '../insights/http/usage.ts';

const DASHBOARD_PATH = '/operator';
const BUILT = join(import.meta.dirname, '../../dashboard/dist');
const NONCE = /__CSP_NONCE__/g;

/**
 * Paths that belong to other modules. Unknown paths below them must give a 404 of these modules, not the dashboard's
 * page.
 */
const NOT_PAGES = /^\/(?:v1|queues|assets)(?:\/|$)/;

const nonceOf = (res: ServerResponse): string => (res as Response).locals.nonce as string;

const POLICY = {
  ...OWN_ORIGIN,
  styleSrc: ["'self'", (_req: unknown, res: ServerResponse) => `'nonce-${nonceOf(res)}'`],
  baseUri: ["'none'"],
  formAction: ["'self'"],
  trustedTypes: ['default'], // dashboard/src/main.tsx
};

const NOT_BUILT =
  'The dashboard has not been built here. "node scripts/run.js build dashboard" builds it; then start the API again.\n';

type DashboardDependencies = { tls: boolean; logger: Logger; folder?: string };

/**
 * Serves the dashboard: the same page for all its addresses, with a content security policy that allows only this
 * service.
 */
export const dashboardRoutes = ({ tls, logger, folder = BUILT }: DashboardDependencies): Router => {
  const index = join(folder, 'index.html');
  // The page and its files are read at the start, so a newer build does not delete what the page refers to.
  const page = existsSync(index) ? readFileSync(index, 'utf8') : null;
  if (page === null) logger.warn({ folder }, 'the dashboard is not built: its pages answer 404');

  const asPage: RequestHandler = (req, res, next) => {
    const reads = req.method === 'GET' || req.method === 'HEAD';
    if (!reads || NOT_PAGES.test(req.path) || !req.accepts('html')) return next('router');
    if (req.originalUrl === DASHBOARD_PATH) return res.redirect(302, `${DASHBOARD_PATH}/`);
    res.locals.nonce = randomBytes(16).toString('base64');
    res.setHeader('Cache-Control', 'no-store');
    next();
  };
  const pages = Router({ caseSensitive: true });
  pages.use(asPage, pageHeaders(tls, POLICY), (_req, res) => {
    if (page === null) return void res.status(404).type('text/plain').send(NOT_BUILT);
    res.type('html').send(page.replaceAll(NONCE, nonceOf(res)));
  });

  const router = Router({ caseSensitive: true });
  router.get('/', (_req, res) => res.redirect(302, `${DASHBOARD_PATH}/`));
  router.use(`${DASHBOARD_PATH}/assets`, builtFiles(join(folder, 'assets'), { for: 'this site' }));
  router.use(DASHBOARD_PATH, pages);
  return router;
};

/**
 * Checks whether the caller may use the resource, after authentication and before the body is read. A resource of an
 * assistant that the caller may not use gives 404, like a resource that does not exist. Only the operator of a
 * playground conversation can see it.
 */
type ResourceAccess = (operation: Operation) => RequestHandler;

const createResourceAccess = (dependencies: OperatorApiDependencies): ResourceAccess => {
  const { assistants, conversations, cannedReplies, endpoints, deliveries, recoveries, orUnavailable } = dependencies;

  const ofConversation = async (id: string, operatorId: string | null): Promise<string | null> => {
    const owner = await conversations.findOwner(id);
    if (!owner) return null;
    const isOwn = operatorId !== null && isPlaygroundOf(operatorId, owner);
    return owner.channel !== 'playground' || isOwn ? owner.assistantId : null;
  };

  /** Finds the id of the resource's assistant, for each kind of resource. Null if the resource does not exist. */
  const find: Record<Resource, (id: string, operatorId: string) => Promise<string | null>> = {
    assistant: async (id) => (await assistants.getAssistant(id)).assistantId,
    conversation: (id) => ofConversation(id, null),
    'conversation or own playground': ofConversation,
    turn: async (id) => (await conversations.findTurn(id))?.conversation.assistantId ?? null,
    'canned reply': async (id) => (await cannedReplies.get(id)).assistantId,
    key: async (id) => (await assistants.getApiKey(id)).assistantId,
    endpoint: async (id) => (await endpoints.getEndpoint(id)).assistantId,
    recovery: async (id) => (await recoveries.find(id))?.assistantId ?? null,
    // A pending event has no record, so its endpoint tells the assistant. The event itself is read only after the
    // access check. Record and endpoint are always read, so that the response time does not tell whether there is a
    // record.
    delivery: async (id) => {
      const endpoint = endpoints.getEndpoint(id.slice(id.indexOf(':') + 1));
      const [delivery] = await Promise.all([deliveries.findDelivery(id), Promise.allSettled([endpoint])]);
      return delivery?.assistantId ?? (await endpoint).assistantId;
    },
  };

  return ({ audience, resource }) =>
    async ({ params: { id } }, res, next) => {
      const operator = operatorOf(res);
      // Owners and unlimited tokens may use every assistant.
      const hasAll = audience === 'owners' && operator.role === 'owner';
      if (resource == null || resource === 'filtered' || hasAll) return next();
      const assistantId = await orUnavailable(find[resource](String(id), operator.operatorId));
      if (assistantId === null || !hasAssistant(operator, assistantId)) throw notFound();
      // Many tokens may be limited to this assistant and to others. All their requests count in the share of the
      // assistant that they concern.
      holdFor(res, assistantId);
      next();
    };
};

export const OPERATOR_PREFIX = '/operator/v1';

type Dependencies = {
  access: OperatorAccess;
  resourceAccess: ResourceAccess;
  audit: Audit;
  costlyReads: CostlyReads;
  logger: Logger;
};

const DEFAULT_STATUS = 200;

/**
 * Writes the audit line after the change. If this write fails, the failure is logged, but the change is kept and the
 * request succeeds.
 */
const auditLine =
  ({ audit, logger }: Dependencies) =>
  async ({ audit: action }: Operation, call: Call<Operation>, { target, details = {} }: Partial<AuditNote>) => {
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
      const { details: _texts, email: _email, ...ids } = line;
      logger.error({ err: cause, audit: ids }, 'an audit line could not be written');
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

/** Why the signal of a call was aborted. */
class CallerLeft extends Error {
  override name = 'CallerLeft';
}

const run =
  ({ operation, handle }: Handled, dependencies: Dependencies): RequestHandler =>
  async (req, res) => {
    if (res.closed) throw unavailable(); // the caller has left, and its places are free
    const params = req.params as Record<string, string>; // only wildcard paths have lists
    let noted: Partial<AuditNote> = params.id === undefined ? {} : { target: params.id };
    const left = new AbortController();
    res.once('close', () => left.abort(new CallerLeft()));
    const { signal } = left;
    const operator = operatorOf(res);
    let isRecorded = false;
    const record = async (): Promise<void> => {
      if (!isRecorded) await auditLine(dependencies)(operation, call, noted);
      isRecorded = true;
    };
    const call: Call<Operation> = {
      params,
      // The query is `undefined` for an operation without a query schema. `Call<One>` gives each handler the right
      // type.
      query: (operation.query && storable(validate(operation.query, req.query))) as Call<Operation>['query'],
      body: (operation.body && storable(validate(operation.body, req.body))) as Call<Operation>['body'],
      operator,
      note: (note) => {
        noted = note;
      },
      record,
      signal,
      costly: (read, ...how) => {
        const { operatorId: caller, assistantIds } = operator;
        freeTeamSlot(res);
        // A list of all assistants of the caller counts for everybody with the same ones, as if it concerned one of them.
        const team = operation.resource === 'filtered' ? assistantIds?.join(' ') : undefined;
        const holder = team ?? holderOf(req, res);
        return dependencies.costlyReads({ caller, holder, tenant: senderOf(req, res), signal }, read, ...how);
      },
      takeRoom: () => takeRoomForAnswer(req, res),
      req,
      res,
    };
    if (operation.lasts) freeCallerSlots(res);
    if (operation.isLarge === true) await call.takeRoom();
    const answer = await workOn(res, handle(call)).catch((cause: unknown) => {
      if (cause instanceof CallerLeft) return WRITTEN; // nobody waits for an answer
      throw cause;
    });
    await record();
    if (answer === WRITTEN || res.headersSent) return; // the handler has written a stream
    if (!operation.answer) res.status(204).end();
    else {
      res.status(operation.status ?? DEFAULT_STATUS);
      if (operation.isLarge)
        await sendJson(res, piecesOf(answer as object)); // none of these is a text or a list
      else res.json(answer);
    }
  };

/** An answer as JSON whose lists are encoded item by item. */
const piecesOf = (answer: object): AsyncGenerator<string> => {
  const fields = Object.entries(answer);
  const lists = fields.flatMap(([name, value]) => (Array.isArray(value) ? [[name, [value]] as const] : []));
  return toJson(Object.fromEntries(fields.filter(([, value]) => !Array.isArray(value))), Object.fromEntries(lists));
};

const headLast = (methods: string[]): string[] => [...methods, ...(methods.includes('GET') ? ['HEAD'] : [])];

/** Adds all operations with their checks to a router. Other methods on the same paths get 405. */
const createOperatorRouter = (all: Handled[], dependencies: Dependencies): Router => {
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
        ? [dependencies.access.fromOwnPages, ...(operation.body ? [dependencies.access.countAnonymous] : [])]
        : [dependencies.access.signedInOrTokenFor(operation), dependencies.resourceAccess(operation)];
    return { operation, handlers: [...checks, ...bodyReader(operation), run(one, dependencies)] };
  });
  mount(router, served, headLast);
  return router;
};

/** The service, with the stores of the second pool, and what the API has opened beside. */
export type OperatorApiDependencies = Service &
  InboxRecords & {
    sessions: RequestHandler[];
    tokens: TokenStore;
    orUnavailable: OrUnavailable;
    audit: Audit;
    channelCalls: ChannelCalls;
    inbox: Inbox;
    onErased: (conversation: StoredConversation) => void;
    live: LiveUpdates;
    submit: Submit;
    streamTurn: StreamTurn;
    rateLimiter: RateLimiter;
    devices: Devices;
    limits: SignInLimits;
    /** Aborts when the process begins to stop. */
    draining: AbortSignal;
    publicUrl: string | undefined;
    /** True if a provider may have a private address. */
    allowPrivate: boolean;
    /** True if callers use TLS, either to this process or to a proxy before it. */
    tls: boolean;
    logger: Logger;
  };

/** What each page of the dashboard calls. */
const PAGES = [
  { operations: sessionOperations, routes: sessionRoutes },
  { operations: overviewOperations, routes: overviewRoutes },
  { operations: usageOperations, routes: usageRoutes },
  { operations: alertOperations, routes: alertRoutes },
  { operations: queueOperations, routes: queueRoutes },
  { operations: assistantOperations, routes: assistantRoutes },
  { operations: exportOperations, routes: exportRoutes },
  { operations: importOperations, routes: importRoutes },
  { operations: knowledgeOperations, routes: knowledgeRoutes },
  { operations: draftOperations, routes: draftRoutes },
  { operations: sourceOperations, routes: sourceRoutes },
  { operations: missOperations, routes: missRoutes },
  { operations: questionSetOperations, routes: questionSetRoutes },
  { operations: evaluationOperations, routes: evaluationRoutes },
  { operations: keyOperations, routes: keyRoutes },
  { operations: channelOperations, routes: channelRoutes },
  { operations: webChannelOperations, routes: webChannelRoutesForOwners },
  { operations: endpointOperations, routes: endpointRoutes },
  { operations: deliveryOperations, routes: deliveryRoutes },
  { operations: recoveryOperations, routes: recoveryRoutes },
  { operations: inboxOperations, routes: inboxRoutes },
  { operations: conversationOperations, routes: conversationRoutes },
  { operations: conversationDataOperations, routes: conversationDataRoutes },
  { operations: noteOperations, routes: noteRoutes },
  { operations: managedTagOperations, routes: managedTagRoutes },
  { operations: cannedReplyOperations, routes: cannedReplyRoutes },
  { operations: liveOperations, routes: liveRoutes },
  { operations: turnOperations, routes: turnRoutes },
  { operations: playgroundOperations, routes: playgroundRoutes },
  { operations: operatorOperations, routes: operatorRoutes },
  { operations: tokenOperations, routes: tokenRoutes },
  { operations: auditOperations, routes: auditRoutes },
];

/** All operations, for the API documentation. */
export const OPERATIONS: Operation[] = PAGES.flatMap(({ operations }) => Object.values<Operation>(operations));

/** The operator API, the queue board and the dashboard (docs/contract.md, Operator API). */
export const operatorApiRoutes = (dependencies: OperatorApiDependencies): Router => {
  const access = createOperatorAccess(dependencies);
  const all = PAGES.flatMap(({ routes }) => routes({ ...dependencies, access }));
  const router = Router({ caseSensitive: true });
  const sessions = [
    ownCookiesOnly,
    limitEachSession(
      ({ headers }) =>
        readToken(headers.authorization) ?? readSessionCookie(headers.cookie, { secure: dependencies.tls }),
    ),
    ...dependencies.sessions,
  ];
  router.use(
    OPERATOR_PREFIX,
    ...sessions,
    createOperatorRouter(all, {
      ...dependencies,
      access,
      resourceAccess: createResourceAccess(dependencies),
      costlyReads: createCostlyReads(),
    }),
  );
  router.use(boardRoutes({ ...dependencies, access, sessions }));
  router.use(dashboardRoutes(dependencies));
  return router;
};
