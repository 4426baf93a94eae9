import { type DestinationStream, type Logger, pino } from 'pino';

export type { Logger } from 'pino';

/** Redaction is set once, here at the root: a child with rules of its own would replace these. */
const SECRET_PATHS = ['apiKey', 'secret', 'token', 'authorization', 'password', 'message', 'content', 'text'].flatMap(
  (name) => [name, `*.${name}`, `*.*.${name}`, `*.*.*.${name}`],
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
      redact: { paths: SECRET_PATHS.filter((path) => path !== 'message'), censor: '[redacted]' },
      timestamp: pino.stdTimeFunctions.isoTime,
    },
    ...(destination ? [destination] : []),
  );
