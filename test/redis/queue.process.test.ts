import { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { startRedis } from '../../scripts/services.ts';
import { createDeliveryQueue, type WakeUpJob } from '../../src/events/queue.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { createPartitions, createWake, openQueues } from '../../src/platform/redis/queue.ts';
import { closeRedis, openRedis } from '../../src/platform/redis/redis.ts';
import { eventually } from '../support/eventually.ts';

test('wake-ups at the same moment share jobs', async () => {
  const server = await startRedis();
  const logger = createLogger({ name: 'test', level: 'silent' });
  const redis = await openRedis({ url: server.url, role: 'worker' }, logger);
  const queues = openQueues<WakeUpJob>('deliveries', { redis, partitions: createPartitions('p', 1) }, logger);
  const queue = createDeliveryQueue(queues);
  const keys = Array.from({ length: 120 }, (_, nth) => String(nth).padStart(32, '0'));

  for (const key of [...keys, ...keys]) queue.wake({ _id: key, assistantId: 'one' });

  const partition = queues.of(keys[0] ?? '');
  const woken = await eventually(async () => {
    const jobs = await partition.getWaiting();
    expect(jobs.flatMap(({ data }) => data.conversations)).toEqual(expect.arrayContaining(keys));
    return jobs;
  });
  expect(woken.length).toBeLessThan(10);
  await queues.close();
  await closeRedis(redis);
  await server.dispose();
});

test('repeated sweeps and readings leave no commands behind while Redis is away', async () => {
  const server = await startRedis();
  const logger = createLogger({ name: 'test', level: 'silent' });
  const redis = await openRedis({ url: server.url, role: 'worker' }, logger);
  const partitions = createPartitions('p', 1);
  const queues = openQueues<WakeUpJob>('deliveries', { redis, partitions }, logger);
  const queue = createDeliveryQueue(queues);
  await queues.countJobs();
  await server.kill();

  const swept = Array.from({ length: 20 }, () => {
    void queues.countJobs();
    void queues.oldestWaitingAt();
    queue.wakeDelivery('delivery');
    return queue.byPartition([{ _id: 'conversation' }]);
  });
  for (const outcome of await Promise.allSettled(swept)) expect(outcome.status).toBe('rejected');
  await server.restart();

  await eventually(async () => expect(await queues.countJobs()).toMatchObject({ waiting: 1 }));
  const reader = new Redis(server.url);
  const scripts = Number(/cmdstat_evalsha:calls=(\d+)/.exec(await reader.info('commandstats'))?.[1]);
  expect(scripts).toBeLessThan(10);
  reader.disconnect();
  await queues.close();
  await closeRedis(redis);
  await server.dispose();
});

test('wake-ups do not fill Redis while nobody works on them', async () => {
  const server = await startRedis();
  const logger = createLogger({ name: 'test', level: 'silent' });
  const redis = await openRedis({ url: server.url, role: 'worker' }, logger);
  const queues = openQueues<{ sourceId: string }>('sources', { redis, partitions: createPartitions('p', 1) }, logger);
  const wake = createWake(queues, (sourceId) => ({ sourceId }));
  const waiting = async (): Promise<number> => (await queues.countJobs()).waiting ?? 0;
  const wakeSome = (): void => Array.from({ length: 1_000 }).forEach(() => wake('one'));

  // It looks once a second, so a few more may be added.
  await eventually(async () => {
    const before = await waiting();
    wakeSome();
    await redis.ping();
    expect(before).toBeGreaterThan(20_000);
    expect(await waiting()).toBe(before);
  });

  await queues.close();
  await closeRedis(redis);
  await server.dispose();
});
