import { type DestinationStream, type Logger, pino } from 'pino';

export type { Logger } from 'pino';

/**
 * A net under what no line should carry anyway. Set once, here at the root: a child with rules of its own would replace
 * these. Named paths only: a wildcard makes every line walk its whole object.
 */
const SECRET_PATHS = ['apiKey', 'secret', 'token', 'authorization', 'password', 'message', 'content', 'text'].flatMap(
  (name) => [name, `err.${name}`, `why.${name}`, `config.${name}`],
);

/** JSON lines on standard output; never a key, a secret, a token or a visitor's text. */
export const createLogger = (
  { name, level }: { name: string; level: string },
  destination?: DestinationStream,
): Logger =>
  pino(
    {
      name,
      level,
      messageKey: 'msg',
      redact: {
        paths: SECRET_PATHS.filter((path) => path !== 'message' && path !== 'err.message'),
        censor: '[redacted]',
      },
      timestamp: pino.stdTimeFunctions.isoTime,
    },
    ...(destination ? [destination] : []),
  );
