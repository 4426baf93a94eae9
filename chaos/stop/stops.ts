import { setTimeout as sleep } from 'node:timers/promises';
import type { Crew } from '../service/crew.ts';
import type { Kind } from '../../test/kit/processes.ts';

/** Load between two stops. */
const PAUSE_MS = 500;

export type Stop = { kind: Kind; code: number | null; ms: number };

export type Restarts = { crew: Crew; rounds: number; say: (line: string) => void };

/**
 * Restarts all processes one after the other, `rounds` times. A process gets SIGTERM, and its replacement must be ready
 * before the next one stops.
 */
export const restartAll = async ({ crew, rounds, say }: Restarts): Promise<Stop[]> => {
  const stops: Stop[] = [];
  for (let round = 1; round <= rounds; round += 1) {
    for (const post of crew.posts) {
      await sleep(PAUSE_MS);
      const startedAt = performance.now();
      const code = await crew.replace(post, 'SIGTERM');
      const ms = performance.now() - startedAt;
      await crew.untilReady([post]);
      stops.push({ kind: post.kind, code, ms });
      say(`round ${round}  ${post.kind.padEnd(8)} ended with ${code} after ${(ms / 1000).toFixed(2)} s`);
    }
  }
  await sleep(PAUSE_MS);
  return stops;
};
