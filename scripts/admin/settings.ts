import { existsSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseEnv } from 'node:util';
import * as z from 'zod';
import { Failure } from './failure.ts';

/** The part of the running quickstart's state file that commands need. */
const QuickstartState = z.object({
  mongodbUrl: z.string(),
  redisUrl: z.string(),
  baseUrl: z.string().optional(),
  operatorToken: z.string().optional(),
});

export type Settings = {
  environment: Record<string, string | undefined>;
  /** The API's address and the operator token for it. The address is null if it is unknown. */
  baseUrl: string | null;
  operatorToken: string | undefined;
  /** The source of the MongoDB and Redis addresses, for messages. */
  source: string;
};

const readState = (path: string): z.infer<typeof QuickstartState> | null => {
  if (!existsSync(path)) return null;
  try {
    return QuickstartState.parse(JSON.parse(readFileSync(path, 'utf8')));
  } catch (cause) {
    throw new Failure('configuration', `${path} is not what a quickstart writes: remove it, or start the quickstart.`, {
      cause,
    });
  }
};

const readSecrets = (path: string): Record<string, string | undefined> =>
  existsSync(path) ? parseEnv(readFileSync(path, 'utf8')) : {};

/**
 * The API's address and token from the environment. The quickstart's token is used only with the quickstart's address.
 */
const apiOf = (
  { PARLEY_URL, OPERATOR_TOKEN }: Record<string, string | undefined>,
  its: { baseUrl: string | null; operatorToken?: string | undefined },
): Pick<Settings, 'baseUrl' | 'operatorToken'> => {
  const isIts = PARLEY_URL === undefined || PARLEY_URL === its.baseUrl;
  return {
    baseUrl: PARLEY_URL?.replace(/\/$/, '') ?? its.baseUrl,
    operatorToken: OPERATOR_TOKEN ?? (isIts ? its.operatorToken : undefined),
  };
};

/**
 * Settings from the environment, or from the running quickstart. The quickstart's encryption key, and its permission to
 * deliver to this machine, are used only with the quickstart's own MongoDB.
 */
export const findSettings = (environment: Record<string, string | undefined>, root: string): Settings => {
  const given = Object.fromEntries(Object.entries(environment).filter(([, value]) => value !== ''));
  const folder = resolve(root, given['LOCAL_DIR'] ?? '.local');
  const path = join(folder, 'quickstart.json');
  const alone = { environment: given, ...apiOf(given, { baseUrl: null }), source: 'the environment' };
  const { MONGODB_URL, REDIS_URL } = given;

  const state = readState(path);
  if (!state) return alone;
  const isItsMongodb = MONGODB_URL === undefined || MONGODB_URL === state.mongodbUrl;
  if (!isItsMongodb && REDIS_URL !== undefined) return alone;
  const its = { ...readSecrets(join(folder, 'env')), WEBHOOK_ALLOW_PRIVATE: 'true', MONGODB_URL: state.mongodbUrl };
  return {
    environment: { ...(isItsMongodb && its), REDIS_URL: state.redisUrl, ...given },
    ...apiOf(given, isItsMongodb ? { ...state, baseUrl: state.baseUrl ?? null } : { baseUrl: null }),
    source: MONGODB_URL !== undefined && REDIS_URL !== undefined ? 'the environment' : path,
  };
};
