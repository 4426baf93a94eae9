import * as z from 'zod';
import type { ZodOpenApiPathsObject } from 'zod-openapi';
import { ErrorBody } from '../platform/errors.ts';
import { problems, unlimited } from './responses.ts';

const tags = ['Operation'];
const JSON_TYPE = 'application/json';

const Readiness = z
  .object({ ready: z.boolean(), checks: z.record(z.string(), z.string()) })
  .meta({ id: 'Readiness', description: 'Each check is `ok`, or says what is wrong.' });
const Unready = z.object({ ...ErrorBody.shape, ...Readiness.shape }).meta({ id: 'Unready' });

/** For those who run the service (contract §9). */
export const operationPaths: ZodOpenApiPathsObject = {
  '/healthz': {
    get: {
      operationId: 'getHealth',
      summary: 'The process lives',
      tags,
      security: [],
      responses: { '200': unlimited(JSON_TYPE, z.object({ status: z.literal('ok') }), 'It does.') },
    },
  },
  '/readyz': {
    get: {
      operationId: 'getReadiness',
      summary: 'The process can take requests',
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
      summary: 'Numbers for Prometheus',
      description:
        'For a loopback peer without a proxy, or with `METRICS_TOKEN`; for everybody else there is nothing here.',
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
      summary: 'This document',
      tags,
      security: [],
      responses: { '200': unlimited(JSON_TYPE, z.looseObject({ openapi: z.string() }), 'OpenAPI 3.1.') },
    },
  },
  '/docs': {
    get: {
      operationId: 'getReference',
      summary: 'This document, to read',
      tags,
      security: [],
      responses: { '200': unlimited('text/html', z.string(), 'A page without scripts.') },
    },
  },
};
