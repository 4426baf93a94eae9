import { randomUUID } from 'node:crypto';
import { expect, onTestFinished, test } from 'vitest';
import { createLogger } from '../../src/platform/process/logger.ts';
import { type AllowanceStore, createQuotas } from '../../src/turns/allowances.ts';

const aTurn = () => ({ turnId: randomUUID(), messageId: randomUUID() });
const quotaOf = (target: string) => [{ kind: 'assistant' as const, target, assistantId: target, limit: 10 }];

test('a quota whose counter does not answer delays no turn of another quota', async () => {
  const over = Promise.withResolvers<number>();
  const reserve: AllowanceStore['reserve'] = async ({ place, turns }) =>
    place.target === 'slow' ? over.promise : (turns?.all.length ?? 0);
  const quotas = createQuotas({ reserve }, createLogger({ name: 'test', level: 'silent' }));
  onTestFinished(async () => {
    over.resolve(0);
    await quotas.close();
  });
  const nextTick = () => new Promise((resolve) => setImmediate(resolve));

  for (let nth = 0; nth < 5; nth += 1) {
    void quotas.reserve(quotaOf('slow'), aTurn()).catch(() => undefined);
    await nextTick();
  }
  const reserved = await quotas.reserve(quotaOf('neighbour'), aTurn());

  expect(reserved).toHaveProperty('settle');
});
