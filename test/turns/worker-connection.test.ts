import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { Queue, Worker } from 'bullmq';
import { expect, inject, onTestFinished, test } from 'vitest';
import { createLogger } from '../../src/platform/process/logger.ts';
import { closeRedis, openRedis } from '../../src/platform/redis/redis.ts';
import { eventually } from '../support/eventually.ts';
import { openRelay } from '../kit/relay.ts';

test('a worker whose connection is refused at first works once it is connected', async () => {
  const direct = new URL(inject('redisUrl'));
  const relay = await openRelay(direct.href);
  const logger = createLogger({ name: 'test', level: 'silent' });
  const [name, done] = [`t-${randomUUID()}`, [] as unknown[]];
  const connection = await openRedis({ url: `redis://127.0.0.1:${relay.port}`, role: 'worker' }, logger);
  onTestFinished(() => closeRedis(connection));

  relay.refuse();
  // The worker waits for jobs on its own connection, a copy of this one.
  const worker = new Worker(name, async ({ data }) => void done.push(data), { connection });
  onTestFinished(() => worker.close(true));
  await once(worker, 'error');
  await relay.mend();
  onTestFinished(relay.cut);
  const queue = new Queue(name, { connection: { url: direct.href } });
  onTestFinished(() => queue.close());
  await queue.add('one', 'a job');

  await eventually(() => expect(done).toEqual(['a job']));
  await queue.obliterate({ force: true });
});
