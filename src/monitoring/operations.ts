import * as z from 'zod';
import { publicOperation } from '../assistants/operation.ts';
import { ErrorBody } from '../platform/errors.ts';

const Readiness = z
  .object({ ready: z.boolean(), checks: z.record(z.string(), z.string()) })
  .meta({ id: 'Readiness', description: 'Each check is `ok`, or says what is wrong.' });
const Unready = z.object({ ...ErrorBody.shape, ...Readiness.shape }).meta({ id: 'Unready' });

const common = { method: 'get', tag: 'Operation', auth: 'none' } as const;

/**
 * Operations for monitoring and documentation. They are answered while the process drains too (docs/contract.md, Health
 * and metrics).
 */
export const monitoringOperations = {
  health: publicOperation({
    ...common,
    path: '/healthz',
    id: 'getHealth',
    summary: 'The process lives',
    answer: z.object({ status: z.literal('ok') }),
    answerDescription: 'It does.',
  }),
  readiness: publicOperation({
    ...common,
    path: '/readyz',
    id: 'getReadiness',
    summary: 'The process can take requests',
    answer: Readiness,
    answerDescription: 'It can.',
    otherAnswers: {
      503: {
        description: 'MongoDB or Redis is away, or the process is draining.',
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
    summary: 'Numbers for Prometheus',
    description:
      'For a loopback peer without a proxy, or with `METRICS_TOKEN`; for everybody else there is nothing here.',
    answer: z.string(),
    answerDescription: 'The text format of Prometheus.',
    contentType: 'text/plain',
    errors: ['not_found'],
  }),
  openApi: publicOperation({
    ...common,
    path: '/openapi.json',
    id: 'getOpenApi',
    summary: 'This document',
    answer: z.looseObject({ openapi: z.string() }),
    answerDescription: 'OpenAPI 3.1.',
  }),
  reference: publicOperation({
    ...common,
    path: '/docs',
    id: 'getReference',
    summary: 'This document, to read',
    answer: z.string(),
    answerDescription: 'A page without scripts.',
    contentType: 'text/html',
  }),
};
