import express, { type Express, type RequestHandler } from 'express';
import helmet from 'helmet';
import type { Access } from './assistants/access.ts';
import type { StoredConversation } from './conversations/conversation.ts';
import { conversationRoutes } from './conversations/routes.ts';
import type { ConversationStore } from './conversations/store.ts';
import type { EndpointStore } from './events/endpoint-store.ts';
import type { DeliveryQueue } from './events/queue.ts';
import { unavailable } from './platform/errors.ts';
import type { Readiness } from './platform/health.ts';
import { errorHandler, methodNotAllowed, nothingHere, requestId } from './platform/http.ts';
import type { Logger } from './platform/logger.ts';
import { turnRoutes } from './turns/routes.ts';
import type { Submit } from './turns/submit.ts';

export type AppDependencies = {
  access: Access;
  conversations: ConversationStore;
  endpoints: EndpointStore;
  deliveryQueue: DeliveryQueue;
  submit: Submit;
  readiness: () => Promise<Readiness>;
  onErased: (conversation: StoredConversation) => void;
  draining: AbortSignal;
  trustProxy: boolean | number | string;
  logger: Logger;
};

const refuseWhileDraining =
  (draining: AbortSignal): RequestHandler =>
  (_req, res, next) => {
    if (!draining.aborted) return next();
    res.set('Connection', 'close');
    next(unavailable());
  };

/** The API as one Express app: routers, not-found, the one error handler. Opens nothing. */
export const createApp = (dependencies: AppDependencies): Express => {
  const { access, conversations, endpoints, deliveryQueue, submit, readiness, onErased, draining, trustProxy, logger } =
    dependencies;
  const app = express();
  app.set('trust proxy', trustProxy);
  app.disable('x-powered-by');
  app.disable('etag');
  app.enable('case sensitive routing');
  app.use(requestId);
  app.use(helmet());

  app.get('/healthz', (_req, res) => void res.json({ status: 'ok' }));
  app.get('/readyz', async (_req, res) => {
    const state = await readiness();
    res.status(state.ready ? 200 : 503).json(state);
  });
  app.all(['/healthz', '/readyz'], methodNotAllowed('GET', 'HEAD'));

  app.use(refuseWhileDraining(draining));
  app.use(turnRoutes({ access, submit }));
  app.use(conversationRoutes({ access, conversations, endpoints, deliveryQueue, onErased, draining }));

  app.use(nothingHere);
  app.use(errorHandler(logger));
  return app;
};
