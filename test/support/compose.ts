import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseEnv } from 'node:util';
import { parse } from 'yaml';
import * as z from 'zod';

const FILE = join(import.meta.dirname, '../../docker-compose.yml');

const Service = z.object({
  build: z.string().optional(),
  image: z.string(),
  command: z.array(z.string()).min(1),
  env_file: z.array(z.object({ path: z.string(), required: z.boolean() })).default([]),
  environment: z.record(z.string(), z.string()).default({}),
  ports: z.array(z.string()).default([]),
  read_only: z.boolean().default(false),
  tmpfs: z.array(z.string()).default([]),
  cap_drop: z.array(z.string()).default([]),
  security_opt: z.array(z.string()).default([]),
  stop_grace_period: z.string().optional(),
  healthcheck: z.object({ test: z.tuple([z.literal('CMD'), z.string()], z.string()) }),
});
const Compose = z.object({ services: z.record(z.string(), Service) });

type ComposeService = z.infer<typeof Service>;
export type Given = {
  /** The content of `.env`. */
  dotEnv?: string;
  shell?: Record<string, string>;
};

const VARIABLE = /\$(?:\{([A-Z_]+)(?:(:[-?])([^}]*))?\}|(.?))/g;

/** Replaces `${A}`, `${A:-default}` and `${A:?message}` like Compose. Any other `$` is an error. */
const interpolate = (text: string, known: Record<string, string | undefined>): string =>
  text.replaceAll(VARIABLE, (all, name?: string, operator?: string, word = '', next?: string) => {
    if (next === '$') return '$';
    if (name === undefined) throw new Error(`invalid interpolation at ${all} in ${text}`);
    const value = known[name] ?? '';
    if (operator === ':?' && value === '') throw new Error(`${name}: ${word}`);
    return operator === ':-' && value === '' ? word : value;
  });

const interpolated = (value: unknown, known: Record<string, string | undefined>): unknown => {
  if (typeof value === 'string') return interpolate(value, known);
  if (Array.isArray(value)) return value.map((item) => interpolated(item, known));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, interpolated(inner, known)]));
};

/** The services of the compose file with this `.env` and shell. Variables of the shell override the `.env`. */
export const readCompose = ({ dotEnv, shell = {} }: Given): Record<string, ComposeService> => {
  const known = { ...parseEnv(dotEnv ?? ''), ...shell };
  return Compose.parse(interpolated(parse(readFileSync(FILE, 'utf8'), { merge: true }), known)).services;
};

/** The environment of a container: its `env_file`, then `environment` of the compose file. */
export const environmentOf = ({ env_file, environment }: ComposeService, { dotEnv }: Given): Record<string, string> => {
  if (dotEnv === undefined && env_file.some(({ required }) => required)) throw new Error('.env is required');
  const fromFiles = env_file.map(({ path }) => (path === '.env' ? parseEnv(dotEnv ?? '') : {}));
  return Object.assign({}, ...fromFiles, environment) as Record<string, string>;
};

export const ownServices = (services: Record<string, ComposeService>): [string, ComposeService][] =>
  Object.entries(services).filter(([, { build }]) => build !== undefined);
