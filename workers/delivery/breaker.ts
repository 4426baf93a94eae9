import { LRUCache } from 'lru-cache';

/**
 * Spares a dead endpoint, and us, the connecting: so many connection failures in a row pause it, then one probe at a
 * time goes out until one gets through. A receiver that is merely slow is not paused: its in-flight cap holds it.
 */
export interface Breaker {
  /** True is a permit: of a paused endpoint, the first to ask after the pause is the probe. Record how it went. */
  mayStart: (endpointId: string) => boolean;
  record: (endpointId: string, result: { outcome: string; errorKind: string | null }) => void;
  /** Returns a permit that was not used: somebody else had the claim, or it was too late. */
  release: (endpointId: string) => void;
  /** Suspends it without a failure: this process cannot send to it for now. */
  suspend: (endpointId: string) => void;
  /** On `now`'s clock; null when the endpoint is not paused. */
  pausedUntil: (endpointId: string) => number | null;
  /** A try would be refused: it is paused, or its probe is in flight. Unlike `mayStart`, asking changes nothing. */
  isSuspended: (endpointId: string) => boolean;
  suspended: () => string[];
}
export interface BreakerOptions {
  threshold?: number;
  pauseMs?: number;
  now?: () => number;
}
/** One that is forgotten, or removed, would otherwise stay for as long as the process. */
const REMEMBERED = 10_000;

interface Trouble {
  failures: number;
  pausedUntil: number | null;
  probeSince: number | null;
}

const CONNECTION_FAILURES: ReadonlySet<string | null> = new Set(['dns', 'connect', 'tls']);

export const createBreaker = ({
  threshold = 5,
  pauseMs = 30_000,
  now = () => performance.now(),
}: BreakerOptions = {}): Breaker => {
  const troubled = new LRUCache<string, Trouble>({ max: REMEMBERED });

  const isSuspended = (endpointId: string): boolean => {
    const trouble = troubled.get(endpointId);
    if (!trouble || trouble.pausedUntil === null) return false;
    const time = now();
    // A probe that was never recorded must not pause the endpoint for ever.
    return time < trouble.pausedUntil || (trouble.probeSince !== null && time - trouble.probeSince < pauseMs);
  };

  const mayStart = (endpointId: string): boolean => {
    if (isSuspended(endpointId)) return false;
    const trouble = troubled.get(endpointId);
    if (trouble && trouble.pausedUntil !== null) trouble.probeSince = now();
    return true;
  };

  const release = (endpointId: string): void => {
    const trouble = troubled.get(endpointId);
    if (trouble) trouble.probeSince = null;
  };

  const suspend = (endpointId: string): void => {
    const failures = troubled.get(endpointId)?.failures ?? 0;
    troubled.set(endpointId, { failures, pausedUntil: now() + pauseMs, probeSince: null });
  };

  const recordFailure = (endpointId: string): void => {
    const trouble = troubled.get(endpointId) ?? { failures: 0, pausedUntil: null, probeSince: null };
    troubled.set(endpointId, trouble);
    trouble.failures += 1;
    // What was already in flight when the pause began does not lengthen it.
    const waiting = trouble.pausedUntil !== null && trouble.probeSince === null;
    if (waiting || trouble.failures < threshold) return;
    trouble.pausedUntil = now() + pauseMs;
    trouble.probeSince = null;
  };

  const record = (endpointId: string, { outcome, errorKind }: { outcome: string; errorKind: string | null }): void => {
    if (outcome !== 'not_sent') troubled.delete(endpointId);
    else if (CONNECTION_FAILURES.has(errorKind)) recordFailure(endpointId);
    // Refused, too late or removed: this says nothing about the connection, so the probe is still to be made.
    else release(endpointId);
  };

  const pausedUntil = (endpointId: string): number | null => {
    const until = troubled.get(endpointId)?.pausedUntil ?? null;
    return until !== null && until > now() ? until : null;
  };

  const suspended = (): string[] => [...troubled.keys()].filter(isSuspended);

  return { mayStart, record, release, suspend, pausedUntil, isSuspended, suspended };
};
