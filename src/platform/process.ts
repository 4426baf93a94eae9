import { ConfigError } from './config.ts';

/** Runs a `main.ts`: a start that fails says why, a line for each problem where it is the configuration, and exits 1. */
export const startProcess = async (start: () => Promise<void>): Promise<void> => {
  try {
    await start();
  } catch (cause) {
    const text =
      cause instanceof ConfigError ? `The configuration is not valid:\n${cause.message}` : `${(cause as Error).stack}`;
    process.stderr.write(`${text}\n`);
    process.exit(1);
  }
};
