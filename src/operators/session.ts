import { createHash, hkdfSync } from 'node:crypto';
import { MongoStore } from 'connect-mongo';
import type { Request, RequestHandler, Response } from 'express';
import session from 'express-session';
import { type Connection, Schema } from 'mongoose';
import { serverNow } from '../platform/clock.ts';
import type { Config } from '../platform/config.ts';
import type { BeforeWriting } from '../platform/mongo-silence.ts';
import type { Operator } from './operator.ts';

/** Said by a page that asks by itself, not since a person did something: it does not keep the session alive. */
export const UNATTENDED_HEADER = 'X-Parley-Unattended';

const IDLE_MS = 12 * 3_600_000;
const SESSION_MAX_MS = 7 * 86_400_000;
const TOUCH_AFTER_S = 60;
const COLLECTION = 'operatorSessions';

declare module 'express-session' {
  interface SessionData {
    operatorId: string;
    generation: number;
    signedInAt: number;
  }
}

type SessionConfig = Pick<Config, 'ENCRYPTION_KEY' | 'TLS_CERT_FILE' | 'TLS_TERMINATED_UPSTREAM'>;

const sessionSchema = new Schema(
  { _id: String, expires: Date, session: Schema.Types.Mixed, lastModified: Date },
  { collection: COLLECTION, versionKey: false },
);
sessionSchema.index({ expires: 1 }, { expireAfterSeconds: 0 });

export const sessionModel = (connection: Connection) => connection.model('OperatorSession', sessionSchema);

/** Another secret than what seals the endpoints' ones, from the same key: the newest signs, every one is accepted. */
const secretsOf = ({ ENCRYPTION_KEY }: SessionConfig): string[] =>
  ENCRYPTION_KEY.map(({ key }) =>
    Buffer.from(hkdfSync('sha256', key, '', 'parley operator sessions', 32)).toString('base64url'),
  );

/** `__Host-`: no subdomain and no plain-HTTP page can set it in the browser's stead. */
export const cookieNameOf = (secure: boolean): string => (secure ? '__Host-parley' : 'parley');

/** The board's page asks again and again by itself, and knows no header of ours. */
const isUnattended = (req: Request): boolean =>
  req.get(UNATTENDED_HEADER) !== undefined || /\/queues\/api\//.test(req.originalUrl);

const toPromise = (work: (done: (failure?: unknown) => void) => void): Promise<void> =>
  new Promise((resolve, reject) => {
    work((failure) => (failure ? reject(failure instanceof Error ? failure : new Error('session')) : resolve()));
  });

/** Server-side sessions in MongoDB; what the cookie carries is a signed number, kept only as its hash. */
export const createSessions = (
  connection: Connection,
  config: SessionConfig,
  beforeWriting: BeforeWriting,
): RequestHandler[] => {
  const secure = config.TLS_CERT_FILE !== undefined || config.TLS_TERMINATED_UPSTREAM;
  const storeOf = (attended: boolean): MongoStore => {
    const store = new MongoStore({
      client: connection.getClient(),
      dbName: connection.name,
      collectionName: COLLECTION,
      stringify: false,
      autoRemove: 'disabled', // the index is the model's
      ttl: IDLE_MS / 1000,
      touchAfter: TOUCH_AFTER_S,
      transformId: (sid) => createHash('sha256').update(sid).digest('base64url'),
    });
    const touch = store.touch.bind(store);
    // A session that was ended while a request of it was under way has nothing left to prolong.
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
  /** Beside the session's cookie there may be the device's; many a client reads the first one only. */
  const sessionFirst: RequestHandler = (_req, res, next) => {
    const writeHead = res.writeHead.bind(res) as (...given: unknown[]) => Response;
    const isOurs = (cookie: string): boolean => cookie.startsWith(`${cookieNameOf(secure)}=`);
    // Set before the session's own hook, so that it runs after that has written its cookie.
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
    await beforeWriting(toPromise((done) => find(req, res, done)));
    next();
  };
  if (!config.TLS_TERMINATED_UPSTREAM) return [sessionFirst, sessions];
  // The setting says that callers use TLS; whether the proxy says so too must not decide about the cookie.
  const behindTls: RequestHandler = (req, _res, next) => {
    req.headers['x-forwarded-proto'] = 'https';
    next();
  };
  return [behindTls, sessionFirst, sessions];
};

/** Under a new number: one that was planted before the sign-in (fixation) leads nowhere. */
export const beginSession = async (req: Request, { operatorId, generation }: Operator): Promise<void> => {
  const signedInAt = req.session.operatorId === operatorId ? (req.session.signedInAt ?? serverNow()) : serverNow();
  await toPromise((done) => req.session.regenerate(done));
  Object.assign(req.session, { operatorId, generation, signedInAt });
  await toPromise((done) => req.session.save(done));
};

export const endSession = (req: Request): Promise<void> => toPromise((done) => req.session.destroy(done));

/** Whose session this may be, and under which generation; null where there is none, or it is too old. */
export const readSession = (req: Request): { operatorId: string; generation: number } | null => {
  const { operatorId, generation, signedInAt } = req.session;
  if (operatorId === undefined || generation === undefined || signedInAt === undefined) return null;
  return serverNow() - signedInAt < SESSION_MAX_MS ? { operatorId, generation } : null;
};
