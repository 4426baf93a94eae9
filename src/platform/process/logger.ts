import { type DestinationStream, type Logger, pino } from 'pino';
import * as z from 'zod';
import { takeHint } from './hints.ts';

/**
 * The fields of an error that a log line may contain. Other fields are left out, because libraries put commands,
 * documents and inputs into them.
 */
type Loggable = {
  type: string;
  message: string;
  code?: string | number;
  codeName?: string;
  syscall?: string;
  status?: number;
  stack?: string;
  errors?: Loggable[];
  cause?: Loggable;
};

const MESSAGE_MAX = 500;
/** How many characters of a message are examined. The rest is never logged. */
const READ_MAX = 4_000;
const FRAMES_MAX = 20;
const DEPTH_MAX = 5;
const ERRORS_MAX = 3;

const NAME = /^[A-Za-z_$][\w$.]{0,80}$/;
/**
 * Matches a stack frame in our code, Node's or a library's. The match is strict, because a message may contain lines
 * that look like frames.
 */
const FRAME = /^\s+at (?:[\w.$<>[\]# ]{1,200} \()?(?:file:\/\/|node:|\/)[^()\s]+:\d+:\d+\)?$/;

/**
 * Matches quoted texts, from the first quotation mark to the last, because a quoted text may itself contain quotation
 * marks.
 */
const QUOTED: [RegExp, string][] = [
  [/"[^]*"|"[^]*$/, '"…"'],
  [/`[^]*`|`[^]*$/, '`…`'],
  [/\{[^]*\}|\{[^]*$/, '{…}'],
  [/(?<!\w)'(?![\w.$/-]{1,100}'(?!\w)[^']*$)(?:[^]*'(?!\w)|[^]*$)/, "'…'"],
  [/\b(Received|dup key:|with args beginning with:)[^]*$/, '$1 …'],
];
/**
 * Matches secrets that can be recognised by their form: credentials in headers, and this service's own keys and tokens.
 */
const SECRETS: [RegExp, string][] = [
  [/\b(Bearer|Basic) \S+/gi, '$1 …'],
  [/\b(?:sk|op|vt|vp)[_-][\w-]{6,}/g, '…'],
  [/\bwhsec_[\w+/=-]{6,}/g, '…'],
];

/** Removes the user and the options from a URL, and the local part from an email address. */
const plainWord = (word: string): string => {
  const at = word.lastIndexOf('@');
  const where = at > 0 ? `…@${word.slice(at + 1)}` : word;
  const options = where.includes('://') || at > 0 ? where.search(/[?#]/) : -1;
  return options === -1 ? where : `${where.slice(0, options)}?…`;
};

/** A message without secrets and without the texts that it quotes (inputs, documents, addresses). */
export const plainMessage = (message: string, secrets: readonly string[] = []): string => {
  const without = secrets.reduce((text, secret) => text.replaceAll(secret, '…'), message);
  const rules = [...QUOTED, ...SECRETS];
  const plain = rules.reduce((text, [what, by]) => text.replace(what, by), without.slice(0, READ_MAX));
  return plain.replace(/\S+/g, plainWord).slice(0, MESSAGE_MAX);
};

/** The value as a string. The fields of a thrown error may have any type. */
const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');

const messageOf = (error: Error, secrets: readonly string[]): string => {
  if (!(error instanceof z.ZodError)) return plainMessage(textOf(error.message), secrets);
  // Only paths and codes are used, because the message of a ZodError quotes the input.
  const where = (path: PropertyKey[]) =>
    path.map((part) => (/^[\w-]{1,40}$/.test(String(part)) ? part : '…')).join('.');
  return error.issues
    .map(({ path, code }) => `${where(path)}: ${code}`)
    .join('; ')
    .slice(0, MESSAGE_MAX);
};

const named = (value: unknown): string | undefined =>
  typeof value === 'string' && NAME.test(value) ? value : undefined;

/**
 * Converts an error to the form in which it is logged. For a thrown value that is not an error, only its type is
 * logged.
 */
export const toLoggable = (thrown: unknown, secrets: readonly string[] = [], depth = 1): Loggable => {
  if (!(thrown instanceof Error)) return { type: typeof thrown, message: 'not an error' };
  const { code, codeName, syscall, status, errors, cause } = thrown as Error & Record<string, unknown>;
  const type = named(thrown.name) ?? 'Error';
  const message = messageOf(thrown, secrets);
  const frames = textOf(thrown.stack)
    .split('\n')
    .filter((line) => FRAME.test(line));
  const deeper = (inner: unknown): Loggable => toLoggable(inner, secrets, depth + 1);
  const [knownCode, knownCodeName, knownSyscall] = [named(code), named(codeName), named(syscall)];
  return {
    type,
    message,
    ...(typeof code === 'number' && { code }),
    ...(knownCode !== undefined && { code: knownCode }),
    ...(knownCodeName !== undefined && { codeName: knownCodeName }),
    ...(knownSyscall !== undefined && { syscall: knownSyscall }),
    ...(typeof status === 'number' && { status }),
    stack: [`${type}: ${message}`, ...frames.slice(0, FRAMES_MAX)].join('\n'),
    ...(Array.isArray(errors) && depth < DEPTH_MAX && { errors: errors.slice(0, ERRORS_MAX).map(deeper) }),
    ...(cause instanceof Error && depth < DEPTH_MAX && { cause: deeper(cause) }),
  };
};

/** A failure as text for a terminal: each error with its stack frames, then its causes. */
export const describeFailure = (thrown: unknown, secrets: readonly string[] = []): string => {
  const lines = ({ stack, message, errors = [], cause }: Loggable): string[] => [
    stack ?? message,
    ...[...errors, ...(cause ? [cause] : [])].flatMap((one) =>
      lines(one).map((line, nth) => (nth === 0 ? `caused by ${line}` : line)),
    ),
  ];
  return lines(toLoggable(thrown, secrets)).join('\n');
};

/** At most this many characters of lines that could not be written are kept. */
const UNWRITTEN_MAX = 4_000_000;

/**
 * Standard output for log lines. All lines of one tick are sent in one write, because a write costs
 * more than formatting a line. When the process exits, the remaining lines are written.
 */
const openLogOutput = (): DestinationStream & { flushSync: () => void } => {
  const output = pino.destination({ dest: 1, sync: true, maxLength: UNWRITTEN_MAX });
  // For example, the disk of the log is full. This must not end the process. The lines are kept, and written with later
  // ones.
  output.on('error', () => undefined);
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

/** Adds to a line what to do about its error, if that is known. Does so once a minute for each cause. */
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
