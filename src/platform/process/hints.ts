import type { Logger } from 'pino';

/** A cause that an operator can mend: what is wrong, and what to do. */
export type Hint = { problem: string; hint: string };

type Known = Hint & {
  /** Codes of MongoDB's and Node's errors. */
  codes?: readonly (number | string)[];
  /** The code in Redis' error message. It stands at the beginning, or after the words about a script. */
  redis?: string;
  /** The name of an error. */
  name?: string;
};

const KNOWN: readonly Known[] = [
  {
    codes: [14031],
    problem: "MongoDB's disk is full",
    hint: 'Free space on the volume of its data directory, or enlarge it. Writes then work again without a restart.',
  },
  {
    codes: [13],
    problem: 'The user of MONGODB_URL may not read or write',
    hint: 'Grant the user the role readWrite on the database of MONGODB_URL.',
  },
  {
    codes: [18, 8000],
    problem: 'MongoDB refuses the user or the password of MONGODB_URL',
    hint: 'Correct both, or add authSource=admin if the user is stored in another database, and restart the process.',
  },
  {
    redis: 'OOM',
    problem: 'Redis is out of memory',
    hint: 'Raise maxmemory (CONFIG SET maxmemory) or free memory. Keep maxmemory-policy noeviction.',
  },
  {
    redis: 'NOAUTH',
    problem: 'Redis asks for a password, and REDIS_URL has none',
    hint: 'Put it into REDIS_URL, redis://:PASSWORD@host:6379, and restart the process.',
  },
  {
    redis: 'WRONGPASS',
    problem: 'Redis refuses the user or the password of REDIS_URL',
    hint: 'Correct both in REDIS_URL and restart the process.',
  },
  {
    redis: 'NOPERM',
    problem: 'The user of REDIS_URL may not use a command or a key',
    hint: 'Allow it all commands, keys and channels (ACL SETUSER NAME ~* &* +@all), or at least those of REDIS_PREFIX.',
  },
  {
    redis: 'READONLY',
    problem: 'REDIS_URL names a replica, which refuses writes',
    hint: 'Name the master, or the sentinels (redis+sentinel://host:26379,host:26379/NAME), and restart the process.',
  },
  {
    redis: 'MISCONF',
    problem: 'Redis refuses writes, because it cannot write its data to disk',
    hint: 'Free space in the directory of Redis, and see its log.',
  },
  {
    codes: ['CERT_HAS_EXPIRED'],
    problem: 'The certificate of a server has expired',
    hint: 'Renew the certificate of MongoDB, Redis or the provider, whichever the error names.',
  },
  {
    codes: ['CERT_NOT_YET_VALID'],
    problem: 'The certificate of a server is not valid yet',
    hint: "Set this machine's clock, or wait until the certificate is valid.",
  },
  {
    codes: [
      'DEPTH_ZERO_SELF_SIGNED_CERT',
      'SELF_SIGNED_CERT_IN_CHAIN',
      'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
      'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
    ],
    problem: 'The certificate of a server is signed by an authority that this process does not know',
    hint: 'Name the file with the certificate of the authority in NODE_EXTRA_CA_CERTS and restart the process.',
  },
  {
    codes: ['ERR_TLS_CERT_ALTNAME_INVALID'],
    problem: 'The certificate of a server is for another host name',
    hint: 'Use a host name of the certificate in the address, or renew the certificate with this name.',
  },
  {
    name: 'VaultError',
    problem: 'ENCRYPTION_KEY does not open a stored secret',
    hint: 'Add the key that the secret was stored with to ENCRYPTION_KEY (a list with commas, newest first), and restart.',
  },
  {
    name: 'MongoServerSelectionError',
    problem: 'MongoDB cannot be reached, or has no primary',
    hint: 'Check that it runs (its log says why it ended, such as a full disk), that MONGODB_URL names it and its replica set, and that rs.status() shows a primary.',
  },
  {
    codes: ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH'],
    problem: 'A server cannot be reached',
    hint: 'Check that it runs, and that its address in the settings is right.',
  },
];

const DEPTH_MAX = 5;

/** Redis before version 7 names the place in the script before the code. */
const REDIS_CODE = /^(?:.*@user_script: ?\d+: -?)?([A-Z]+) /;

const matches = ({ codes, redis, name }: Known, error: Error & { code?: unknown }): boolean =>
  (codes?.includes(error.code as string | number) ?? false) ||
  (redis !== undefined && REDIS_CODE.exec(error.message)?.[1] === redis) ||
  (name !== undefined && error.name === name);

/**
 * The errors that may contain the cause: the error, what it wraps, and what the MongoDB driver knows of its servers.
 */
const errorsIn = (cause: unknown, depth = 1): Error[] => {
  if (!(cause instanceof Error) || depth > DEPTH_MAX) return [];
  const { reason, errors } = cause as { reason?: { servers?: Map<string, { error?: unknown }> }; errors?: unknown[] };
  const servers = reason?.servers instanceof Map ? [...reason.servers.values()].map(({ error }) => error) : [];
  const inner = [cause.cause, ...(Array.isArray(errors) ? errors : []), ...servers];
  return [cause, ...inner.flatMap((one) => errorsIn(one, depth + 1))];
};

/** What an operator can do about a failure. Null if the cause is not known. The most exact cause wins. */
export const hintOf = (cause: unknown): Hint | null => {
  const errors = errorsIn(cause);
  return KNOWN.find((known) => errors.some((error) => matches(known, error))) ?? null;
};

const AGAIN_AFTER_MS = 60_000;
const givenAt = new WeakMap<object, Map<Hint, number>>();

/** The hint for a failure that is logged now. Null if the same hint was given within a minute. */
export const takeHint = (logger: object, cause: unknown): Hint | null => {
  const hint = hintOf(cause);
  if (!hint) return null;
  const given = givenAt.get(logger) ?? new Map<Hint, number>();
  givenAt.set(logger, given);
  const now = performance.now();
  if (now - (given.get(hint) ?? Number.NEGATIVE_INFINITY) < AGAIN_AFTER_MS) return null;
  given.set(hint, now);
  return hint;
};

/** Logs a failure that nobody else logs, if an operator can mend its cause. At most once a minute for each cause. */
export const logHint = (logger: Logger, cause: unknown): void => {
  const known = takeHint(logger, cause);
  if (known) logger.error({ err: cause, hint: known.hint }, known.problem);
};
