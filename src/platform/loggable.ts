import * as z from 'zod';

/**
 * The fields of an error that a log line may contain. Other fields are left out, because libraries put commands,
 * documents and inputs into them.
 */
export type Loggable = {
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
  [/\b(?:sk|op|vt|whsec)[_-][\w-]{6,}/g, '…'],
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
