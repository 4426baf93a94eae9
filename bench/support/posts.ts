import { fork } from 'node:child_process';
import { once } from 'node:events';

export type PostsOrder = { port: number; count: number; inFlight: number; body: string };

/** POSTs by undici and nothing else, in a process of its own that stays up: what a delivery could cost at the least. */
export const openPosts = () => {
  const child = fork(new URL('posts-process.ts', import.meta.url), { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  return {
    pid: child.pid as number,
    /** How many a second. */
    run: async (order: PostsOrder): Promise<number> => {
      const answer = once(child, 'message') as Promise<[number]>;
      child.send(order);
      return (await answer)[0];
    },
    close: (): void => void child.kill(),
  };
};
