import { type RequestHandler, Router } from 'express';
import type { RateLimiter } from '../assistants/rate-limit.ts';
import type { AssistantStore } from '../assistants/store.ts';
import { createOperatorAccess } from '../operators/access.ts';
import type { Audit } from '../operators/audit.ts';
import type { OperatorStore } from '../operators/store.ts';
import type { Logger } from '../platform/logger.ts';
import { auditRoutes } from './audit.ts';
import { type BoardQueues, boardRoutes } from './board.ts';
import { operatorRoutes } from './operators.ts';
import { createOperatorRouter, OPERATOR_PREFIX } from './router.ts';
import { sessionRoutes } from './session.ts';

export type OperatorSide = {
  sessions: RequestHandler[];
  queues: BoardQueues;
  operators: OperatorStore;
  audit: Audit;
  assistants: AssistantStore;
  rateLimiter: RateLimiter;
  publicUrl: string | undefined;
  logger: Logger;
};

/** What the dashboard calls (contract §9). */
export const operatorSide = (side: OperatorSide): Router => {
  const access = createOperatorAccess(side);
  const pages = [...sessionRoutes(side), ...operatorRoutes(side), ...auditRoutes(side)];
  const router = Router({ caseSensitive: true });
  router.use(OPERATOR_PREFIX, ...side.sessions, createOperatorRouter(pages, { ...side, access }));
  router.use(boardRoutes({ ...side, access }));
  return router;
};
