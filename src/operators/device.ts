import { createHmac, hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Request, Response } from 'express';
import type { Config } from '../platform/config.ts';
import type { StoredOperator } from './operator.ts';

const DAYS = 180;
const ACCOUNTS_MAX = 5;
const TOKEN = /^[\w-]{22}\.[\w-]{43}$/;

type Account = Pick<StoredOperator, '_id' | 'passwordHash'>;

/** Another secret than the sessions' one, from the same keys: the newest signs, every one is accepted. */
const secretsOf = ({ ENCRYPTION_KEY }: Pick<Config, 'ENCRYPTION_KEY'>): Buffer[] =>
  ENCRYPTION_KEY.map(({ key }) => Buffer.from(hkdfSync('sha256', key, '', 'parley known devices', 32)));

/** Bound to the account and to the password that was right: a new password makes strangers of all devices. */
const signatureOf = (secret: Buffer, id: string, { _id, passwordHash }: Account): Buffer =>
  createHmac('sha256', secret)
    .update(JSON.stringify([id, _id, passwordHash]))
    .digest();

/**
 * Browsers that somebody has signed in with. Each holds a signed token for every account that was (the last five), and
 * nothing about it is stored: it lets nobody in, it only counts wrong passwords apart from those of strangers.
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

    /** The device's number for this account; null for a stranger. */
    idFor: (req: Request, account: Account): string | null =>
      tokensOf(req)
        .find((token) => belongsTo(token, account))
        ?.split('.')[0] ?? null,

    /** After a right password. A device that was known keeps its number, and with it its count. */
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
        encode: String, // nothing in it needs it
      });
    },
  };
};

export type Devices = ReturnType<typeof createDevices>;
