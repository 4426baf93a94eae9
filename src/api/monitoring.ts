import { type RequestHandler, Router } from 'express';
import * as z from 'zod';
import { publicOperation } from '../assistants/access.ts';
import { ErrorBody, notFound, unavailable } from '../platform/process/errors.ts';
import type { Readiness } from '../platform/http/health.ts';
import { requestIdOf, sendBytes } from '../platform/http/http.ts';
import type { Metrics } from '../platform/process/metrics.ts';
import { answerWith, mount } from '../platform/http/operation.ts';

const Readiness = z
  .object({ ready: z.boolean(), checks: z.record(z.string(), z.string()) })
  .meta({ id: 'Readiness', description: 'Each check is `ok` or the problem.' });
const Unready = z.object({ ...ErrorBody.shape, ...Readiness.shape }).meta({ id: 'Unready' });

const common = { method: 'get', tag: 'Operation', auth: 'none' } as const;

/**
 * Operations for monitoring and documentation. They are also answered while the process drains (docs/contract.md,
 * Health and metrics).
 */
export const monitoringOperations = {
  health: publicOperation({
    ...common,
    path: '/healthz',
    id: 'getHealth',
    summary: 'Check that the process is alive',
    answer: z.object({ status: z.literal('ok') }),
    answerDescription: 'It is alive.',
  }),
  readiness: publicOperation({
    ...common,
    path: '/readyz',
    id: 'getReadiness',
    summary: 'Check that the process can take requests',
    answer: Readiness,
    answerDescription: 'It can.',
    otherAnswers: {
      503: {
        description: 'MongoDB or Redis is unavailable, or the process is draining.',
        schema: Unready,
        code: 'unavailable',
      },
    },
  }),
  metrics: publicOperation({
    ...common,
    auth: 'metricsToken',
    path: '/metrics',
    id: 'getMetrics',
    summary: 'Get metrics for Prometheus',
    description: 'Only for loopback clients without a proxy, or with `METRICS_TOKEN`. Everyone else gets 404.',
    answer: z.string(),
    answerDescription: 'The text format of Prometheus.',
    contentType: 'text/plain',
    errors: ['not_found'],
  }),
  openApi: publicOperation({
    ...common,
    path: '/openapi.json',
    id: 'getOpenApi',
    summary: 'Get this document',
    answer: z.looseObject({ openapi: z.string() }),
    answerDescription: 'OpenAPI 3.1.',
  }),
  asyncApi: publicOperation({
    ...common,
    path: '/asyncapi.json',
    id: 'getAsyncApi',
    summary: 'Get the events as an AsyncAPI document',
    answer: z.looseObject({ asyncapi: z.string() }),
    answerDescription: 'AsyncAPI 3.0, with the JSON Schema of each event.',
  }),
  eventSchemas: publicOperation({
    ...common,
    path: '/events.schema.json',
    id: 'getEventSchemas',
    summary: 'Get the JSON Schema of the events',
    answer: z.looseObject({ $schema: z.string() }),
    answerDescription: 'JSON Schema 2020-12. `$defs` has each kind.',
  }),
  reference: publicOperation({
    ...common,
    path: '/docs',
    id: 'getReference',
    summary: 'Read this document as a web page',
    answer: z.string(),
    answerDescription: 'Swagger UI.',
    contentType: 'text/html',
  }),
};

type Dependencies = {
  readiness: () => Promise<Readiness>;
  metrics: Metrics;
  document: Buffer;
  events: Buffer;
  schemas: Buffer;
};

/** Routes for monitoring and documentation. They are also answered while the process drains. */
export const monitoringRoutes = ({ readiness, metrics, document, events, schemas }: Dependencies): Router => {
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

  const documentOf =
    (bytes: Buffer): RequestHandler =>
    (_req, res) =>
      sendBytes(res.type('application/json'), bytes);

  const router = Router({ caseSensitive: true });
  mount(router, [
    { operation: monitoringOperations.health, handlers: [health] },
    { operation: monitoringOperations.readiness, handlers: [ready] },
    { operation: monitoringOperations.metrics, handlers: [metricsText] },
    { operation: monitoringOperations.openApi, handlers: [documentOf(document)] },
    { operation: monitoringOperations.asyncApi, handlers: [documentOf(events)] },
    { operation: monitoringOperations.eventSchemas, handlers: [documentOf(schemas)] },
  ]);
  return router;
};
