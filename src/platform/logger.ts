import { type DestinationStream, type Logger, pino } from 'pino';
import { logOutput } from './log-output.ts';
import { toLoggable } from './loggable.ts';

export type { Logger } from 'pino';

/**
 * A second defence: no log line should contain these fields at all. The paths are set once at the root, because a child
 * logger's own rules would replace them. There are no wildcards, because a wildcard walks every object of every line.
 * Errors need no path, because only known fields of them are logged.
 */
const SECRET_PATHS = ['apiKey', 'secret', 'token', 'authorization', 'password', 'message', 'content', 'text'].flatMap(
  (name) => [name, `why.${name}`, `config.${name}`],
);

type Options = {
  name: string;
  level: string;
  /** Secrets of this process, which no message may contain. */
  secrets?: readonly string[];
};

/** JSON lines on standard output. They never contain a key, a secret, a token or a visitor's text. */
export const createLogger = ({ name, level, secrets = [] }: Options, destination?: DestinationStream): Logger => {
  /** Errors are made loggable under any field name. */
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
        // pino would use the message of a bare error as the text of the line.
        logMethod(args, method) {
          const [first, ...rest] = args as unknown[];
          const line = first instanceof Error ? [{ err: first }, ...(rest.length > 0 ? rest : ['failed'])] : args;
          method.apply(this, line as Parameters<typeof method>);
        },
      },
    },
    destination ?? logOutput(),
  );
};
