import express, { type ErrorRequestHandler, type Express, type RequestHandler } from 'express';
import helmet from 'helmet';
import { openAlerts } from './alerts/watch.ts';
import { createAccess } from './assistants/access.ts';
import { type ChannelCalls, createChannelCalls } from './assistants/channel.ts';
import { createRateLimiter, type RateLimiter } from './assistants/rate-limit.ts';
import { chatConversationRoutes } from './conversations/http.ts';
import { completionRoutes, COMPLETIONS_PATH, toCompletionError } from './turns/http/completions.ts';
import { eventRoutes } from './events/http/events.ts';
import { MCP_PATH, mcpRoutes } from './turns/http/mcp.ts';
import { chatTurnRoutes, createGatedTurn, TURN_PATHS } from './turns/http/turn-routes.ts';
import type { StoredConversation } from './conversations/conversation.ts';
import { createReadiness, type Readiness } from './platform/http/health.ts';
import { createLongPolls } from './platform/http/request-slots.ts';
import { blockOf, handleFor, keepInBounds, networkOf } from './platform/http/shares.ts';
import { restBefore } from './platform/process/slices.ts';
import {
  createToApiError,
  errorHandler,
  ignoreLongPreferences,
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
import type { Opening } from './platform/process/lifecycle.ts';
import { createMetrics } from './platform/process/metrics.ts';
import { closeRedis, openRedis } from './platform/redis/redis.ts';
import { measureTurns, refuseAtGate } from './turns/gate.ts';
import { openTurns, type OpenTurns } from './turns/start-turn.ts';
import { createStreamTurn } from './turns/stream.ts';
import { webPages } from './web-channel/pages.ts';
import { WEB_TURN_PATH, webChannelRoutes } from './web-channel/routes.ts';
import { countRequests, sampleQueues } from './service-metrics.ts';
import { type Module, openService, OPERATORS_POOL_SIZE } from './service.ts';

/** What the API has opened beside its service. */
type Opened = OpenTurns & {
  rateLimiter: RateLimiter;
  channelCalls: ChannelCalls;
  onTurnAnswered: (status: number, seconds: number) => void;
  onErased: (conversation: StoredConversation) => void;
  readiness: () => Promise<Readiness>;
  operatorApi: Omit<OperatorApiDependencies, 'streamTurn'>;
};

/**
 * Lets client networks begin their requests in turns while the event loop is busy. One network may have thousands of
 * connections, and even what is refused at once, or is the same for everybody, takes a part of a millisecond.
 */
const beginInTurn: RequestHandler = async (req, res, next) => {
  const rest = restBefore(`network ${blockOf(req.ip)}`);
  if (rest) await rest;
  if (!res.closed) next();
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
const createApp = ({ service, metrics, config, logger, lifecycle }: Module, opened: Opened): Express => {
  const { assistants, aside, mongoWatch } = service;
  const { startTurn, rateLimiter, onTurnAnswered, operatorApi } = opened;
  const { draining } = lifecycle;
  const { tls, publicUrl, orUnavailable } = operatorApi;
  const answerError = errorHandler(logger);
  const toApiError = createToApiError(logger);
  const doors = {
    ...service,
    ...opened,
    access: createAccess({ ...opened, assistants, orUnavailable }),
    gatedTurn: createGatedTurn(opened),
    streamTurn: createStreamTurn({ startTurn, toApiError }),
    // Read beside visitors' turns.
    deliveries: aside.deliveries,
    knowledge: aside.assistants,
    longPoll: createLongPolls(draining),
    orUnavailable,
    toApiError,
    publicUrl,
    tls,
    draining,
    logger,
  };
  const app = express();
  app.set('trust proxy', config.TRUST_PROXY);
  app.disable('x-powered-by');
  app.disable('etag');
  app.enable('case sensitive routing');
  app.use(requestId, ignoreLongPreferences);
  app.use(helmet.xContentTypeOptions());
  app.use('/v1', withErrorShape(toCompletionError));
  app.use(handleFor, keepInBounds, beginInTurn);

  app.use(['/api', '/v1', MCP_PATH, '/operator'], refuseWhileDraining(draining));
  app.use([...TURN_PATHS, COMPLETIONS_PATH, WEB_TURN_PATH], measureTurns(onTurnAnswered), refuseAtGate(opened.gate));
  app.use(['/api', '/v1', '/operator/v1'], refuseReadsWhileSilent(mongoWatch, answerError));
  app.use(chatTurnRoutes(doors));
  app.use(completionRoutes(doors));
  app.use(mcpRoutes(doors));
  app.use(chatConversationRoutes(doors));
  app.use(eventRoutes(doors));
  app.use(webChannelRoutes(doors));
  app.use(operatorApiRoutes({ ...operatorApi, streamTurn: doors.streamTurn }));

  // Pages get all security headers. JSON answers need only `X-Content-Type-Options`. Over plain HTTP, pages get neither
  // HSTS nor upgrade-insecure-requests, because both would send a browser to an https address that does not exist.
  app.use(referenceRoutes({ tls }));
  app.use(webPages(doors));
  const upgrades = tls ? {} : { directives: { upgradeInsecureRequests: null } };
  app.use(helmet({ strictTransportSecurity: tls, contentSecurityPolicy: upgrades }));
  const documents = { document: apiDocumentText(publicUrl), events: eventsDocumentText(), schemas: eventSchemasText() };
  app.use(monitoringRoutes({ ...opened, ...documents, metrics }));
  app.use(async (req, _res, next) => {
    await rateLimiter.forUnknown(networkOf(req.ip)).catch((cause: unknown) => {
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
  const module = { ...opening, service, metrics: createMetrics({ token: opening.config.METRICS_TOKEN }) };
  openAlerts(module);
  return { ...service, ...(await serveApi(module)) };
};

/** The module of the API: it listens to callers. `stuck` is about other modules of its process. */
export const serveApi = async (module: Module, stuck: () => string | null = () => null) => {
  const { service, metrics, config, logger, lifecycle } = module;
  const { aside, redis } = service;
  const { orUnavailable } = service.mongoWatch;
  const { draining } = lifecycle;
  const count = countRequests(metrics);
  sampleQueues(metrics, service);

  const subscriber = await openRedis({ url: config.REDIS_URL, role: 'subscriber' }, logger);
  lifecycle.add('redis subscriber', subscriber, closeRedis);
  const turns = await openTurns(module, { subscriber, onRepeated: count.repeated, onRefused: count.refused });

  const rateLimiter = createRateLimiter(redis, { prefix: config.REDIS_PREFIX, onRefused: count.refused });
  const channelCalls = createChannelCalls(redis, config.REDIS_PREFIX);
  lifecycle.add('channel calls', channelCalls, (opened) => opened.close());
  const forOperators = await openOperators(aside.mongo);
  const { operators, tokens, audit } = forOperators;

  const inbox = createInbox({
    conversations: aside.conversations,
    operators,
    records: aside.inboxRecords,
    findByWords: aside.insights.findByWords,
  });
  const live = openLiveUpdates(module, { inbox, subscriber });
  lifecycle.add('live updates', live, (opened) => opened.close());

  const tls = config.TLS_CERT_FILE !== undefined || config.TLS_TERMINATED_UPSTREAM;
  const onErased = ({ assistantId, sessionId, conversationId, waiting }: StoredConversation): void => {
    channelCalls.forget(assistantId, sessionId);
    for (const { turnId, replyTo } of waiting) {
      service.publisher.publish(replyTo, { turnId, conversationId, reply: { outcome: 'erased' } });
    }
  };
  const shared = { ...turns, rateLimiter, channelCalls, onErased };
  const app = createApp(module, {
    ...shared,
    onTurnAnswered: count.turnAnswered,
    readiness: createReadiness({ mongo: service.mongo, redis, draining, stuck }),
    operatorApi: {
      ...service,
      ...aside,
      ...aside.inboxRecords,
      ...forOperators,
      ...shared,
      sessions: createSessions(aside.mongo, config, orUnavailable),
      devices: createDevices(config, { secure: tls }),
      limits: createSignInLimits(rateLimiter),
      inbox,
      live,
      orUnavailable,
      draining,
      publicUrl: config.PUBLIC_URL,
      allowPrivate: config.WEBHOOK_ALLOW_PRIVATE,
      tls,
      logger,
    },
  });
  const server = createWebServer(config, app, draining, { logger });
  const port = await listen(server, { host: config.HOST, port: config.PORT });
  const closing = { graceMs: config.SHUTDOWN_GRACE_MS, cutAfterMs: config.timing.connectionsCutAfterMs };
  lifecycle.add('web server', server, (opened) => closeWebServer(opened, closing));
  return { operators, tokens, audit, port };
};
