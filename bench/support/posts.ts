import { once } from 'node:events';
import { launchPeer } from '../../test/kit/processes.ts';

export type PostsOrder = { port: number; count: number; inFlight: number; body: string };

/**
 * Sends plain POSTs with undici from a separate process that keeps running. Their cost is the minimum that a delivery
 * can have.
 */
export const openPosts = () => {
  const { child, pid } = launchPeer(new URL('posts-process.ts', import.meta.url));
  return {
    pid,
    /** Sends the POSTs and returns the rate in requests per second. */
    run: async (order: PostsOrder): Promise<number> => {
      const answer = once(child, 'message') as Promise<[number]>;
      child.send(order);
      return (await answer)[0];
    },
  };
};
