import { openOperators } from '../../src/operators/open.ts';
import { type Config, readConfig } from '../../src/platform/config.ts';
import { secretsIn } from '../../src/platform/credentials.ts';
import { createLifecycle, type Lifecycle } from '../../src/platform/lifecycle.ts';
import { plainMessage } from '../../src/platform/loggable.ts';
import { createLogger, type Logger } from '../../src/platform/logger.ts';
import { openMongo } from '../../src/platform/mongo.ts';
import { openService, type Service } from '../../src/service.ts';
import { type Api, openApi } from './api.ts';
import { Failure } from './failure.ts';
import { openQueueHandles, type Queues } from './queues.ts';
import type { Settings } from './settings.ts';

/** A command's answer, as JSON and as text. `status` is the exit status. */
export type Answer = { json: unknown; text: string; status?: number };

export type Opened = Service & { config: Config; queues: Queues };

/** Runs a command through the operator API and prints its answer. */
export type Run = (work: (api: Api) => Promise<Answer>) => Promise<void>;

/** The parameters of a local command. */
export type CommandContext = { config: Config; settings: Settings; logger: Logger; lifecycle: Lifecycle };
/**
 * The stores of operators and tokens, opened without the API. They are needed to create the first operator and the
 * first token, before anybody can sign in.
 */
export type OperatorStores = Awaited<ReturnType<typeof openOperators>>;
export type RunLocal = (work: (opened: OperatorStores) => Promise<Answer>) => Promise<void>;
export type RunBare = (work: (bench: CommandContext) => Promise<Answer>) => Promise<void>;

const OPEN_WITHIN_MS = 2_000;
const END_WITHIN_MS = 5_000;

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

export const openForCommand = async (bench: CommandContext): Promise<Opened> => {
  const { config, settings, logger, lifecycle } = bench;
  try {
    const service = await openService({ config, logger, lifecycle, redisRole: 'api', startWithinMs: OPEN_WITHIN_MS });
    const queues = lifecycle.add('queues', openQueueHandles(service, logger), (opened) => opened.close());
    return { ...service, config, queues };
  } catch (cause) {
    throw toUnavailable(settings, cause);
  }
};

/** Opens the connections of a command, prints its answer and closes the connections, so that the process can end. */
export const createSession = (options: { settings: () => Settings; print: (answer: Answer) => void }) => {
  const runBare: RunBare = async (work) => {
    const settings = options.settings();
    const config = readConfig(settings.environment);
    const secrets = secretsIn(settings.environment);
    // Standard output is for the answer. Logs are off unless LOG_LEVEL is set, and go to standard error.
    const level = settings.environment['LOG_LEVEL'] ?? 'silent';
    const logger = createLogger({ name: 'admin', level, secrets }, process.stderr);
    const lifecycle = createLifecycle(logger, { deadlineMs: END_WITHIN_MS });
    try {
      options.print(await work({ config, settings, logger, lifecycle }));
    } finally {
      await lifecycle.close();
    }
  };
  const run: Run = (work) => runBare(({ settings }) => work(openApi(settings)));
  const runLocal: RunLocal = (work) =>
    runBare(async ({ config, settings, logger, lifecycle }) => {
      try {
        const mongo = await openMongo({ url: config.MONGODB_URL, timeoutMs: OPEN_WITHIN_MS, maxPoolSize: 2 }, logger);
        lifecycle.add('mongodb', mongo, (opened) => opened.close());
        return await work(await openOperators(mongo));
      } catch (cause) {
        throw toUnavailable(settings, cause);
      }
    });
  return { run, runLocal, runBare };
};
