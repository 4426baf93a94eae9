import express, { type ErrorRequestHandler, type Express, type RequestHandler } from 'express';
import helmet from 'helmet';
import type { Access } from './assistants/access.ts';
import type { StoredConversation } from './conversations/conversation.ts';
import { chatConversationRoutes } from './chat-api/conversation-routes.ts';
import type { ConversationStore } from './conversations/store.ts';
import { apiDocumentText } from './openapi/document.ts';
import { referenceRoutes } from './openapi/reference.ts';
import { type OperatorApiDependencies, operatorApiRoutes } from './operator-api/routes.ts';
import { unavailable } from './process/errors.ts';
import type { Readiness } from './http/health.ts';
import { createToApiError, errorHandler, notFoundHandler, requestId } from './http/http.ts';
import type { Logger } from './process/logger.ts';
import type { Metrics } from './process/metrics.ts';
import type { MongoWatch } from './mongo/silence.ts';
import type { StartTurn, Submit } from './turns/start-turn.ts';
import { TURN_PATHS, chatTurnRoutes } from './chat-api/turn-routes.ts';
import { type Gate, measureTurns, refuseAtGate } from './turns/gate.ts';
import { createStreamTurn } from './turns/stream.ts';
import type { ReadTurn } from './turns/turn-view.ts';
import { monitoringRoutes } from './monitoring/operations.ts';

type AppDependencies = {
  access: Access;
  conversations: ConversationStore;
  startTurn: StartTurn;
  submit: Submit;
  readTurn: ReadTurn;
  mongoWatch: MongoWatch;
  gate: Gate;
  onTurnAnswered: (status: number, seconds: number) => void;
  readiness: () => Promise<Readiness>;
  onErased: (conversation: StoredConversation) => void;
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
export const createApp = (dependencies: AppDependencies): Express => {
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

  app.use(['/api', '/operator'], refuseWhileDraining(draining));
  app.use(TURN_PATHS, measureTurns(dependencies.onTurnAnswered), refuseAtGate(dependencies.gate));
  app.use(['/api', '/operator/v1'], refuseReadsWhileSilent(mongoWatch, answerError));
  const streamTurn = createStreamTurn({ startTurn, toApiError: createToApiError(logger) });
  app.use(chatTurnRoutes({ ...dependencies, streamTurn }));
  app.use(chatConversationRoutes({ access, conversations, onErased, draining, orUnavailable }));
  app.use(operatorApiRoutes({ ...dependencies.operatorApi, streamTurn }));

  // Pages get all security headers. JSON answers need only `X-Content-Type-Options`. Over plain HTTP, pages get neither
  // HSTS nor upgrade-insecure-requests, because both would send a browser to an https address that does not exist.
  const { tls } = dependencies.operatorApi;
  app.use(referenceRoutes({ tls }));
  const upgrades = tls ? {} : { directives: { upgradeInsecureRequests: null } };
  app.use(helmet({ strictTransportSecurity: tls, contentSecurityPolicy: upgrades }));
  app.use(monitoringRoutes({ ...dependencies, document: apiDocumentText(dependencies.publicUrl) }));
  app.use(notFoundHandler);
  app.use(answerError);
  return app;
};
