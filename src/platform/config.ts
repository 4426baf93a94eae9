import * as z from 'zod';
import { withoutCredentials } from './credentials.ts';
import { TIMING, type Timing, timingProblems } from './timing.ts';
import { check } from './validation.ts';

const flag = (byDefault: boolean) => z.stringbool().default(byDefault);
const count = (byDefault: number, min = 1, max = 1_000_000) =>
  z.coerce.number().int().min(min).max(max).default(byDefault);
const text = z.string().trim().min(1);

const encryptionKeys = z.string().transform((value, context) => {
  const keys = value.split(',').map((part, index) => {
    const [id, encoded] = part.includes(':') ? (part.split(':') as [string, string]) : [`k${index + 1}`, part];
    return { id: id.trim(), key: Buffer.from(encoded, 'base64') };
  });
  if (keys.some(({ key }) => key.length !== 32)) {
    context.addIssue({
      code: 'custom',
      message: 'must be 32 bytes in base64, or a list id:base64,id:base64 (newest first)',
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

const Environment = z.object({
  NODE_ENV: z.enum(['development', 'production', 'test']).default('development'),
  LOG_LEVEL: z.enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']).default('info'),
  HOST: text.optional(),
  PORT: count(3000, 0, 65_535),
  PUBLIC_URL: z.url({ protocol: /^https?$/ }).optional(),
  MONGODB_URL: text.default('mongodb://127.0.0.1:27017/parley?replicaSet=rs0'),
  REDIS_URL: text.default('redis://127.0.0.1:6379'),
  REDIS_PREFIX: z
    .string()
    .regex(/^[a-z0-9-]{1,40}$/, 'must be 1–40 of a–z, 0–9 and -')
    .default('parley'),
  PARTITIONS: count(1, 1, 256),
  ENCRYPTION_KEY: encryptionKeys.optional(),
  TLS_CERT_FILE: text.optional(),
  TLS_KEY_FILE: text.optional(),
  TLS_TERMINATED_UPSTREAM: flag(false),
  TRUST_PROXY: trustProxy.default(false),
  METRICS_TOKEN: text.optional(),
  REPLY_TIMEOUT_MS: count(TIMING.replyTimeoutMs, 100),
  REPLY_CONCURRENCY: count(64),
  SEMANTIC: z.enum(['auto', 'on', 'off']).default('auto'),
  SEMANTIC_DIR: text.optional(),
  EMBEDDINGS_URL: z.url({ protocol: /^https?$/ }).optional(),
  EMBEDDINGS_MODEL: text.optional(),
  EMBEDDINGS_KEY: text.optional(),
  WEBHOOK_ALLOW_PRIVATE: flag(false),
  DELIVERY_CONCURRENCY: count(256),
  ENDPOINT_CONCURRENCY: count(20),
  EVENT_MAX_AGE_S: count(TIMING.eventMaxAgeS),
  DELIVERY_RETENTION_DAYS: count(TIMING.deliveryRetentionDays, 1, 3650),
  WORKER_HEALTH_PORT: count(0, 0, 65_535),
  SHUTDOWN_GRACE_MS: count(TIMING.shutdownGraceMs, 0),
  SHUTDOWN_DEADLINE_MS: count(TIMING.shutdownDeadlineMs, 100),
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
 * Parses the whole configuration from the environment, once. An empty variable counts as missing. Tests shorten the time
 * limits that `changed` names. Throws a ConfigError with one line per problem.
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
  if (problems.length > 0) throw new ConfigError(problems.join('\n'));
  return {
    ...env,
    timing,
    production,
    HOST: env.HOST ?? (production ? '0.0.0.0' : '127.0.0.1'),
    ENCRYPTION_KEY: env.ENCRYPTION_KEY ?? [{ id: 'development', key: Buffer.from(DEVELOPMENT_KEY, 'base64') }],
  };
};

const SECRET_NAMES = new Set(['ENCRYPTION_KEY', 'METRICS_TOKEN', 'EMBEDDINGS_KEY']);

/** Settings as values and secrets as "configured", for the log line at start. */
export const describeConfig = ({ timing: _timing, ...settings }: Config): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(settings).map(([name, value]) => {
      if (SECRET_NAMES.has(name)) return [name, value === undefined ? 'missing' : 'configured'];
      if (name.endsWith('_URL') && typeof value === 'string') return [name, withoutCredentials(value)];
      return [name, value];
    }),
  );
