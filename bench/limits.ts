import type { Figure } from './support/figures.ts';

type Limit = { atLeast: number } | { atMost: number };

/** The limits that the figures must keep. A figure without a limit is only reported. */
export const LIMITS: Record<string, Limit> = {
  'turns.50.whole-ratio': { atLeast: 0.75 },
  'turns.200.whole-ratio': { atLeast: 0.75 },
  'turns.50.endpoint-ratio': { atLeast: 0.5 },
  'turns.200.endpoint-ratio': { atLeast: 0.5 },
  'turns.1.whole-p50': { atMost: 4 },
  'turns.half.p99': { atMost: 25 },
  'botbuilder.ratio': { atLeast: 2 },
  'deliveries.drain-200': { atLeast: 7000 },
  'deliveries.drain-200-ratio': { atLeast: 0.5 },
  'deliveries.500.p50': { atMost: 2 },
  'deliveries.500.p99': { atMost: 6 },
  'growth.ratio': { atLeast: 0.85 },
  'growth.idle': { atMost: 3 },
  'growth.history-p50': { atMost: 15 },
  'growth.deliveries-page-p50': { atMost: 10 },
  'listing.slowest': { atMost: 200 },
  'listing.overview': { atMost: 200 },
  'search.slowest': { atMost: 300 },
  'inbox.slowest': { atMost: 200 },
  'inbox.work-slowest': { atMost: 100 },
  'hot.turns': { atLeast: 600 },
  'start.api': { atMost: 1500 },
  'engine.missed': { atMost: 0 },
  'mixed.half.p99': { atMost: 250 },
  'mixed.half.differ': { atMost: 1 },
  'sources.first': { atMost: 20 },
  'sources.whole': { atMost: 600 },
  'sources.ratio': { atMost: 1.5 },
  'imports.2000.seconds': { atMost: 45 },
  'imports.2000.ratio': { atMost: 1.5 },
  'imports.10000.seconds': { atMost: 300 },
  'imports.10000.ratio': { atMost: 1.5 },
  'comparisons.quiet': { atMost: 60 },
  'comparisons.ratio': { atMost: 1.2 },
  'memory.growth': { atMost: 10 },
  'ordinary.sure.50.ratio': { atMost: 0.6 },
  'ordinary.memory.ratio': { atMost: 0.55 },
  'fair.ratio': { atMost: 2 },
  'fair.above-alone': { atMost: 150 },
  'fair.refused': { atMost: 0 },
  'fair.total': { atLeast: 0.95 },
  'neighbours.ratio': { atMost: 3 },
  'neighbours.refused': { atMost: 0 },
  'neighbours.memory': { atMost: 600 },
};

export const limitTextOf = ({ id }: Figure): string => {
  const limit = LIMITS[id];
  if (!limit) return '';
  return 'atLeast' in limit ? `≥ ${limit.atLeast}` : `≤ ${limit.atMost}`;
};

/**
 * True if the figure is within its limit. Null if the figure has no limit. A figure that could not be measured exceeds
 * its limit.
 */
export const isMet = ({ id, value }: Figure): boolean | null => {
  const limit = LIMITS[id];
  if (!limit) return null;
  return 'atLeast' in limit ? value >= limit.atLeast : value <= limit.atMost;
};
