import { ConfigError } from './config.ts';
import { secretsIn } from './credentials.ts';
import { type Hint, hintOf } from './hints.ts';
import { describeFailure } from './logger.ts';

import manifest from '../../package.json' with { type: 'json' };

export const VERSION: string = manifest.version;

const linesOf = (known: Hint | null): string[] => (known ? [`${known.problem}.`, `Hint: ${known.hint}`] : []);

/** Explains why a start failed. A wrong configuration gives one line per problem. Secrets are removed. */
export const explainFailure = (cause: unknown, environment: Record<string, string | undefined>): string =>
  cause instanceof ConfigError
    ? `The configuration is not valid:\n${cause.message}`
    : [describeFailure(cause, secretsIn(environment)), ...linesOf(hintOf(cause))].join('\n');

/** Runs a `main.ts`. If the start fails, prints the reason and exits 1. */
export const startProcess = async (start: () => Promise<void>): Promise<void> => {
  try {
    await start();
  } catch (cause) {
    process.stderr.write(`${explainFailure(cause, process.env)}\n`);
    process.exit(1);
  }
};
