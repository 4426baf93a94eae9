import { createHash } from 'node:crypto';
import type { RateLimiter } from '../assistants/rate-limit.ts';
import { networkOf } from '../platform/client-network.ts';

/** Wrong ones a minute: of one device or session, or of one account from one address. */
const OWN_LIMIT = 5;
/** Of one address on whatever account, as many people may share it; of one account from wherever. */
const SHARED_LIMIT = 20;

const hashed = (text: string): string => createHash('sha256').update(text).digest('base64url');

type Subject = { name: string; limit: number };

/**
 * How often a password may be guessed. Strangers are counted by address first, then by account and address, then by account;
 * whoever is refused at one has counted nothing at the others. A device that the account was signed in with before has a
 * count of its own and meets none of these: whatever others try, its person gets in.
 */
export const createSignInLimits = (rateLimiter: RateLimiter) => {
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

  /** Counted before it is looked at, so that guesses at once count too; what was right does not count. */
  const limited = async <Found>(subjects: Subject[], attempt: () => Promise<Found | null>): Promise<Found | null> => {
    await count(subjects);
    let wrong = false;
    try {
      const found = await attempt();
      wrong = found === null;
      return found;
    } finally {
      // Neither right nor wrong while the store is away: nobody is locked out by that.
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
    /** A link's token. */
    byAddress: (ip: string): Subject[] => [ofAddress(ip)],
    /** Who is signed in already and changes the password. */
    bySession: (sessionId: string): Subject[] => [ofOne('session', sessionId)],
    byDevice: (deviceId: string): Subject[] => [ofOne('device', deviceId)],
    byStranger: (ip: string, email: string): Subject[] => [
      ofAddress(ip),
      { name: `account:${hashed(email)}:${networkOf(ip)}`, limit: OWN_LIMIT },
      { name: `account:${hashed(email)}`, limit: SHARED_LIMIT },
    ],
  };
};

export type SignInLimits = ReturnType<typeof createSignInLimits>;
