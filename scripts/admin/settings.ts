import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseEnv } from 'node:util';
import * as z from 'zod';

/** What the running quickstart says of itself, as far as a command needs it. */
const QuickstartState = z.object({ mongodbUrl: z.string(), redisUrl: z.string(), baseUrl: z.string().optional() });

export type Settings = {
  environment: Record<string, string | undefined>;
  /** The API to ask, where it is known. */
  baseUrl: string | null;
  /** Where the addresses of MongoDB and Redis come from, for messages. */
  source: string;
};

const STATE = '.local/quickstart.json';

const readState = (root: string): z.infer<typeof QuickstartState> | null => {
  const path = join(root, STATE);
  if (!existsSync(path)) return null;
  const parsed = QuickstartState.safeParse(JSON.parse(readFileSync(path, 'utf8')));
  return parsed.success ? parsed.data : null;
};

const readSecrets = (root: string): Record<string, string | undefined> => {
  const path = join(root, '.local/env');
  return existsSync(path) ? parseEnv(readFileSync(path, 'utf8')) : {};
};

/**
 * The environment, else the running quickstart. Its MongoDB brings the key its secrets are sealed with, and the freedom to
 * deliver to this machine; a MongoDB of the environment's has neither.
 */
export const findSettings = (environment: Record<string, string | undefined>, root: string): Settings => {
  const given = Object.fromEntries(Object.entries(environment).filter(([, value]) => value !== ''));
  const state = given['MONGODB_URL'] && given['REDIS_URL'] ? null : readState(root);
  if (!state) return { environment: given, baseUrl: null, source: 'the environment' };
  const ownMongodb = given['MONGODB_URL'] === undefined;
  return {
    environment: {
      ...(ownMongodb && { ...readSecrets(root), WEBHOOK_ALLOW_PRIVATE: 'true', MONGODB_URL: state.mongodbUrl }),
      REDIS_URL: state.redisUrl,
      ...given,
    },
    baseUrl: state.baseUrl ?? null,
    source: STATE,
  };
};
