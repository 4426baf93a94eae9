import { type Breaker, type BreakerOptions, createBreaker } from '../../src/platform/breaker.ts';

const CONNECTION_FAILURES: ReadonlySet<string | null> = new Set(['dns', 'connect', 'tls']);

export interface DeliveryBreaker extends Breaker {
  record: (endpointId: string, result: { outcome: string; errorKind: string | null }) => void;
}

/**
 * Stops connecting to an endpoint after repeated connection failures. A slow receiver is not suspended, because the
 * limit of sends in flight already protects other endpoints from it.
 */
export const createDeliveryBreaker = (options?: BreakerOptions): DeliveryBreaker => {
  const breaker = createBreaker(options);
  return {
    ...breaker,
    record: (endpointId, { outcome, errorKind }) => {
      if (outcome !== 'not_sent') breaker.succeeded(endpointId);
      else if (CONNECTION_FAILURES.has(errorKind)) breaker.failed(endpointId);
      // A refused address, a late event or a removed endpoint says nothing about the connection, so it counts neither
      // as success nor as failure.
      else breaker.release(endpointId);
    },
  };
};
