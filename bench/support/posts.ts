import { fork } from 'node:child_process';
import { once } from 'node:events';

export type PostsOrder = { port: number; count: number; inFlight: number; body: string };

/**
 * Sends plain POSTs with undici from a separate process that keeps running. Their cost is the minimum that a delivery
 * can have.
 */
export const openPosts = () => {
  const child = fork(new URL('posts-process.ts', import.meta.url), { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  return {
    pid: child.pid as number,
    /** Sends the POSTs and returns the rate in requests per second. */
    run: async (order: PostsOrder): Promise<number> => {
      const answer = once(child, 'message') as Promise<[number]>;
      child.send(order);
      return (await answer)[0];
    },
    close: (): void => void child.kill(),
  };
};
