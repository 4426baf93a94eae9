import { createHmac, hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Request, Response } from 'express';
import type { Config } from '../platform/config.ts';
import type { StoredOperator } from './operator.ts';

const DAYS = 180;
const ACCOUNTS_MAX = 5;
const TOKEN = /^[\w-]{22}\.[\w-]{43}$/;

type Account = Pick<StoredOperator, '_id' | 'passwordHash'>;

/**
 * The secrets that sign device tokens. They are derived from the same keys as the session secrets, but are different
 * from them. The newest secret signs; all secrets are accepted.
 */
const secretsOf = ({ ENCRYPTION_KEY }: Pick<Config, 'ENCRYPTION_KEY'>): Buffer[] =>
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
export const createDevices = (config: Pick<Config, 'ENCRYPTION_KEY'>, { secure }: { secure: boolean }) => {
  const secrets = secretsOf(config);
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
    hasAny: (req: Request): boolean => tokensOf(req).length > 0,

    /** The id of this device for this account, or null for an unknown device. */
    idFor: (req: Request, account: Account): string | null =>
      tokensOf(req)
        .find((token) => belongsTo(token, account))
        ?.split('.')[0] ?? null,

    /** Called after a correct password. A known device keeps its id and its count of wrong passwords. */
    remember: (req: Request, res: Response, account: Account): void => {
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

export type Devices = ReturnType<typeof createDevices>;
