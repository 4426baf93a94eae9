import { constants, setPriority } from 'node:os';
import { getHeapStatistics, setFlagsFromString } from 'node:v8';
import { type Config, ConfigError, describeConfig, readConfig } from './config.ts';
import { secretsIn } from './credentials.ts';
import { type Hint, hintOf } from './hints.ts';
import { createLogger, describeFailure, type Logger } from './logger.ts';
import manifest from '../../../package.json' with { type: 'json' };

const CHECK_EVERY_MS = 100;
const REPORTED_FROM_MS = 400;
const AGAIN_AFTER_MS = 1_000;

/**
 * Logs when the event loop did not run for a noticeable time, at most once a second. During this time, all requests,
 * leases and health checks of the process wait. The metrics have the whole distribution (`nodejs_eventloop_lag_…`).
 */
const watchStalls = (logger: Logger): void => {
  let checkedAt = performance.now();
  let reportedAt = Number.NEGATIVE_INFINITY;
  const check = (): void => {
    const now = performance.now();
    const ms = Math.round(now - checkedAt - CHECK_EVERY_MS);
    checkedAt = now;
    if (ms < REPORTED_FROM_MS || now - reportedAt < AGAIN_AFTER_MS) return;
    reportedAt = now;
    const hint =
      'Check the load of this machine. If it is low, look for long computations, or for a suspended machine.';
    logger.warn({ ms, hint }, 'the event loop did not run');
  };
  setInterval(check, CHECK_EVERY_MS).unref();
};

export const VERSION: string = manifest.version;

const linesOf = (known: Hint | null): string[] => (known ? [`${known.problem}.`, `Hint: ${known.hint}`] : []);

/** Explains why a start failed. A wrong configuration gives one line per problem. Secrets are removed. */
export const explainFailure = (cause: unknown, environment: Record<string, string | undefined>): string =>
  cause instanceof ConfigError
    ? `The configuration is not valid:\n${cause.message}`
    : [describeFailure(cause, secretsIn(environment)), ...linesOf(hintOf(cause))].join('\n');

/**
 * How far a large heap grows beyond what is in use before V8 collects all garbage. By default it may grow to four times,
 * so a process that read a large knowledge again and again had 990 MB, of which 190 were in use. The memory stays with the
 * process. A small heap may double: with a quarter, turns took a fifth more of the processor, and a start half as long
 * again.
 */
const HEAP_GROWING_PERCENT = { small: 100, large: 25 };
const LARGE_HEAP_BYTES = 192 * 1024 * 1024;

const boundHeap = (): void => {
  let size: keyof typeof HEAP_GROWING_PERCENT | undefined;
  const bound = (): void => {
    const before = size;
    size = getHeapStatistics().total_heap_size > LARGE_HEAP_BYTES ? 'large' : 'small';
    // V8 reads it when a collection ends.
    if (size !== before) setFlagsFromString(`--heap-growing-percent=${HEAP_GROWING_PERCENT[size]}`);
  };
  bound();
  setInterval(bound, CHECK_EVERY_MS).unref();
};

type Closer = { name: string; close: () => unknown };

/**
 * Closes what a process has opened, in reverse order, after a signal or a fatal error. A process that does not stop
 * before the deadline logs what it waits for and exits non-zero.
 */
export type Lifecycle = {
  /** This signal is aborted as soon as the process begins to stop. */
  draining: AbortSignal;

  /** Adds an opened resource. Resources that were added last are closed first. */
  add: <Opened>(name: string, value: Opened, closeIt: (value: Opened) => unknown) => Opened;

  /** Waits for each closer as long as it takes. After the deadline, logs which one it waits for. */
  close: () => Promise<void>;

  /**
   * Called by a `main.ts`. After a signal, the process drains and exits 0. An uncaught error is logged once; the
   * process then drains and exits 1.
   */
  listenToProcess: () => void;
};

export const createLifecycle = (logger: Logger, { deadlineMs }: { deadlineMs: number }): Lifecycle => {
  const opened: Closer[] = [];
  const draining = new AbortController();
  let closing: Promise<void> | null = null;

  const closeAll = async (): Promise<void> => {
    draining.abort();
    let first: unknown;
    let waitsFor = '';
    const report = (): void => logger.fatal({ deadlineMs, waitsFor }, 'did not stop in time');
    const timer = setTimeout(report, deadlineMs).unref();
    for (const { name, close } of opened.toReversed()) {
      waitsFor = name;
      try {
        await close();
      } catch (cause) {
        logger.error({ err: cause, name }, 'closing failed');
        first ??= cause;
      }
    }
    clearTimeout(timer);
    opened.length = 0;
    if (first) throw first;
  };

  const close = (): Promise<void> => {
    closing ??= closeAll();
    return closing;
  };

  const end = (reason: string, code: number): void => {
    if (closing) return;
    logger.info({ reason }, 'stopping');
    close().then(
      () => process.exit(code),
      () => process.exit(1),
    );
    setTimeout(() => process.exit(1), deadlineMs).unref();
  };

  return {
    draining: draining.signal,

    add: <Opened>(name: string, value: Opened, closeIt: (value: Opened) => unknown): Opened => {
      opened.push({ name, close: () => closeIt(value) });
      return value;
    },

    close,

    listenToProcess: () => {
      process.on('SIGTERM', () => end('SIGTERM', 0));
      process.on('SIGINT', () => end('SIGINT', 0));
      process.on('uncaughtException', (cause) => {
        logger.fatal({ err: cause }, 'uncaught exception');
        end('uncaught exception', 1);
      });
      process.on('unhandledRejection', (cause) => {
        logger.fatal({ err: cause }, 'unhandled rejection');
        end('unhandled rejection', 1);
      });
    },
  };
};

/** What every process opens first. */
export type Opening = { config: Config; logger: Logger; lifecycle: Lifecycle };

/**
 * Runs a `main.ts`: reads the settings, opens the process, and drains it after a signal. If the start fails, prints the
 * reason and exits 1. `open` imports what it needs, so that a wrong setting is reported without loading everything
 * first. A process with `isModest` has a low priority. It waits for others, and nobody waits for it, so its stalls are
 * not reported.
 */
export const runProcess = async (
  name: string,
  open: (opening: Opening) => Promise<void>,
  { isModest = false } = {},
): Promise<void> => {
  try {
    requireNode();
    // Whatever this process starts has the same priority.
    if (isModest) setPriority(constants.priority.PRIORITY_LOW);
    const config = readConfig(process.env);
    const logger = createLogger({ name, level: config.LOG_LEVEL, secrets: secretsIn(process.env) });
    logger.info({ config: describeConfig(config) }, 'starting');
    const lifecycle = createLifecycle(logger, { deadlineMs: config.SHUTDOWN_DEADLINE_MS });
    lifecycle.listenToProcess();
    if (!isModest) watchStalls(logger);
    boundHeap();
    await open({ config, logger, lifecycle });
  } catch (cause) {
    process.stderr.write(`${explainFailure(cause, process.env)}\n`);
    process.exit(1);
  }
};

/** Throws if Node is older than version 24. Older versions would fail later with a less clear error. */
export const requireNode = (version = process.versions.node): void => {
  if (Number(version.split('.')[0]) < 24) {
    throw new Error(`Node 24 or later is required; this is ${version}. The npm scripts install it.`);
  }
};
