import { getPriority } from 'node:os';
import { expect, onTestFinished, test } from 'vitest';
import { type Kind, startRealProcess } from '../support/processes.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });

const priorityOf = async (kind: Kind): Promise<number> => {
  const { child, kill } = await startRealProcess(kind, stack.env);
  onTestFinished(() => kill());
  return getPriority(child.pid);
};

test('on a busy machine, the API runs before the reply worker, and the reply worker before the delivery worker', async () => {
  const [api, reply, delivery] = await Promise.all((['api', 'reply', 'delivery'] as const).map(priorityOf));

  expect(api).toBe(getPriority());
  expect(reply).toBeGreaterThan(api ?? 19);
  expect(delivery).toBeGreaterThan(reply ?? 19);
});
