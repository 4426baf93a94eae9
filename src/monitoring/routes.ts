import { type RequestHandler, Router } from 'express';
import { notFound, unavailable } from '../platform/errors.ts';
import type { Readiness } from '../platform/health.ts';
import { requestIdOf } from '../platform/http.ts';
import type { Metrics } from '../platform/metrics.ts';
import { answerWith, mount } from '../platform/operation.ts';
import { monitoringOperations } from './operations.ts';

type Dependencies = { readiness: () => Promise<Readiness>; metrics: Metrics; document: object };

/** Routes for monitoring and documentation. They are also answered while the process drains. */
export const monitoringRoutes = ({ readiness, metrics, document }: Dependencies): Router => {
  // One buffer for all answers, so that callers who do not read it hold no copies.
  const text = Buffer.from(JSON.stringify(document));

  const health: RequestHandler = (_req, res) => answerWith(monitoringOperations.health, res, { status: 'ok' });

  const ready: RequestHandler = async (_req, res) => {
    const state = await readiness();
    if (state.ready) return answerWith(monitoringOperations.readiness, res, state);
    const error = unavailable();
    res
      .status(error.status)
      .set(error.headers)
      .json({ ...error.toBody(requestIdOf(res)), ...state });
  };

  const metricsText: RequestHandler = async (req, res) => {
    const answer = await metrics.answer(req);
    if (answer === null) throw notFound();
    res.type(metrics.contentType).send(answer);
  };

  const openApi: RequestHandler = (_req, res) => void res.type('application/json').send(text);

  const router = Router({ caseSensitive: true });
  mount(router, [
    { operation: monitoringOperations.health, handlers: [health] },
    { operation: monitoringOperations.readiness, handlers: [ready] },
    { operation: monitoringOperations.metrics, handlers: [metricsText] },
    { operation: monitoringOperations.openApi, handlers: [openApi] },
  ]);
  return router;
};
