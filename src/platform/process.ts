import { ConfigError } from './config.ts';
import { secretsIn } from './credentials.ts';
import { describeFailure } from './loggable.ts';

/** What a failed start says: a line for each problem where it is the configuration, nothing of any secret else. */
export const explainFailure = (cause: unknown, environment: Record<string, string | undefined>): string =>
  cause instanceof ConfigError
    ? `The configuration is not valid:\n${cause.message}`
    : describeFailure(cause, secretsIn(environment));

/** Runs a `main.ts`: a start that fails says why and exits 1. */
export const startProcess = async (start: () => Promise<void>): Promise<void> => {
  try {
    await start();
  } catch (cause) {
    process.stderr.write(`${explainFailure(cause, process.env)}\n`);
    process.exit(1);
  }
};
