import type { Connection } from 'mongoose';
import { openOperators, type OperatorStores } from '../../src/operators/store.ts';
import type { Config } from '../../src/platform/process/config.ts';
import { secretsIn } from '../../src/platform/process/credentials.ts';
import type { Lifecycle } from '../../src/platform/process/lifecycle.ts';
import { type Logger, plainMessage } from '../../src/platform/process/logger.ts';
import { openMongo } from '../../src/platform/mongo/mongo.ts';
import { openService, type Service } from '../../src/service.ts';
import { Failure } from './failure.ts';
import type { Settings } from './settings.ts';

// The few commands that open MongoDB or Redis themselves load this file. The others call the API and start faster.

/** The parameters of a command that opens stores itself. */
export type CommandContext = { config: Config; settings: Settings; logger: Logger; lifecycle: Lifecycle };

export type Opened = Service & { config: Config };

const OPEN_WITHIN_MS = 2_000;

const serviceAt = ({ name, message }: Error): string | null => {
  if (name.startsWith('Mongo')) return 'MongoDB';
  return message.startsWith('Redis') ? 'Redis' : null;
};

/** Turns a connection error into a message that names the unavailable store. Other errors are returned unchanged. */
const toUnavailable = ({ source, environment }: Settings, cause: unknown): unknown => {
  const secrets = secretsIn(environment);
  const which = cause instanceof Error ? serviceAt(cause) : null;
  if (!(cause instanceof Error) || which === null) return cause;
  const reason = plainMessage(cause.message, secrets).replace(/\.$/, '');
  return new Failure('unavailable', `${which} cannot be used at the address of ${source}: ${reason}.`, { cause });
};

export const openForCommand = async ({ config, settings, logger, lifecycle }: CommandContext): Promise<Opened> => {
  try {
    const service = await openService({ config, logger, lifecycle, redisRole: 'api', startWithinMs: OPEN_WITHIN_MS });
    return { ...service, config };
  } catch (cause) {
    throw toUnavailable(settings, cause);
  }
};

/** Opens MongoDB alone. */
export const withMongo = async <Value>(
  { config, settings, logger, lifecycle }: CommandContext,
  work: (mongo: Connection) => Promise<Value>,
): Promise<Value> => {
  try {
    const mongo = await openMongo({ url: config.MONGODB_URL, timeoutMs: OPEN_WITHIN_MS, maxPoolSize: 2 }, logger);
    lifecycle.add('mongodb', mongo, (opened) => opened.close());
    return await work(mongo);
  } catch (cause) {
    throw toUnavailable(settings, cause);
  }
};

/**
 * Opens the stores of operators and tokens without the API. They are needed to create the first operator and the first
 * token, before anybody can sign in.
 */
export const withOperatorStores = <Value>(
  context: CommandContext,
  work: (opened: OperatorStores) => Promise<Value>,
): Promise<Value> => withMongo(context, async (mongo) => work(await openOperators(mongo)));
