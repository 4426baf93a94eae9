import * as z from 'zod';

/** What a line tells of an error: nothing else of it is let through, since others put commands, documents and inputs there. */
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
/** Of a message; what stands behind it is told to nobody. */
const READ_MAX = 4_000;
const FRAMES_MAX = 20;
const DEPTH_MAX = 5;
const ERRORS_MAX = 3;

const NAME = /^[A-Za-z_$][\w$.]{0,80}$/;
/** Of a code of ours, Node's or a library's, never of its message: that may have lines that look like one. */
const FRAME = /^\s+at (?:[\w.$<>[\]# ]{1,200} \()?(?:file:\/\/|node:|\/)[^()\s]+:\d+:\d+\)?$/;

/** From the first mark to the last: what is quoted may have such marks itself. */
const QUOTED: [RegExp, string][] = [
  [/"[^]*"|"[^]*$/, '"…"'],
  [/`[^]*`|`[^]*$/, '`…`'],
  [/\{[^]*\}|\{[^]*$/, '{…}'],
  [/(?<!\w)'(?![\w.$/-]{1,100}'(?!\w)[^']*$)(?:[^]*'(?!\w)|[^]*$)/, "'…'"],
  [/\b(Received|dup key:|with args beginning with:)[^]*$/, '$1 …'],
];
/** What looks like one of our secrets. */
const SECRETS: [RegExp, string][] = [
  [/\b(Bearer|Basic) \S+/gi, '$1 …'],
  [/\b(?:sk|op|vt|whsec)[_-][\w-]{6,}/g, '…'],
];

/** An address without its user and its options, an e-mail address without its name. */
const plainWord = (word: string): string => {
  const at = word.lastIndexOf('@');
  const where = at > 0 ? `…@${word.slice(at + 1)}` : word;
  const options = where.includes('://') || at > 0 ? where.search(/[?#]/) : -1;
  return options === -1 ? where : `${where.slice(0, options)}?…`;
};

/** A message without what it quotes: inputs, documents, addresses; and without these secrets. */
export const plainMessage = (message: string, secrets: readonly string[] = []): string => {
  const without = secrets.reduce((text, secret) => text.replaceAll(secret, '…'), message);
  const rules = [...QUOTED, ...SECRETS];
  const plain = rules.reduce((text, [what, by]) => text.replace(what, by), without.slice(0, READ_MAX));
  return plain.replace(/\S+/g, plainWord).slice(0, MESSAGE_MAX);
};

/** Errors come from everywhere; some have other things in these places. */
const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');

const messageOf = (error: Error, secrets: readonly string[]): string => {
  if (!(error instanceof z.ZodError)) return plainMessage(textOf(error.message), secrets);
  // Its message is the list of issues, with what each met.
  const where = (path: PropertyKey[]) =>
    path.map((part) => (/^[\w-]{1,40}$/.test(String(part)) ? part : '…')).join('.');
  return error.issues
    .map(({ path, code }) => `${where(path)}: ${code}`)
    .join('; ')
    .slice(0, MESSAGE_MAX);
};

const named = (value: unknown): string | undefined =>
  typeof value === 'string' && NAME.test(value) ? value : undefined;

/** An error as it may be logged; also what was thrown in an error's stead, of which only the kind is told. */
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

/** The same as text, for a terminal: each error with its frames, the causes after it. */
export const describeFailure = (thrown: unknown, secrets: readonly string[] = []): string => {
  const lines = ({ stack, message, errors = [], cause }: Loggable): string[] => [
    stack ?? message,
    ...[...errors, ...(cause ? [cause] : [])].flatMap((one) =>
      lines(one).map((line, nth) => (nth === 0 ? `caused by ${line}` : line)),
    ),
  ];
  return lines(toLoggable(thrown, secrets)).join('\n');
};
