import { randomBytes } from 'node:crypto';
import { hash, verify } from '@node-rs/argon2';

/** argon2id with 19 MiB, 2 passes, 1 lane: what OWASP asks for, about 50 ms on a thread that is not the event loop's. */
const COST = { memoryCost: 19_456, timeCost: 2, parallelism: 1 } as const;

export const hashPassword = (password: string): Promise<string> => hash(password.normalize('NFKC'), COST);

/** A password for those who did not choose one: 120 bits, shown once. */
export const newPassword = (): string => randomBytes(15).toString('base64url');

/** Compares; where there is nothing to compare with it takes as long, so that time does not tell who has an account. */
export const createVerifier = () => {
  const dummyHash = hashPassword(newPassword());
  return async (stored: string | null, password: string): Promise<boolean> => {
    const matches = await verify(stored ?? (await dummyHash), password.normalize('NFKC'));
    return matches && stored !== null;
  };
};
