import { createHash, createHmac, hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto';
import { MongoStore } from 'connect-mongo';
import type { Request, RequestHandler, Response } from 'express';
import session, { type SessionData } from 'express-session';
import type { Connection } from 'mongoose';
import type { RateLimiter } from '../assistants/rate-limit.ts';
import { blockOf, networkOf } from '../platform/http/shares.ts';
import type { OrUnavailable } from '../platform/mongo/silence.ts';
import { serverNow } from '../platform/process/clock.ts';
import type { Config } from '../platform/process/config.ts';
import { type Operator, SESSIONS, type StoredOperator } from './operator.ts';

/** The limit of wrong passwords per minute for one device or session, and for one account from one address. */
const OWN_LIMIT = 5;
/**
 * The limit of wrong passwords per minute from one address, which many people may share, and for one account from all
 * addresses.
 */
const SHARED_LIMIT = 20;
/** The limit of wrong passwords per minute from all networks of one customer: each costs a hash, and sign-ins share them. */
const BLOCK_LIMIT = 100;

const hashed = (text: string): string => createHash('sha256').update(text).digest('base64url');

type Subject = { name: string; limit: number };

/**
 * Limits how often a password may be guessed. Unknown browsers have four counts: by address, by its block, by account and
 * address, and by account. If one limit refuses a request, the request does not count at the other limits. A browser that has
 * signed in to the account before has a separate count, so that other people's attempts do not lock its user out.
 */
export type SignInLimits = {
  /**
   * Counts an attempt before it starts, so that concurrent guesses count too. Unless the password was wrong, the count
   * is taken back afterwards.
   */
  limited: <Found>(subjects: Subject[], attempt: () => Promise<Found | null>) => Promise<Found | null>;

  /** The count for attempts with the token of an invitation or reset link. */
  byAddress: (ip: string) => Subject[];

  /** The count for a signed-in operator who changes the password. */
  bySession: (sessionId: string) => Subject[];

  byDevice: (deviceId: string) => Subject[];
  byStranger: (ip: string, email: string) => Subject[];
};

export const createSignInLimits = (rateLimiter: RateLimiter): SignInLimits => {
  const count = async (subjects: Subject[]): Promise<void> => {
    const counted: Subject[] = [];
    for (const subject of subjects) {
      try {
        await rateLimiter.forSignIn(subject.name, subject.limit);
      } catch (refused) {
        await refund(counted);
        throw refused;
      }
      counted.push(subject);
    }
  };

  const refund = async (subjects: Subject[]): Promise<void> => {
    await Promise.all(subjects.map(({ name, limit }) => rateLimiter.refundSignIn(name, limit)));
  };

  const limited = async <Found>(subjects: Subject[], attempt: () => Promise<Found | null>): Promise<Found | null> => {
    await count(subjects);
    let wrong = false;
    try {
      const found = await attempt();
      wrong = found === null;
      return found;
    } finally {
      // An attempt that failed because MongoDB is unavailable does not count either.
      if (!wrong) await refund(subjects);
    }
  };

  const ofAddress = (ip: string): Subject[] => [
    { name: `address:${networkOf(ip)}`, limit: SHARED_LIMIT },
    { name: `block:${blockOf(ip)}`, limit: BLOCK_LIMIT },
  ];
  const ofOne = (kind: 'device' | 'session', id: string): Subject => ({
    name: `${kind}:${hashed(id)}`,
    limit: OWN_LIMIT,
  });

  return {
    limited,
    byAddress: ofAddress,
    bySession: (sessionId) => [ofOne('session', sessionId)],
    byDevice: (deviceId) => [ofOne('device', deviceId)],
    byStranger: (ip, email) => [
      ...ofAddress(ip),
      { name: `account:${hashed(email)}:${networkOf(ip)}`, limit: OWN_LIMIT },
      { name: `account:${hashed(email)}`, limit: SHARED_LIMIT },
    ],
  };
};

const DAYS = 180;
const ACCOUNTS_MAX = 5;
const TOKEN = /^[\w-]{22}\.[\w-]{43}$/;

type Account = Pick<StoredOperator, '_id' | 'passwordHash'>;

/**
 * The secrets that sign device tokens. They are derived from the same keys as the session secrets, but are different
 * from them. The newest secret signs; all secrets are accepted.
 */
const secretsOfCookies = ({ ENCRYPTION_KEY }: Pick<Config, 'ENCRYPTION_KEY'>): Buffer[] =>
  ENCRYPTION_KEY.map(({ key }) => Buffer.from(hkdfSync('sha256', key, '', 'parley known devices', 32)));

/** The signature depends on the account and its password hash, so a new password invalidates all devices. */
const signatureOf = (secret: Buffer, id: string, { _id, passwordHash }: Account): Buffer =>
  createHmac('sha256', secret)
    .update(JSON.stringify([id, _id, passwordHash]))
    .digest();

/**
 * Recognises browsers that have signed in before. A browser's cookie contains a signed token for each of its last five
 * accounts; the server stores nothing. A token does not sign anybody in. It only gives the browser a separate count of
 * wrong passwords.
 */
export type Devices = {
  hasAny: (req: Request) => boolean;

  /** The id of this device for this account, or null for an unknown device. */
  idFor: (req: Request, account: Account) => string | null;

  /** Called after a correct password. A known device keeps its id and its count of wrong passwords. */
  remember: (req: Request, res: Response, account: Account) => void;
};

export const createDevices = (config: Pick<Config, 'ENCRYPTION_KEY'>, { secure }: { secure: boolean }): Devices => {
  const secrets = secretsOfCookies(config);
  const name = secure ? '__Host-parley-device' : 'parley-device';
  const cookie = new RegExp(`(?:^|;\\s*)${name}=([^;]{1,500})`);

  const tokensOf = ({ headers }: Request): string[] =>
    (cookie.exec(headers.cookie ?? '')?.[1] ?? '')
      .split('~')
      .filter((token) => TOKEN.test(token))
      .slice(0, ACCOUNTS_MAX);

  const belongsTo = (token: string, account: Account): boolean => {
    const [id = '', signature = ''] = token.split('.');
    const given = Buffer.from(signature, 'base64url');
    return secrets.some((secret) => timingSafeEqual(signatureOf(secret, id, account), given));
  };

  return {
    hasAny: (req) => tokensOf(req).length > 0,

    idFor: (req, account) =>
      tokensOf(req)
        .find((token) => belongsTo(token, account))
        ?.split('.')[0] ?? null,

    remember: (req, res, account) => {
      const [newest] = secrets;
      if (!newest) return;
      const others = tokensOf(req).filter((token) => !belongsTo(token, account));
      const known = tokensOf(req)
        .find((token) => belongsTo(token, account))
        ?.split('.')[0];
      const id = known ?? randomBytes(16).toString('base64url');
      const token = `${id}.${signatureOf(newest, id, account).toString('base64url')}`;
      res.cookie(name, [token, ...others].slice(0, ACCOUNTS_MAX).join('~'), {
        httpOnly: true,
        sameSite: 'strict',
        secure,
        path: '/',
        maxAge: DAYS * 86_400_000,
        encode: String, // the value needs no encoding
      });
    },
  };
};

/**
 * A header that a page sends with requests that no person caused, such as polls. Such requests do not prolong the
 * session.
 */
const UNATTENDED_HEADER = 'X-Parley-Unattended';

const IDLE_MS = 12 * 3_600_000;
const SESSION_MAX_MS = 7 * 86_400_000;
const TOUCH_AFTER_S = 60;

declare module 'express-session' {
  interface SessionData {
    operatorId: string;
    generation: number;
    signedInAt: number;
  }
}

type SessionConfig = Pick<Config, 'ENCRYPTION_KEY' | 'TLS_CERT_FILE' | 'TLS_TERMINATED_UPSTREAM'>;

/**
 * The secrets that sign session cookies. They are derived from the same keys as the encryption of endpoint secrets, but
 * are different from them. The newest secret signs; all secrets are accepted.
 */
const secretsOf = ({ ENCRYPTION_KEY }: SessionConfig): string[] =>
  ENCRYPTION_KEY.map(({ key }) =>
    Buffer.from(hkdfSync('sha256', key, '', 'parley operator sessions', 32)).toString('base64url'),
  );

/** The prefix `__Host-` ensures that neither a subdomain nor a plain-HTTP page can set the cookie. */
const cookieNameOf = (secure: boolean): string => (secure ? '__Host-parley' : 'parley');

/** The cookies of this service, of which a browser has one or two. */
const OWN_COOKIES = /(?:^|;)[ \t]*(?:__Host-)?parley(?:-device)?[ \t]*=[^;]*/g;

/** Drops all other cookies. Their header is read several times, and thousands of them cost more than the request. */
export const ownCookiesOnly: RequestHandler = ({ headers }, _res, next) => {
  if (headers.cookie !== undefined) headers.cookie = headers.cookie.match(OWN_COOKIES)?.join('') ?? '';
  next();
};

/** Only spaces and tabs are blanks in a cookie. Other spaces belong to a name. */
const withoutBlanks = (text: string): string => {
  const isBlank = (at: number): boolean => text[at] === ' ' || text[at] === '\t';
  let [from, to] = [0, text.length];
  while (from < to && isBlank(from)) from += 1;
  while (to > from && isBlank(to - 1)) to -= 1;
  return text.slice(from, to);
};

/**
 * The value of the session cookie, whether valid or not, as the session library reads it: of several cookies with the
 * name the first, without quotes, decoded. So one session has one value, however its cookie is written.
 */
export const readSessionCookie = (header: string | undefined, { secure }: { secure: boolean }): string | null => {
  const name = cookieNameOf(secure);
  const pairs = (header ?? '').split(';').map((one) => one.split(/=(.*)/s, 2).map(withoutBlanks));
  const value = pairs.find(([key]) => key === name)?.[1];
  if (value === undefined) return null;
  try {
    return decodeURIComponent(value.replace(/^"(.*)"$/, '$1'));
  } catch {
    return value;
  }
};

/**
 * True for requests that no person caused. The queue board polls without sending the header, so its path is recognised
 * too, and so are live updates, which the page opens again by itself.
 */
const isUnattended = (req: Request): boolean =>
  req.get(UNATTENDED_HEADER) !== undefined || /\/queues\/api\/|\/v1\/live$/.test(req.originalUrl);

/** The id under which a session is stored. */
export const storedIdOf = (sessionId: string): string => createHash('sha256').update(sessionId).digest('base64url');

const toPromise = (work: (done: (failure?: unknown) => void) => void): Promise<void> =>
  new Promise((resolve, reject) => {
    work((failure) => (failure ? reject(failure instanceof Error ? failure : new Error('session')) : resolve()));
  });

/**
 * Server-side sessions in MongoDB. The cookie contains a signed session id; the database contains only a hash of this
 * id.
 */
export const createSessions = (
  connection: Connection,
  config: SessionConfig,
  orUnavailable: OrUnavailable,
): RequestHandler[] => {
  const secure = config.TLS_CERT_FILE !== undefined || config.TLS_TERMINATED_UPSTREAM;
  const storeOf = (attended: boolean): MongoStore => {
    const store = new MongoStore({
      client: connection.getClient(),
      dbName: connection.name,
      collectionName: SESSIONS,
      stringify: false,
      autoRemove: 'disabled', // the model declares the index
      ttl: IDLE_MS / 1000,
      touchAfter: TOUCH_AFTER_S,
      transformId: storedIdOf,
    });
    const touch = store.touch.bind(store);
    // If a session ends during its own request, renewing it fails afterwards. This is not an error.
    store.touch = (sid, data, done) => (attended ? touch(sid, data, () => done?.(null)) : done?.(null));
    return store;
  };
  const sessionsOf = (attended: boolean): RequestHandler =>
    session({
      store: storeOf(attended),
      name: cookieNameOf(secure),
      secret: secretsOf(config),
      proxy: config.TLS_TERMINATED_UPSTREAM,
      resave: false,
      saveUninitialized: false,
      rolling: attended,
      cookie: { httpOnly: true, sameSite: 'strict', secure, path: '/', maxAge: IDLE_MS },
    });
  /** Sends the session cookie before the device cookie, because many clients read only the first cookie. */
  const sessionFirst: RequestHandler = (_req, res, next) => {
    const writeHead = res.writeHead.bind(res) as (...given: unknown[]) => Response;
    const isOurs = (cookie: string): boolean => cookie.startsWith(`${cookieNameOf(secure)}=`);
    // This hook is set before the hook of the session library, so it runs after the library has written its cookie.
    res.writeHead = (...given: unknown[]) => {
      const cookies = res.getHeader('set-cookie');
      if (Array.isArray(cookies)) {
        res.setHeader(
          'Set-Cookie',
          cookies.toSorted((a, b) => Number(isOurs(b)) - Number(isOurs(a))),
        );
      }
      return writeHead(...given);
    };
    next();
  };
  const [attended, unattended] = [sessionsOf(true), sessionsOf(false)];
  const sessions: RequestHandler = async (req, res, next) => {
    const find = isUnattended(req) ? unattended : attended;
    await orUnavailable(toPromise((done) => find(req, res, done)));
    next();
  };
  if (!config.TLS_TERMINATED_UPSTREAM) return [sessionFirst, sessions];
  // `TLS_TERMINATED_UPSTREAM` promises that callers use TLS. The cookie must be secure even if the proxy does not send
  // this header.
  const behindTls: RequestHandler = (req, _res, next) => {
    req.headers['x-forwarded-proto'] = 'https';
    next();
  };
  return [behindTls, sessionFirst, sessions];
};

/**
 * Starts a session under a new id, so that an attacker cannot use an id that was set before the sign-in (session
 * fixation).
 */
export const beginSession = async (req: Request, { operatorId, generation }: Operator): Promise<void> => {
  const signedInAt = req.session.operatorId === operatorId ? (req.session.signedInAt ?? serverNow()) : serverNow();
  await toPromise((done) => req.session.regenerate(done));
  Object.assign(req.session, { operatorId, generation, signedInAt });
  await toPromise((done) => req.session.save(done));
};

export const endSession = (req: Request): Promise<void> => toPromise((done) => req.session.destroy(done));

export type StoredSession = Partial<Pick<SessionData, 'operatorId' | 'generation' | 'signedInAt'>>;

/** True if the session has neither expired nor reached the longest time that a session may last. */
export const isCurrent = ({ signedInAt }: StoredSession, expires: Date | null): boolean =>
  signedInAt !== undefined &&
  serverNow() - signedInAt < SESSION_MAX_MS &&
  (expires === null || expires.getTime() > serverNow());

/** The operator and generation of the session, or null if there is no session or the session is too old. */
export const readSession = (req: Request): { operatorId: string; generation: number } | null => {
  const { operatorId, generation } = req.session;
  if (operatorId === undefined || generation === undefined || !isCurrent(req.session, null)) return null;
  return { operatorId, generation };
};
