import { readConfig } from '../../src/platform/process/config.ts';
import { secretsIn } from '../../src/platform/process/credentials.ts';
import { createLifecycle } from '../../src/platform/process/lifecycle.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { type Api, openApi } from './api.ts';
import type { Settings } from './settings.ts';
import type { CommandContext } from './stores.ts';
import type { OperatorStores } from '../../src/operators/store.ts';

/**
 * A command's answer, as JSON and as text. `status` is the exit status. `replaces`: on a terminal it takes the place of
 * what was printed before.
 */
export type Answer = { json: unknown; text: string; status?: number; replaces?: true };
type Print = (answer: Answer) => void;

/** Runs a command through the operator API and prints its answer. */
export type Run = (work: (api: Api) => Promise<Answer>) => Promise<void>;

export type RunLocal = (work: (opened: OperatorStores) => Promise<Answer>) => Promise<void>;
/** The work may print answers itself, and then returns null. */
export type RunBare = (work: (bench: CommandContext, print: Print) => Promise<Answer | null>) => Promise<void>;

export type Session = { run: Run; runLocal: RunLocal; runBare: RunBare };

const END_WITHIN_MS = 5_000;

type Options = { settings: () => Settings; print: Print; stderr: NodeJS.WritableStream };

/** Opens the connections of a command, prints its answer and closes the connections, so that the process can end. */
export const createSession = (options: Options): Session => {
  const runBare: RunBare = async (work) => {
    const settings = options.settings();
    const config = readConfig(settings.environment);
    const secrets = secretsIn(settings.environment);
    // Standard output is for the answer. Logs are off unless LOG_LEVEL is set, and go to standard error.
    const level = settings.environment['LOG_LEVEL'] ?? 'silent';
    const logger = createLogger({ name: 'admin', level, secrets }, options.stderr);
    const lifecycle = createLifecycle(logger, { deadlineMs: END_WITHIN_MS });
    try {
      const answer = await work({ config, settings, logger, lifecycle }, options.print);
      if (answer) options.print(answer);
    } finally {
      await lifecycle.close();
    }
  };
  return {
    run: (work) => runBare(({ settings }) => work(openApi(settings))),
    runLocal: (work) =>
      runBare(async (context) => {
        const { withOperatorStores } = await import('./stores.ts');
        return withOperatorStores(context, work);
      }),
    runBare,
  };
};
