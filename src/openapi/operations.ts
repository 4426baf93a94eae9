import * as z from 'zod';
import type { ZodOpenApiPathsObject } from 'zod-openapi';
import { ErrorBody } from '../platform/errors.ts';
import { problems, unlimited } from './responses.ts';

const tags = ['Operation'];
const JSON_TYPE = 'application/json';

const Readiness = z
  .object({ ready: z.boolean(), checks: z.record(z.string(), z.string()) })
  .meta({ id: 'Readiness', description: 'Each check is `ok` or the problem.' });
const Unready = z.object({ ...ErrorBody.shape, ...Readiness.shape }).meta({ id: 'Unready' });

/** For those who run the service (contract §9). */
export const operationPaths: ZodOpenApiPathsObject = {
  '/healthz': {
    get: {
      operationId: 'getHealth',
      summary: 'Check that the process is alive',
      tags,
      security: [],
      responses: { '200': unlimited(JSON_TYPE, z.object({ status: z.literal('ok') }), 'It is alive.') },
    },
  },
  '/readyz': {
    get: {
      operationId: 'getReadiness',
      summary: 'Check that the process can take requests',
      tags,
      security: [],
      responses: {
        '200': unlimited(JSON_TYPE, Readiness, 'It can.'),
        '503': unlimited(JSON_TYPE, Unready, 'MongoDB or Redis is away, or the process is draining.'),
      },
    },
  },
  '/metrics': {
    get: {
      operationId: 'getMetrics',
      summary: 'Get metrics for Prometheus',
      description: 'Only for loopback clients without a proxy, or with `METRICS_TOKEN`. Everyone else gets 404.',
      tags,
      security: [{ metricsToken: [] }, {}],
      responses: {
        '200': unlimited('text/plain', z.string(), 'The text format of Prometheus.'),
        ...problems('not_found'),
      },
    },
  },
  '/openapi.json': {
    get: {
      operationId: 'getOpenApi',
      summary: 'Get this document',
      tags,
      security: [],
      responses: { '200': unlimited(JSON_TYPE, z.looseObject({ openapi: z.string() }), 'OpenAPI 3.1.') },
    },
  },
  '/docs': {
    get: {
      operationId: 'getReference',
      summary: 'Read this document as a web page',
      tags,
      security: [],
      responses: { '200': unlimited('text/html', z.string(), 'A page without scripts.') },
    },
  },
};
