import type { Occupancy } from '../../src/platform/slots.ts';

/**
 * Limits the sends in flight, per endpoint and in total. A slot is acquired before the claim, so that waiting events
 * stay unclaimed. Once half of all slots are in use, each endpoint is limited to its share, so that hanging endpoints
 * leave slots for others.
 */
export const endpointShare =
  ({ perEndpoint, total }: { perEndpoint: number; total: number }) =>
  ({ own, inUse, holders }: Occupancy): boolean => {
    if (inUse >= total || own >= perEndpoint) return false;
    return inUse < total / 2 || own < Math.max(1, Math.floor(total / holders));
  };
