import { type RequestHandler, Router } from 'express';
import type { AlertStore } from '../alerts/alert.ts';
import type { ChannelCalls } from '../assistants/channel.ts';
import type { RateLimiter } from '../assistants/rate-limit.ts';
import type { AssistantStore } from '../assistants/store.ts';
import type { StoredConversation } from '../conversations/conversation.ts';
import type { ConversationStore } from '../conversations/store.ts';
import type { DeliveryQueue } from '../deliveries/queue.ts';
import type { DeliveryStore } from '../deliveries/store.ts';
import type { CannedReplies } from '../inbox/canned-replies.ts';
import type { Inbox } from '../inbox/inbox.ts';
import type { ManagedTags } from '../inbox/managed-tags.ts';
import type { Notes } from '../inbox/notes.ts';
import type { ReadPositions } from '../inbox/read-positions.ts';
import type { Insights } from '../insights/store.ts';
import type { LiveUpdates } from '../live/live.ts';
import { createOperatorAccess, type OperatorAccess, operatorOf } from '../operators/access.ts';
import { type Audit, boundedLine } from '../operators/audit.ts';
import { type Devices, readSessionCookie } from '../operators/session.ts';
import { hasAssistant } from '../operators/operator.ts';
import type { SignInLimits } from '../operators/sign-in-limits.ts';
import type { OperatorStore } from '../operators/store.ts';
import { readToken, type TokenStore } from '../operators/token.ts';
import { invalid, notFound } from '../process/errors.ts';
import { requestIdOf } from '../http/http.ts';
import type { Logger } from '../process/logger.ts';
import type { OrUnavailable } from '../mongo/silence.ts';
import { bodyReader, mount, type Served } from '../http/operation.ts';
import {
  type CostlyReads,
  createCostlyReads,
  freeSessionSlot,
  limitEachSession,
  takeRoomForAnswer,
} from '../http/shares.ts';
import { findUnstorable, validate } from '../process/validation.ts';
import type { SourceStore } from '../sources/store.ts';
import type { DeliveredReplies } from '../turns/delivered-replies.ts';
import type { TurnLeases } from '../turns/leases.ts';
import type { TurnQueue } from '../turns/queue.ts';
import type { Submit } from '../turns/start-turn.ts';
import type { StreamTurn } from '../turns/stream.ts';
import type { EndpointStore } from '../webhooks/endpoint-store.ts';
import { alertRoutes } from './alerts.ts';
import { assistantRoutes } from './assistants.ts';
import { auditRoutes } from './audit.ts';
import { type BoardQueues, boardRoutes } from './board.ts';
import { cannedReplyRoutes } from './canned-replies.ts';
import { channelRoutes } from './channel.ts';
import { conversationDataRoutes } from './conversation-data.ts';
import { conversationRoutes } from './conversations.ts';
import { dashboardRoutes } from './dashboard.ts';
import { deliveryRoutes } from './deliveries.ts';
import { endpointRoutes } from './endpoints.ts';
import { inboxRoutes, noteRoutes } from './inbox.ts';
import { keyRoutes } from './keys.ts';
import { knowledgeRoutes } from './knowledge.ts';
import { liveRoutes } from './live.ts';
import { managedTagRoutes } from './managed-tags.ts';
import { missRoutes } from './misses.ts';
import { type Call, type Handled, type AuditNote, type Operation, type Resource, WRITTEN } from './operation.ts';
import { operatorRoutes } from './operators.ts';
import { overviewRoutes } from './overview.ts';
import { isPlaygroundOf, playgroundRoutes } from './playground.ts';
import { sessionRoutes } from './session.ts';
import { sourceRoutes } from './sources.ts';
import { tokenRoutes } from './tokens.ts';
import { turnRoutes } from './turns.ts';
import { usageRoutes } from './usage.ts';

type ResourceAccessDependencies = {
  assistants: AssistantStore;
  conversations: ConversationStore;
  cannedReplies: CannedReplies;
  endpoints: EndpointStore;
  deliveries: DeliveryStore;
  orUnavailable: OrUnavailable;
};

/**
 * Checks whether the caller may use the resource, after authentication and before the body is read. A resource of an
 * assistant that the caller may not use gives 404, like a resource that does not exist. Only the operator of a
 * playground conversation can see it.
 */
type ResourceAccess = (operation: Operation) => RequestHandler;

const createResourceAccess = (dependencies: ResourceAccessDependencies): ResourceAccess => {
  const { assistants, conversations, cannedReplies, endpoints, deliveries, orUnavailable } = dependencies;

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
    // The endpoint of a pending event says whose it is. The event itself is looked for only with access to it.
    delivery: async (id) =>
      (await deliveries.findDelivery(id))?.assistantId ??
      (await endpoints.getEndpoint(id.slice(id.indexOf(':') + 1))).assistantId,
  };

  return ({ audience, resource }) =>
    async ({ params: { id } }, res, next) => {
      const operator = operatorOf(res);
      // Owners and unlimited tokens may use every assistant.
      const hasAll = audience === 'owners' && operator.role === 'owner';
      if (resource == null || resource === 'filtered' || hasAll) return next();
      const assistantId = await orUnavailable(find[resource](String(id), operator.operatorId));
      if (assistantId === null || !hasAssistant(operator, assistantId)) throw notFound();
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
 * Writes the audit line after the change. If this write fails, the failure is logged, but the change stays and the
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

/** The reason of a call's signal. */
class CallerLeft extends Error {
  override name = 'CallerLeft';
}

const run =
  ({ operation, handle }: Handled, dependencies: Dependencies): RequestHandler =>
  async (req, res) => {
    const params = req.params as Record<string, string>; // only wildcard paths have lists
    let noted: Partial<AuditNote> = params.id === undefined ? {} : { target: params.id };
    const left = new AbortController();
    res.once('close', () => left.abort(new CallerLeft()));
    const { signal } = left;
    const operator = operatorOf(res);
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
      signal,
      costly: (read) => {
        const { operatorId: caller, assistantIds } = operator;
        return dependencies.costlyReads({ caller, tenant: assistantIds?.join(' ') ?? caller, signal }, read);
      },
      req,
      res,
    };
    if (operation.lasts) freeSessionSlot(res);
    if (operation.isLarge) await takeRoomForAnswer(req, res);
    const answer = await handle(call).catch((cause: unknown) => {
      if (cause instanceof CallerLeft) return WRITTEN; // nobody waits for an answer
      throw cause;
    });
    await auditLine(dependencies)(operation, call, noted);
    if (answer === WRITTEN || res.headersSent) return; // the handler has written a stream
    if (operation.answer) res.status(operation.status ?? DEFAULT_STATUS).json(answer);
    else res.status(204).end();
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

export type OperatorApiDependencies = {
  sessions: RequestHandler[];
  queues: BoardQueues;
  operators: OperatorStore;
  tokens: TokenStore;
  orUnavailable: OrUnavailable;
  audit: Audit;
  assistants: AssistantStore;
  channelCalls: ChannelCalls;
  endpoints: EndpointStore;
  sources: SourceStore;
  deliveries: DeliveryStore;
  conversations: ConversationStore;
  inbox: Inbox;
  alerts: AlertStore;
  insights: Insights;
  notes: Notes;
  readPositions: ReadPositions;
  cannedReplies: CannedReplies;
  managedTags: ManagedTags;
  onErased: (conversation: StoredConversation) => void;
  live: LiveUpdates;
  leases: TurnLeases;
  deliveredReplies: DeliveredReplies;
  turnQueue: TurnQueue;
  deliveryQueue: DeliveryQueue;
  submit: Submit;
  streamTurn: StreamTurn;
  rateLimiter: RateLimiter;
  devices: Devices;
  limits: SignInLimits;
  publicUrl: string | undefined;
  /** True if a provider may have a private address. */
  allowPrivate: boolean;
  /** True if callers use TLS, either to this process or to a proxy before it. */
  tls: boolean;
  logger: Logger;
};

const PAGES = [
  sessionRoutes,
  overviewRoutes,
  usageRoutes,
  alertRoutes,
  assistantRoutes,
  knowledgeRoutes,
  sourceRoutes,
  missRoutes,
  keyRoutes,
  channelRoutes,
  endpointRoutes,
  deliveryRoutes,
  inboxRoutes,
  conversationRoutes,
  conversationDataRoutes,
  noteRoutes,
  managedTagRoutes,
  cannedReplyRoutes,
  liveRoutes,
  turnRoutes,
  playgroundRoutes,
  operatorRoutes,
  tokenRoutes,
  auditRoutes,
];

/** The operator API, the queue board and the dashboard (docs/contract.md, Operator API). */
export const operatorApiRoutes = (dependencies: OperatorApiDependencies): Router => {
  const access = createOperatorAccess(dependencies);
  const all = PAGES.flatMap((routes) => routes({ ...dependencies, access }));
  const router = Router({ caseSensitive: true });
  const sessions = [
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
