import { createHash } from 'node:crypto';
import type { RateLimiter } from '../assistants/rate-limit.ts';
import { networkOf } from '../http/http.ts';

/** The limit of wrong passwords per minute for one device or session, and for one account from one address. */
const OWN_LIMIT = 5;
/**
 * The limit of wrong passwords per minute from one address, which many people may share, and for one account from all
 * addresses.
 */
const SHARED_LIMIT = 20;

const hashed = (text: string): string => createHash('sha256').update(text).digest('base64url');

type Subject = { name: string; limit: number };

/**
 * Limits how often a password may be guessed. Unknown browsers have three counts: by address, by account and address,
 * and by account. If one limit refuses a request, the request does not count at the other limits. A browser that has
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

  const ofAddress = (ip: string): Subject => ({ name: `address:${networkOf(ip)}`, limit: SHARED_LIMIT });
  const ofOne = (kind: 'device' | 'session', id: string): Subject => ({
    name: `${kind}:${hashed(id)}`,
    limit: OWN_LIMIT,
  });

  return {
    limited,
    byAddress: (ip) => [ofAddress(ip)],
    bySession: (sessionId) => [ofOne('session', sessionId)],
    byDevice: (deviceId) => [ofOne('device', deviceId)],
    byStranger: (ip, email) => [
      ofAddress(ip),
      { name: `account:${hashed(email)}:${networkOf(ip)}`, limit: OWN_LIMIT },
      { name: `account:${hashed(email)}`, limit: SHARED_LIMIT },
    ],
  };
};
