import type { Occupancy } from '../../src/platform/slots.ts';

/**
 * How many sends may be under way, to one endpoint and in all; asked for before the claim, so that what waits is still
 * unclaimed. Once half of all slots are taken an endpoint may not hold more than its share, so that many hanging ones leave
 * room for those that answer.
 */
export const endpointShare =
  ({ perEndpoint, total }: { perEndpoint: number; total: number }) =>
  ({ own, inUse, holders }: Occupancy): boolean => {
    if (inUse >= total || own >= perEndpoint) return false;
    return inUse < total / 2 || own < Math.max(1, Math.floor(total / holders));
  };
