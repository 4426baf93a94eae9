import { expect, onTestFinished, test } from 'vitest';
import { readConfig } from '../../src/platform/process/config.ts';
import { createLifecycle } from '../../src/platform/process/lifecycle.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { createMetrics } from '../../src/platform/process/metrics.ts';
import { openService } from '../../src/service.ts';
import { TURNS_QUEUE } from '../../src/turns/queue.ts';
import { openQueueWorkers } from '../../src/worker-process.ts';
import { eventually } from '../support/eventually.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ apis: 0, replyWorkers: 0, deliveryWorkers: 0 });
const JOBS = 64;

test('of a burst of jobs the first one begins before the others have been fetched', async () => {
  const logger = createLogger({ name: 'test', level: 'silent' });
  const lifecycle = createLifecycle(logger, { deadlineMs: 5_000 });
  onTestFinished(() => lifecycle.close());
  const config = readConfig(stack.env);
  const service = await openService({ config, logger, lifecycle, redisRole: 'worker' });
  const [queue] = service.queues.turns.queues;
  await queue?.addBulk(Array.from({ length: JOBS }, () => ({ name: 'answer', data: { turns: [] } })));
  const begun: number[] = [];
  const process = async (): Promise<void> => {
    begun.push(Date.now());
    // None ends before all have begun, so all can be run at once.
    await eventually(() => expect(begun).toHaveLength(JOBS));
  };

  await openQueueWorkers(
    { queue: TURNS_QUEUE, concurrency: JOBS, process },
    { service, config, logger, lifecycle, metrics: createMetrics({}) },
  );

  await eventually(async () => expect(await queue?.getJobCountByTypes('completed')).toBe(JOBS));
  const jobs = (await queue?.getJobs(['completed'])) ?? [];
  const fetchedBefore = jobs.filter(({ processedOn = 0 }) => processedOn < (begun[0] ?? 0));
  expect(jobs).toHaveLength(JOBS);
  expect(fetchedBefore.length).toBeLessThan(16);
});
