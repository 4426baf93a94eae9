import express, { type ErrorRequestHandler, type Express, type RequestHandler } from 'express';
import helmet from 'helmet';
import { watchedQueuesOf } from './alerts/queue-state.ts';
import { openAlerts } from './alerts/watch.ts';
import { type Access, createAccess } from './assistants/access.ts';
import { createChannelCalls } from './assistants/channel.ts';
import { createRateLimiter, type RateLimiter } from './assistants/rate-limit.ts';
import { KNOWLEDGE_QUEUE, type KnowledgeJob } from './assistants/knowledge/semantic-state.ts';
import type { AssistantStore } from './assistants/store.ts';
import { chatConversationRoutes } from './conversations/http.ts';
import { completionRoutes, COMPLETIONS_PATH, toCompletionError } from './turns/http/completions.ts';
import { eventRoutes } from './events/http/events.ts';
import { MCP_PATH, mcpRoutes } from './turns/http/mcp.ts';
import { chatTurnRoutes, createGatedTurn, TURN_PATHS } from './turns/http/turn-routes.ts';
import type { StoredConversation } from './conversations/conversation.ts';
import type { ConversationStore } from './conversations/store.ts';
import { DELIVERIES_QUEUE, type WakeUpJob } from './events/queue.ts';
import type { DeliveryStore } from './events/store.ts';
import { createReadiness, type Readiness } from './platform/http/health.ts';
import { createLongPolls } from './platform/http/shares.ts';
import {
  createToApiError,
  errorHandler,
  networkOf,
  notFoundHandler,
  requestId,
  withErrorShape,
} from './platform/http/http.ts';
import { closeWebServer, createWebServer, listen } from './platform/http/web-server.ts';
import { createInbox } from './inbox/inbox.ts';
import { openLiveUpdates } from './live/live.ts';
import type { MongoWatch } from './platform/mongo/silence.ts';
import { monitoringRoutes } from './api/monitoring.ts';
import { apiDocumentText } from './api/document.ts';
import { eventSchemasText, eventsDocumentText } from './api/events-document.ts';
import { referenceRoutes } from './api/reference.ts';
import { type OperatorApiDependencies, operatorApiRoutes } from './api/operator-routes.ts';
import { createDevices, createSessions, createSignInLimits } from './operators/session.ts';
import { openOperators } from './operators/store.ts';
import { ApiError, unavailable } from './platform/process/errors.ts';
import { newToken } from './platform/process/ids.ts';
import type { Opening } from './platform/process/lifecycle.ts';
import type { Logger } from './platform/process/logger.ts';
import { createMetrics, type Metrics } from './platform/process/metrics.ts';
import type { Vault } from './platform/process/vault.ts';
import { openQueues } from './platform/redis/queue.ts';
import { closeRedis, openRedis } from './platform/redis/redis.ts';
import { type SourceJob, SOURCES_QUEUE } from './sources/queue.ts';
import { type Gate, measureTurns, refuseAtGate } from './turns/gate.ts';
import { TURNS_QUEUE, type TurnsJob } from './turns/queue.ts';
import { openTurns, type StartTurn, type Submit } from './turns/start-turn.ts';
import { createStreamTurn } from './turns/stream.ts';
import type { ReadTurn } from './turns/turn.ts';
import { webPages } from './web-channel/pages.ts';
import { WEB_TURN_PATH, webChannelRoutes } from './web-channel/routes.ts';
import { countRequests, sampleQueues } from './service-metrics.ts';
import { type Module, openService, OPERATORS_POOL_SIZE } from './service.ts';

type AppDependencies = {
  access: Access;
  conversations: ConversationStore;
  deliveries: Pick<DeliveryStore, 'listEnded' | 'hasEnded'>;
  /** Read beside visitors' turns. */
  knowledge: Pick<AssistantStore, 'readKnowledge'>;
  startTurn: StartTurn;
  submit: Submit;
  readTurn: ReadTurn;
  mongoWatch: MongoWatch;
  gate: Gate;
  rateLimiter: RateLimiter;
  onTurnAnswered: (status: number, seconds: number) => void;
  readiness: () => Promise<Readiness>;
  onErased: (conversation: StoredConversation) => void;
  /** What the web channel uses beside the above. */
  web: { assistants: AssistantStore; rateLimiter: RateLimiter; vault: Vault };
  operatorApi: Omit<OperatorApiDependencies, 'streamTurn'>;
  metrics: Metrics;
  publicUrl: string | undefined;
  draining: AbortSignal;
  trustProxy: boolean | number | string;
  logger: Logger;
};

const refuseWhileDraining =
  (draining: AbortSignal): RequestHandler =>
  (_req, _res, next) => {
    next(draining.aborted ? unavailable() : undefined);
  };

/**
 * Answers 503 to a read while MongoDB is silent. The caller can repeat the read safely, because a read changes nothing.
 * The answer does not go through `next`: the read itself settles later, and Express would take its result for a second
 * error of the same chain, print it and end the connection, with the request that follows on it.
 */
const refuseReadsWhileSilent =
  ({ onSilent }: MongoWatch, answerError: ErrorRequestHandler): RequestHandler =>
  (req, res, next) => {
    if (req.method !== 'GET' && req.method !== 'HEAD') return next();
    const end = onSilent(() => {
      if (!res.headersSent) answerError(unavailable(), req, res, next);
    });
    res.on('close', end);
    if (!res.headersSent) next();
  };

/** Builds the Express app of the API: routers, not-found and the error handler. Opens no connection. */
const createApp = (dependencies: AppDependencies): Express => {
  const { access, startTurn, conversations, onErased, draining, trustProxy, logger } = dependencies;
  const { mongoWatch } = dependencies;
  const { orUnavailable } = mongoWatch;
  const answerError = errorHandler(logger);
  const app = express();
  app.set('trust proxy', trustProxy);
  app.disable('x-powered-by');
  app.disable('etag');
  app.enable('case sensitive routing');
  app.use(requestId);
  app.use(helmet.xContentTypeOptions());

  app.use('/v1', withErrorShape(toCompletionError));
  app.use(['/api', '/v1', MCP_PATH, '/operator'], refuseWhileDraining(draining));
  app.use(
    [...TURN_PATHS, COMPLETIONS_PATH, WEB_TURN_PATH],
    measureTurns(dependencies.onTurnAnswered),
    refuseAtGate(dependencies.gate),
  );
  app.use(['/api', '/v1', '/operator/v1'], refuseReadsWhileSilent(mongoWatch, answerError));
  const toApiError = createToApiError(logger);
  const streamTurn = createStreamTurn({ startTurn, toApiError });
  const gatedTurn = createGatedTurn(dependencies);
  app.use(chatTurnRoutes({ ...dependencies, gatedTurn, streamTurn }));
  app.use(completionRoutes({ ...dependencies, gatedTurn, streamTurn }));
  app.use(mcpRoutes({ ...dependencies, gatedTurn, toApiError, orUnavailable }));
  const longPoll = createLongPolls(draining);
  app.use(chatConversationRoutes({ access, conversations, onErased, longPoll, orUnavailable }));
  app.use(eventRoutes({ access, deliveries: dependencies.deliveries, longPoll, orUnavailable }));
  app.use(webChannelRoutes({ ...dependencies, ...dependencies.web, orUnavailable, streamTurn }));
  app.use(operatorApiRoutes({ ...dependencies.operatorApi, streamTurn }));

  // Pages get all security headers. JSON answers need only `X-Content-Type-Options`. Over plain HTTP, pages get neither
  // HSTS nor upgrade-insecure-requests, because both would send a browser to an https address that does not exist.
  const { tls } = dependencies.operatorApi;
  app.use(referenceRoutes({ tls }));
  app.use(webPages({ ...dependencies.web, tls, orUnavailable, logger }));
  const upgrades = tls ? {} : { directives: { upgradeInsecureRequests: null } };
  app.use(helmet({ strictTransportSecurity: tls, contentSecurityPolicy: upgrades }));
  const document = apiDocumentText(dependencies.publicUrl);
  app.use(monitoringRoutes({ ...dependencies, document, events: eventsDocumentText(), schemas: eventSchemasText() }));
  app.use(async (req, _res, next) => {
    await dependencies.rateLimiter.forUnknown(networkOf(req.ip)).catch((cause: unknown) => {
      if (cause instanceof ApiError && cause.code === 'rate_limited') throw cause;
    });
    next();
  });
  app.use(notFoundHandler);
  app.use(answerError);
  return app;
};

/** Assembles the API process and listens. Tests start it as `main.ts` does. Returns the stores and the port. */
export const openApi = async (opening: Opening) => {
  const service = await openService({
    ...opening,
    redisRole: 'api',
    asidePoolSize: OPERATORS_POOL_SIZE,
    tracesAs: 'parley-api',
  });
  openAlerts({ service, ...opening });
  const metrics = createMetrics({ token: opening.config.METRICS_TOKEN });
  return { ...service, ...(await serveApi({ service, metrics, ...opening })) };
};

/** The module of the API: it listens to callers. `stuck` is about other modules of its process. */
export const serveApi = async (
  { service, metrics, config, logger, lifecycle }: Module,
  stuck: () => string | null = () => null,
) => {
  const { aside, redis, partitions, conversations, assistants, endpoints, turnQueue, deliveryQueue } = service;

  const { orUnavailable } = service.mongoWatch;
  const count = countRequests(metrics);
  sampleQueues(metrics, service);

  const subscriber = await openRedis({ url: config.REDIS_URL, role: 'subscriber' }, logger);
  lifecycle.add('redis subscriber', subscriber, closeRedis);
  const { gate, startTurn, submit, readTurn } = await openTurns({
    ...service,
    orUnavailable,
    subscriber,
    channel: `${partitions.tags[0]}:replies:${newToken()}`,
    onRepeated: count.repeated,
    onRefused: count.refused,
    config,
    logger,
    lifecycle,
  });

  const rateLimiter = createRateLimiter(redis, { prefix: config.REDIS_PREFIX, onRefused: count.refused });
  const channelCalls = createChannelCalls(redis, config.REDIS_PREFIX);
  lifecycle.add('channel calls', channelCalls, (opened) => opened.close());
  const { operators, tokens, audit } = await openOperators(aside.mongo);
  const openBoardQueues = <Data>(name: string) => {
    const queues = openQueues<Data>(name, { redis, partitions }, logger);
    return lifecycle.add(`queue ${name} of the board`, queues, (opened) => opened.close());
  };

  const inbox = createInbox({
    conversations: aside.conversations,
    operators,
    records: aside.inboxRecords,
    findByWords: aside.insights.findByWords,
  });
  const live = openLiveUpdates({
    connection: aside.mongo,
    conversations: aside.conversations,
    mongodbUrl: config.MONGODB_URL,
    inbox,
    redis,
    subscriber,
    presenceName: `${partitions.tags[0]}:presence`,
    draining: lifecycle.draining,
    logger,
  });
  lifecycle.add('live updates', live, (opened) => opened.close());

  const tls = config.TLS_CERT_FILE !== undefined || config.TLS_TERMINATED_UPSTREAM;
  const onErased = ({ assistantId, sessionId, conversationId, waiting }: StoredConversation): void => {
    channelCalls.forget(assistantId, sessionId);
    for (const { turnId, replyTo } of waiting) {
      service.publisher.publish(replyTo, { turnId, conversationId, reply: { outcome: 'erased' } });
    }
  };
  const app = createApp({
    access: createAccess({ assistants, rateLimiter, channelCalls, orUnavailable }),
    conversations,
    deliveries: aside.deliveries,
    knowledge: aside.assistants,
    startTurn,
    submit,
    readTurn,
    mongoWatch: service.mongoWatch,
    gate,
    rateLimiter,
    onTurnAnswered: count.turnAnswered,
    readiness: createReadiness({ mongo: service.mongo, redis, draining: lifecycle.draining, stuck }),
    onErased,
    web: { assistants, rateLimiter, vault: service.vault },
    operatorApi: {
      queues: {
        turns: openBoardQueues<TurnsJob>(TURNS_QUEUE),
        deliveries: openBoardQueues<WakeUpJob>(DELIVERIES_QUEUE),
        knowledge: openBoardQueues<KnowledgeJob>(KNOWLEDGE_QUEUE),
        sources: openBoardQueues<SourceJob>(SOURCES_QUEUE),
      },
      sessions: createSessions(aside.mongo, config, orUnavailable),
      operators,
      tokens,
      orUnavailable,
      audit,
      alerts: aside.alerts,
      workerSigns: aside.workerSigns,
      watchedQueues: watchedQueuesOf(service),
      allowances: aside.allowances,
      assistants: aside.assistants,
      channelCalls,
      endpoints,
      sources: aside.sources,
      recoveries: aside.recoveries,
      deliveries: aside.deliveries,
      conversations: aside.conversations,
      notes: aside.inboxRecords.notes,
      readPositions: aside.inboxRecords.readPositions,
      cannedReplies: aside.inboxRecords.cannedReplies,
      managedTags: aside.inboxRecords.managedTags,
      onErased,
      inbox,
      insights: aside.insights,
      questionSets: aside.questionSets,
      evaluations: aside.evaluations,
      live,
      leases: service.leases,
      deliveredReplies: service.deliveredReplies,
      turnQueue,
      deliveryQueue,
      submit,
      rateLimiter,
      devices: createDevices(config, { secure: tls }),
      limits: createSignInLimits(rateLimiter),
      draining: lifecycle.draining,
      publicUrl: config.PUBLIC_URL,
      allowPrivate: config.WEBHOOK_ALLOW_PRIVATE,
      tls,
      logger,
    },
    metrics,
    publicUrl: config.PUBLIC_URL,
    draining: lifecycle.draining,
    trustProxy: config.TRUST_PROXY,
    logger,
  });
  const server = createWebServer(config, app, lifecycle.draining, { logger });
  const port = await listen(server, { host: config.HOST, port: config.PORT });
  const closing = { graceMs: config.SHUTDOWN_GRACE_MS, cutAfterMs: config.timing.connectionsCutAfterMs };
  lifecycle.add('web server', server, (opened) => closeWebServer(opened, closing));
  return { operators, tokens, audit, port };
};
