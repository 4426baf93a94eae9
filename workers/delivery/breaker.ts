import { type Breaker, type BreakerOptions, createBreaker } from '../../src/platform/breaker.ts';

const CONNECTION_FAILURES: ReadonlySet<string | null> = new Set(['dns', 'connect', 'tls']);

export interface DeliveryBreaker extends Breaker {
  record: (endpointId: string, result: { outcome: string; errorKind: string | null }) => void;
}

/**
 * Spares a dead endpoint, and us, the connecting: connection failures alone count. A receiver that is merely slow is not
 * suspended: its in-flight cap holds it.
 */
export const createDeliveryBreaker = (options?: BreakerOptions): DeliveryBreaker => {
  const breaker = createBreaker(options);
  return {
    ...breaker,
    record: (endpointId, { outcome, errorKind }) => {
      if (outcome !== 'not_sent') breaker.succeeded(endpointId);
      else if (CONNECTION_FAILURES.has(errorKind)) breaker.failed(endpointId);
      // Refused, too late, removed: nothing was learnt about the connection.
      else breaker.release(endpointId);
    },
  };
};
