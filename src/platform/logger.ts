import { type DestinationStream, type Logger, pino } from 'pino';
import { toLoggable } from './loggable.ts';

export type { Logger } from 'pino';

/**
 * A net under what no line should carry anyway. Set once, here at the root: a child with rules of its own would replace
 * these. Named paths only: a wildcard makes every line walk its whole object. Errors need none: of them only what is known
 * is let through.
 */
const SECRET_PATHS = ['apiKey', 'secret', 'token', 'authorization', 'password', 'message', 'content', 'text'].flatMap(
  (name) => [name, `why.${name}`, `config.${name}`],
);

type Options = {
  name: string;
  level: string;
  /** What this process knows that no message may show. */
  secrets?: readonly string[];
};

/** JSON lines on standard output; never a key, a secret, a token or a visitor's text. */
export const createLogger = ({ name, level, secrets = [] }: Options, destination?: DestinationStream): Logger => {
  /** Under whatever name an error is logged. */
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
        // An error alone would become the line's text.
        logMethod(args, method) {
          const [first, ...rest] = args as unknown[];
          const line = first instanceof Error ? [{ err: first }, ...(rest.length > 0 ? rest : ['failed'])] : args;
          method.apply(this, line as Parameters<typeof method>);
        },
      },
    },
    ...(destination ? [destination] : []),
  );
};
