import { Pool } from 'undici';
import type { PostsOrder } from './posts.ts';

const post = (pool: Pool, body: string): Promise<void> =>
  new Promise((resolve, reject) => {
    pool.dispatch(
      { path: '/hook', method: 'POST', headers: { 'content-type': 'application/json' }, body },
      {
        onRequestStart: () => undefined,
        onResponseStart: () => undefined,
        onResponseData: () => undefined,
        onResponseEnd: () => resolve(),
        onResponseError: (_controller: unknown, cause: Error) => reject(cause),
      },
    );
  });

const run = async ({ port, count, inFlight, body }: PostsOrder): Promise<number> => {
  const pool = new Pool(`http://127.0.0.1:${port}`, { connections: inFlight, pipelining: 1, allowH2: false });
  let left = count;
  const lane = async (): Promise<void> => {
    while (left-- > 0) await post(pool, body);
  };
  const startedAt = performance.now();
  await Promise.all(Array.from({ length: inFlight }, lane));
  const seconds = (performance.now() - startedAt) / 1000;
  await pool.destroy();
  return count / seconds;
};

process.on('message', (order: PostsOrder) => void run(order).then((rate) => process.send?.(rate)));
process.on('disconnect', () => process.exit(0));
