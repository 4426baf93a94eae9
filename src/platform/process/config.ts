import * as z from 'zod';
import { withoutCredentials } from './credentials.ts';
import { TIMING, type Timing, timingProblems } from './time-limits.ts';
import { check } from './validation.ts';

const flag = (byDefault: boolean) => z.stringbool().default(byDefault).meta({ values: '`true`, `false`' });
const count = (byDefault: number, min = 1, max = 1_000_000) =>
  z.coerce.number().int().min(min).max(max).default(byDefault);
const text = z.string().trim().min(1);
const shown = (number: number): string => number.toLocaleString('en');

const encryptionKeys = z.string().transform((value, context) => {
  const keys = value.split(',').map((part, index) => {
    const [id, encoded] = part.includes(':') ? (part.split(':') as [string, string]) : [`k${index + 1}`, part];
    return { id: id.trim(), key: Buffer.from(encoded, 'base64') };
  });
  if (keys.some(({ key }) => key.length !== 32)) {
    context.addIssue({
      code: 'custom',
      message: 'must be 32 bytes in base64, or several, separated by commas',
    });
  }
  return keys;
});

/** A key that everyone can read. Only for a developer's machine. */
const DEVELOPMENT_KEY = Buffer.alloc(32, 'parley development key').toString('base64');

const trustProxy = z.string().transform((value) => {
  if (value === 'true') return true;
  if (value === 'false' || value === '') return false;
  return /^\d+$/.test(value) ? Number(value) : value;
});

/**
 * Every environment variable of the service. docs/settings.md is generated from this schema: `otherwise` describes a
 * default that is not one value, and `values` describes the allowed texts.
 */
export const Environment = z.object({
  NODE_ENV: z.enum(['development', 'production', 'test']).default('development').meta({
    group: 'Process',
    description:
      '`production` refuses to start on plain HTTP, without `ENCRYPTION_KEY`, or with `WEBHOOK_ALLOW_PRIVATE`.',
  }),
  LOG_LEVEL: z.enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']).default('info').meta({
    group: 'Process',
    description: 'Logs are JSON lines on standard output.',
  }),
  WORKER_HEALTH_PORT: count(0, 0, 65_535).meta({
    group: 'Process',
    description:
      'The port of a worker’s `/healthz`, `/readyz` and `/metrics`. 0 takes a free one, which the log names.',
  }),
  METRICS_TOKEN: text.optional().meta({
    group: 'Process',
    description: 'A request with this Bearer may read `/metrics` from another machine.',
  }),
  SHUTDOWN_GRACE_MS: count(TIMING.shutdownGraceMs, 0).meta({
    group: 'Process',
    description: 'How long a stopping API process still answers 503, so that a load balancer notices.',
    values: `0–${shown(TIMING.replyStopAfterMs - 1)}`,
  }),
  SHUTDOWN_DEADLINE_MS: count(TIMING.shutdownDeadlineMs, 100).meta({
    group: 'Process',
    description: 'After this time a draining process that hangs is ended.',
    values: `from ${shown(TIMING.providerStopAfterMs + 1)}`,
  }),

  HOST: text.optional().meta({
    group: 'Network',
    description: 'The address to listen on.',
    otherwise: '`127.0.0.1`; in production `0.0.0.0`',
  }),
  PORT: count(3000, 0, 65_535).meta({ group: 'Network', description: 'The API’s port. 0 takes a free one.' }),
  PUBLIC_URL: z
    .url({ protocol: /^https?$/ })
    .optional()
    .meta({
      group: 'Network',
      description:
        'The API’s address from outside, behind a proxy that rewrites `Host`. `/openapi.json` names it, and the dashboard may be used from it.',
    }),
  TLS_CERT_FILE: text.optional().meta({
    group: 'Network',
    description: 'A PEM file. The API then terminates TLS itself, 1.3 only. Needs `TLS_KEY_FILE`.',
  }),
  TLS_KEY_FILE: text.optional().meta({ group: 'Network', description: 'Its key, a PEM file.' }),
  TLS_TERMINATED_UPSTREAM: flag(false).meta({
    group: 'Network',
    description: '`true`: a proxy in front terminates TLS 1.3.',
  }),
  TRUST_PROXY: trustProxy.default(false).meta({
    group: 'Network',
    description: 'Whose `X-Forwarded-For` to believe.',
    values: '`true`, `false`, a number of proxies, or addresses',
  }),

  MONGODB_URL: text.default('mongodb://127.0.0.1:27017/parley?replicaSet=rs0').meta({
    group: 'Stores',
    description: 'MongoDB 6 or later, a replica set. One member is enough.',
  }),
  REDIS_URL: text.default('redis://127.0.0.1:6379').meta({
    group: 'Stores',
    description:
      'Redis 6.2 or later with `maxmemory-policy noeviction`. Sentinels: `redis+sentinel://:password@host:26379,host:26379/name-of-the-master`. A cluster: `redis+cluster://:password@host:6379,host:6379`, some of its nodes. With TLS: `rediss…`.',
  }),
  REDIS_PREFIX: z
    .string()
    .regex(/^[a-z0-9-]{1,40}$/, 'must be 1–40 of a–z, 0–9 and -')
    .default('parley')
    .meta({
      group: 'Stores',
      description: 'The first part of every Redis key, for several services on one Redis.',
      values: '1–40 of `a`–`z`, `0`–`9` and `-`',
    }),
  PARTITIONS: count(1, 1, 256).meta({
    group: 'Stores',
    description:
      'Groups of queues, each on one hash slot. The same for all processes; on a cluster, at least three for each master.',
  }),
  ENCRYPTION_KEY: encryptionKeys.optional().meta({
    group: 'Stores',
    description:
      'Encrypts stored secrets: 32 random bytes in base64 (`openssl rand -base64 32`), or several, separated by commas. The first one encrypts, each decrypts. See [Change the key](operating.md#change-the-key).',
    otherwise: 'a key that everybody can read; in production required',
  }),

  REPLY_TIMEOUT_MS: count(TIMING.replyTimeoutMs, 100).meta({
    group: 'Replies',
    description: 'How long a caller waits for its reply before 500 `reply_timeout`. The turn goes on.',
    values: `100–${shown(TIMING.resumableForMs - 1)}`,
  }),
  REPLY_CONCURRENCY: count(64).meta({
    group: 'Replies',
    description:
      'Jobs of a reply worker at a time. Four times as many turns may wait for providers, of one assistant at most three eighths, half of that if it is slow, and a quarter if it takes longer than 8 s.',
  }),
  SEMANTIC: z.enum(['auto', 'on', 'off']).default('auto').meta({
    group: 'Replies',
    description:
      'Search by meaning. `auto`: if there is a model. `on`: the doctor reports a missing model. `off`: by words alone.',
  }),
  SEMANTIC_DIR: text.optional().meta({
    group: 'Replies',
    description: 'The folder with the local model.',
    otherwise: 'set by the launcher (`.local/semantic`); else none',
  }),
  SEMANTIC_MODEL: text.optional().meta({
    group: 'Replies',
    description:
      'A folder with [a model of your choice](../packages/understanding/semantic-search.md#a-model-of-your-choice) in place of it. The same for all processes.',
  }),
  SEMANTIC_PROCESSES: z.coerce.number().int().min(1).max(64).optional().meta({
    group: 'Replies',
    description: 'Processes in which a reply worker runs the local model, each on one core and with 150 MB.',
    otherwise: 'a quarter of the cores, at least 1 and at most 8',
  }),
  SEMANTIC_WAIT_MS: count(400, 0, 2_000).meta({
    group: 'Replies',
    description: 'If a turn is expected to wait longer for the model, words alone decide, at once.',
  }),
  EMBEDDINGS_URL: z
    .url({ protocol: /^https?$/ })
    .optional()
    .meta({
      group: 'Replies',
      description:
        'The base URL (`…/v1`) of an OpenAI-compatible service in place of the local model. Public and `https`, unless `WEBHOOK_ALLOW_PRIVATE`. Needs `EMBEDDINGS_MODEL`.',
    }),
  EMBEDDINGS_MODEL: text.optional().meta({ group: 'Replies', description: 'Its model.' }),
  EMBEDDINGS_KEY: text.optional().meta({ group: 'Replies', description: 'Its key.' }),

  SOURCES_CONCURRENCY: count(8).meta({
    group: 'Sources',
    description:
      'Websites and files that a sources worker reads at a time. An assistant has as many as stay free, and at least a quarter.',
  }),

  WEBHOOK_ALLOW_PRIVATE: flag(false).meta({
    group: 'Deliveries',
    description:
      '`true`: endpoints may be `http`, and endpoints and websites at private addresses. Refused in production.',
  }),
  DELIVERY_CONCURRENCY: count(256).meta({
    group: 'Deliveries',
    description: 'Requests of a delivery worker that may be in flight.',
  }),
  ENDPOINT_CONCURRENCY: count(20).meta({ group: 'Deliveries', description: 'Of these, requests to one endpoint.' }),
  EVENT_MAX_AGE_S: count(TIMING.eventMaxAgeS).meta({
    group: 'Deliveries',
    description: 'An event that is not sent after so many seconds ends `not_sent: expired`.',
  }),
  DELIVERY_RETENTION_DAYS: count(TIMING.deliveryRetentionDays, 1, 3650).meta({
    group: 'Deliveries',
    description: 'How long records of deliveries are kept. Longer than `EVENT_MAX_AGE_S`.',
  }),

  ALERT_WEBHOOK_URL: z
    .url({ protocol: /^https?$/ })
    .optional()
    .meta({
      group: 'Alerts',
      description: 'Where alerts are sent, signed like events. Needs `ALERT_WEBHOOK_SECRET`.',
    }),
  ALERT_WEBHOOK_SECRET: text.optional().meta({ group: 'Alerts', description: 'The secret that signs them.' }),
  ALERT_SMTP_URL: z
    .url({ protocol: /^smtps?$/ })
    .optional()
    .meta({
      group: 'Alerts',
      description: 'A mail server, as `smtp://user:password@host:587`. Needs `ALERT_EMAIL_FROM` and `ALERT_EMAIL_TO`.',
    }),
  ALERT_EMAIL_FROM: text.optional().meta({ group: 'Alerts', description: 'The sender of alerts by email.' }),
  ALERT_EMAIL_TO: text.optional().meta({ group: 'Alerts', description: 'Who gets them, separated by commas.' }),

  OTEL_EXPORTER_OTLP_ENDPOINT: z
    .url({ protocol: /^https?$/ })
    .optional()
    .meta({
      group: 'Traces',
      description:
        'The OpenTelemetry collector that gets [traces](operating.md#traces), by OTLP over HTTP with JSON. Without it there are none.',
    }),
  OTEL_SERVICE_NAME: text.optional().meta({
    group: 'Traces',
    description: 'The name of this process in traces.',
    otherwise: '`parley-api`, `parley-reply-worker`, `parley-delivery-worker`; one process: `parley`',
  }),
  OTEL_TRACES_SAMPLER: z
    .enum([
      'always_on',
      'always_off',
      'traceidratio',
      'parentbased_always_on',
      'parentbased_always_off',
      'parentbased_traceidratio',
    ])
    .default('parentbased_always_on')
    .meta({
      group: 'Traces',
      description: 'Which traces are recorded. `parentbased_…` obeys the caller’s `traceparent`.',
    }),
  OTEL_TRACES_SAMPLER_ARG: z.coerce.number().min(0).max(1).default(1).meta({
    group: 'Traces',
    description: 'The part that `…traceidratio` records.',
  }),
  WEBHOOK_TRACEPARENT: flag(false).meta({
    group: 'Traces',
    description: '`true`: events carry `traceparent` if their trace is recorded, so that receivers go on with it.',
  }),
});

export const CONFIG_NAMES: readonly string[] = Object.keys(Environment.shape);

export type Config = Omit<z.infer<typeof Environment>, 'ENCRYPTION_KEY' | 'HOST'> & {
  ENCRYPTION_KEY: { id: string; key: Buffer }[];
  HOST: string;
  production: boolean;
  timing: Timing;
};

/** The configuration is invalid, so the process must not start. The message has one line per problem. */
export class ConfigError extends Error {}

const refusedInProduction = (env: z.infer<typeof Environment>): string[] => {
  const problems: string[] = [];
  const tls = env.TLS_CERT_FILE !== undefined;
  if (!tls && !env.TLS_TERMINATED_UPSTREAM) {
    problems.push('TLS_CERT_FILE: production needs TLS_CERT_FILE and TLS_KEY_FILE, or TLS_TERMINATED_UPSTREAM=true');
  }
  if (!env.ENCRYPTION_KEY) problems.push('ENCRYPTION_KEY: production needs one (32 random bytes in base64)');
  if (env.WEBHOOK_ALLOW_PRIVATE) problems.push('WEBHOOK_ALLOW_PRIVATE: not allowed in production');
  return problems;
};

/**
 * Parses the whole configuration from the environment, once. An empty variable counts as missing. Tests shorten the
 * time limits that `changed` names. Throws a ConfigError with one line per problem.
 */
export const readConfig = (environment: Record<string, string | undefined>, changed: Partial<Timing> = {}): Config => {
  const timing = { ...TIMING, ...changed };
  const given = Object.fromEntries(Object.entries(environment).filter(([, value]) => value !== ''));
  const parsed = check(Environment, given);
  if (!parsed.success) {
    throw new ConfigError(parsed.error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`).join('\n'));
  }
  const env = parsed.data;
  const production = env.NODE_ENV === 'production';
  const problems = [...(production ? refusedInProduction(env) : []), ...timingProblems(env, timing)];
  if ((env.TLS_CERT_FILE === undefined) !== (env.TLS_KEY_FILE === undefined)) {
    problems.push('TLS_CERT_FILE: TLS_CERT_FILE and TLS_KEY_FILE go together');
  }
  if ((env.EMBEDDINGS_URL === undefined) !== (env.EMBEDDINGS_MODEL === undefined)) {
    problems.push('EMBEDDINGS_URL: EMBEDDINGS_URL and EMBEDDINGS_MODEL go together');
  }
  if (env.EMBEDDINGS_URL !== undefined && env.SEMANTIC_MODEL !== undefined) {
    problems.push('SEMANTIC_MODEL: SEMANTIC_MODEL and EMBEDDINGS_URL exclude each other');
  }
  if ((env.ALERT_WEBHOOK_URL === undefined) !== (env.ALERT_WEBHOOK_SECRET === undefined)) {
    problems.push('ALERT_WEBHOOK_URL: ALERT_WEBHOOK_URL and ALERT_WEBHOOK_SECRET go together');
  }
  if (
    new Set([env.ALERT_SMTP_URL, env.ALERT_EMAIL_FROM, env.ALERT_EMAIL_TO].map((one) => one === undefined)).size > 1
  ) {
    problems.push('ALERT_SMTP_URL: ALERT_SMTP_URL, ALERT_EMAIL_FROM and ALERT_EMAIL_TO go together');
  }
  if (problems.length > 0) throw new ConfigError(problems.join('\n'));
  return {
    ...env,
    timing,
    production,
    HOST: env.HOST ?? (production ? '0.0.0.0' : '127.0.0.1'),
    ENCRYPTION_KEY: env.ENCRYPTION_KEY ?? [{ id: 'development', key: Buffer.from(DEVELOPMENT_KEY, 'base64') }],
  };
};

const SECRET_NAMES = new Set([
  'ENCRYPTION_KEY',
  'METRICS_TOKEN',
  'EMBEDDINGS_KEY',
  'ALERT_WEBHOOK_URL',
  'ALERT_WEBHOOK_SECRET',
]);

/** Settings as values and secrets as "configured", for the log line at start. */
export const describeConfig = ({ timing: _timing, ...settings }: Config): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(settings).map(([name, value]) => {
      if (SECRET_NAMES.has(name)) return [name, value === undefined ? 'missing' : 'configured'];
      if (/_(URL|ENDPOINT)$/.test(name) && typeof value === 'string') return [name, withoutCredentials(value)];
      return [name, value];
    }),
  );
