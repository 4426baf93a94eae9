import { type Config, readConfig } from '../../src/platform/config.ts';
import { secretsIn } from '../../src/platform/credentials.ts';
import { createLifecycle, type Lifecycle } from '../../src/platform/lifecycle.ts';
import { plainMessage } from '../../src/platform/loggable.ts';
import { createLogger, type Logger } from '../../src/platform/logger.ts';
import { openService, type Service } from '../../src/service.ts';
import { Failure } from './failure.ts';
import { openQueueHandles, type Queues } from './queues.ts';
import type { Settings } from './settings.ts';

/** What a command has to say: one JSON value, or the same for people. `status` is the exit status. */
export type Answer = { json: unknown; text: string; status?: number };

export type Opened = Service & { config: Config; queues: Queues };

/** Does a command's work on the opened service and prints its answer. */
export type Run = (work: (opened: Opened) => Promise<Answer>) => Promise<void>;

/** What a command needs before, or without, the service. */
export type Bench = { config: Config; settings: Settings; logger: Logger; lifecycle: Lifecycle };
export type RunBare = (work: (bench: Bench) => Promise<Answer>) => Promise<void>;

const OPEN_WITHIN_MS = 2_000;
const END_WITHIN_MS = 5_000;

const serviceAt = ({ name, message }: Error): string | null => {
  if (name.startsWith('Mongo')) return 'MongoDB';
  return message.startsWith('Redis') ? 'Redis' : null;
};

/** Names the one that keeps a command from opening the service; any other failure stays what it is. */
const away = ({ source, environment }: Settings, cause: unknown): unknown => {
  const secrets = secretsIn(environment);
  const which = cause instanceof Error ? serviceAt(cause) : null;
  if (!(cause instanceof Error) || which === null) return cause;
  const reason = plainMessage(cause.message, secrets).replace(/\.$/, '');
  return new Failure('unavailable', `${which} cannot be used at the address of ${source}: ${reason}.`, { cause });
};

export const openForCommand = async (bench: Bench): Promise<Opened> => {
  const { config, settings, logger, lifecycle } = bench;
  try {
    const service = await openService({ config, logger, lifecycle, redisRole: 'api', startWithinMs: OPEN_WITHIN_MS });
    const queues = lifecycle.add('queues', openQueueHandles(service, logger), (opened) => opened.close());
    return { ...service, config, queues };
  } catch (cause) {
    throw away(settings, cause);
  }
};

/** Opens what a command needs, prints its answer, and closes everything, so that the process ends by itself. */
export const createSession = (options: { settings: () => Settings; print: (answer: Answer) => void }) => {
  const runBare: RunBare = async (work) => {
    const settings = options.settings();
    const config = readConfig(settings.environment);
    const secrets = secretsIn(settings.environment);
    // Standard output belongs to the answer; the log is silent unless asked for, and then goes to standard error.
    const level = settings.environment['LOG_LEVEL'] ?? 'silent';
    const logger = createLogger({ name: 'admin', level, secrets }, process.stderr);
    const lifecycle = createLifecycle(logger, { deadlineMs: END_WITHIN_MS });
    try {
      options.print(await work({ config, settings, logger, lifecycle }));
    } finally {
      await lifecycle.close();
    }
  };
  const run: Run = (work) => runBare(async (bench) => work(await openForCommand(bench)));
  return { run, runBare };
};
