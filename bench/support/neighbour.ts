import { once } from 'node:events';
import { launchPeer } from '../../test/kit/processes.ts';

export type Turns = { p50: number; p99: number; refused: number; sent: number };

/** `questions`: those with a sure answer, or those that need the model. */
export type NeighbourOrder = {
  port: number;
  apiKey: string;
  seconds: number;
  questions: 'sure' | 'vague';
  turnsASecond: number;
};

/**
 * A caller in a process of its own. In that of an attacker it would measure the attacker too, which opens hundreds of
 * connections at once.
 */
export const openNeighbour = () => {
  const { child } = launchPeer(new URL('neighbour-process.ts', import.meta.url));
  return async (order: NeighbourOrder): Promise<Turns> => {
    const answer = once(child, 'message') as Promise<[Turns]>;
    child.send(order);
    return (await answer)[0];
  };
};
