import { randomBytes } from 'node:crypto';
import { hash, verify } from '@node-rs/argon2';

/**
 * The cost of argon2id: 19 MiB, 2 passes and 1 lane, as OWASP recommends. Hashing takes about 50 ms on a thread of the
 * pool.
 */
const COST = { memoryCost: 19_456, timeCost: 2, parallelism: 1 } as const;

export const hashPassword = (password: string): Promise<string> => hash(password.normalize('NFKC'), COST);

/** Generates a password from 120 random bits. The password is shown once. */
export const newPassword = (): string => randomBytes(15).toString('base64url');

/**
 * Compares a password with a stored hash. Without a stored hash, the password is compared with a dummy hash, so that
 * the response time does not show whether the account exists.
 */
export const createVerifier = () => {
  const dummyHash = hashPassword(newPassword());
  return async (stored: string | null, password: string): Promise<boolean> => {
    const matches = await verify(stored ?? (await dummyHash), password.normalize('NFKC'));
    return matches && stored !== null;
  };
};
