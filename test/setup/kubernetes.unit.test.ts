import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { parseAllDocuments } from 'yaml';
import * as z from 'zod';
import { readConfig } from '../../src/platform/process/config.ts';
import { TIMING } from '../../src/platform/process/time-limits.ts';

const ROOT = join(import.meta.dirname, '../..');
const BASE = join(ROOT, 'deploy/kubernetes/base');
const documentsIn = (file: string): unknown[] =>
  parseAllDocuments(readFileSync(file, 'utf8')).map((one) => one.toJS() as unknown);

const Selected = z.object({ 'app.kubernetes.io/component': z.string() });
const Probe = (path: string) => z.object({ httpGet: z.object({ path: z.literal(path), port: z.literal('http') }) });

/** What each process must have, by the field's rules for pods that need no rights. */
const Deployment = z.object({
  kind: z.literal('Deployment'),
  metadata: z.object({ name: z.string() }),
  spec: z.object({
    selector: z.object({ matchLabels: Selected }),
    template: z.object({
      metadata: z.object({ labels: Selected }),
      spec: z.object({
        automountServiceAccountToken: z.literal(false),
        terminationGracePeriodSeconds: z.number().min(TIMING.shutdownDeadlineMs / 1000 + 5),
        securityContext: z.object({ runAsNonRoot: z.literal(true), seccompProfile: z.object({ type: z.string() }) }),
        containers: z.tuple([
          z.object({
            command: z.tuple([z.literal('node'), z.string().refine((file) => existsSync(join(ROOT, file)))]),
            env: z.tuple([z.object({ name: z.string(), value: z.string() })]),
            ports: z.tuple([z.object({ name: z.literal('http'), containerPort: z.number() })]),
            startupProbe: Probe('/healthz'),
            livenessProbe: Probe('/healthz'),
            readinessProbe: Probe('/readyz'),
            resources: z.object({ requests: z.object({ cpu: z.string() }), limits: z.object({ memory: z.string() }) }),
            securityContext: z.object({
              allowPrivilegeEscalation: z.literal(false),
              readOnlyRootFilesystem: z.literal(true),
              capabilities: z.object({ drop: z.tuple([z.literal('ALL')]) }),
            }),
          }),
        ]),
      }),
    }),
  }),
});
const Kustomization = z.object({
  resources: z.array(z.string()),
  images: z.tuple([z.object({ newTag: z.string() })]),
  configMapGenerator: z.tuple([z.object({ literals: z.array(z.string()) })]),
});

const kustomization = Kustomization.parse(documentsIn(join(BASE, 'kustomization.yaml'))[0]);
const processes = ['api', 'reply-worker', 'delivery-worker', 'sources-worker'];

test('the base lists every file of its folder', () => {
  const files = readdirSync(BASE).filter((name) => name !== 'kustomization.yaml');
  expect(kustomization.resources.toSorted()).toEqual(files.toSorted());
});

test.for(processes)('%s runs without rights, drains, is probed and scales', (name) => {
  const [first, ...others] = documentsIn(join(BASE, `${name}.yaml`));
  const { metadata, spec } = Deployment.parse(first);
  const { containers } = spec.template.spec;
  const labels = { 'app.kubernetes.io/component': name };

  expect([metadata.name, spec.selector.matchLabels, spec.template.metadata.labels]).toEqual([name, labels, labels]);
  expect(containers[0].env[0].value).toBe(String(containers[0].ports[0].containerPort));
  expect(others).toMatchObject([
    { kind: 'PodDisruptionBudget', metadata: { name }, spec: { selector: { matchLabels: labels } } },
    { kind: 'HorizontalPodAutoscaler', metadata: { name }, spec: { scaleTargetRef: { kind: 'Deployment', name } } },
  ]);
});

test('the processes start with these settings and the secret that the base names', () => {
  const literals = kustomization.configMapGenerator[0].literals.map((line) => line.split('='));
  const secret = { ENCRYPTION_KEY: Buffer.alloc(32).toString('base64'), METRICS_TOKEN: 'm'.repeat(32) };
  const stores = { MONGODB_URL: 'mongodb://mongo:27017/parley?replicaSet=rs0', REDIS_URL: 'redis://redis:6379' };
  const text = readFileSync(join(BASE, 'kustomization.yaml'), 'utf8');

  const config = readConfig({ ...Object.fromEntries(literals), ...secret, ...stores, PORT: '3000' });

  expect(config).toBeDefined();
  for (const name of Object.keys({ ...secret, ...stores })) expect(text).toContain(name);
  expect(readFileSync(join(ROOT, 'docker-compose.yml'), 'utf8')).toContain(`parley:${kustomization.images[0].newTag}`);
});
