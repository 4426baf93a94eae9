import { type DestinationStream, type Logger, pino } from 'pino';
import { takeHint } from './hints.ts';
import { toLoggable } from './loggable.ts';

/**
 * Standard output for log lines. All lines of one turn of the event loop are sent in one write, because a write costs
 * more than formatting a line. When the process exits, the remaining lines are written.
 */
const openLogOutput = (): DestinationStream & { flushSync: () => void } => {
  const output = pino.destination({ dest: 1, sync: true });
  let lines = '';
  const flushSync = (): void => {
    if (lines === '') return;
    const text = lines;
    lines = '';
    output.write(text);
  };
  process.on('exit', flushSync);
  return {
    write: (line) => {
      if (lines === '') setImmediate(flushSync);
      lines += line;
    },
    // pino calls this function after a fatal line.
    flushSync,
  };
};

let opened: ReturnType<typeof openLogOutput> | undefined;

/** The output that all loggers of this process share. */
const logOutput = (): DestinationStream => (opened ??= openLogOutput());

export type { Logger } from 'pino';

/**
 * Fields whose values are removed. This is a second defence, because no log line should contain these fields. The paths
 * are set once at the root, because a child logger's own paths would replace them. There are no wildcards, because a
 * wildcard reads every object of every line. Errors need no path, because only known fields of errors are logged.
 */
const SECRET_PATHS = ['apiKey', 'secret', 'token', 'authorization', 'password', 'message', 'content', 'text'].flatMap(
  (name) => [name, `why.${name}`, `config.${name}`],
);

type Options = {
  name: string;
  level: string;
  /** Secrets of this process. No message may contain these. */
  secrets?: readonly string[];
};

/** Adds what to do about the error of a line, if it is known. Once a minute for each cause, not with every failure. */
const withHint = (logger: object, [first, ...rest]: unknown[]): unknown[] => {
  const fields = first as { err?: unknown; hint?: string };
  if (typeof first !== 'object' || first === null || fields.hint !== undefined) return [first, ...rest];
  const known = fields.err instanceof Error ? takeHint(logger, fields.err) : null;
  return [known ? { ...first, problem: known.problem, hint: known.hint } : first, ...rest];
};

/** Writes JSON lines to standard output. The lines never contain a key, a secret, a token or a visitor's text. */
export const createLogger = ({ name, level, secrets = [] }: Options, destination?: DestinationStream): Logger => {
  /** Converts errors to their loggable form, whatever the name of their field. */
  const withoutErrors = (line: object): object => {
    const errors = Object.entries(line).filter(([, value]) => value instanceof Error);
    if (errors.length === 0 && !('err' in line)) return line;
    const shown = errors.map(([key, error]) => [key, toLoggable(error, secrets)]);
    return { ...line, ...('err' in line && { err: toLoggable(line.err, secrets) }), ...Object.fromEntries(shown) };
  };
  return pino(
    {
      name,
      level,
      messageKey: 'msg',
      redact: { paths: SECRET_PATHS, censor: '[redacted]' },
      timestamp: pino.stdTimeFunctions.isoTime,
      serializers: { err: (known: unknown) => known },
      formatters: { log: withoutErrors as (line: Record<string, unknown>) => Record<string, unknown> },
      hooks: {
        // An error that is logged alone is wrapped. Otherwise pino would use its message as the text of the line.
        logMethod(args, method) {
          const [first, ...rest] = args as unknown[];
          const line = first instanceof Error ? [{ err: first }, ...(rest.length > 0 ? rest : ['failed'])] : args;
          method.apply(this, withHint(this, line) as Parameters<typeof method>);
        },
      },
    },
    destination ?? logOutput(),
  );
};
