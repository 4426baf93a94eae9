import { randomUUID } from 'node:crypto';
import { expect, onTestFinished, test, vi } from 'vitest';
import { createLogger } from '../../src/platform/process/logger.ts';
import type { ApiError } from '../../src/platform/process/errors.ts';
import { type AllowanceStore, createQuotas, placeOf } from '../../src/turns/allowances.ts';

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

test('with the first moment of a month, also of a year, its quota is new; a budget with that of a day', async () => {
  const clock = vi.spyOn(performance, 'now');
  onTestFinished(() => clock.mockRestore());
  const goTo = (time: number) => clock.mockReturnValue(time - performance.timeOrigin);
  goTo(Date.UTC(2026, 11, 31, 23, 59, 59, 999));
  const reserve: AllowanceStore['reserve'] = async ({ place, turns }) =>
    place._id.endsWith('2026-12-01') ? 0 : (turns?.all.length ?? 0);
  const quotas = createQuotas({ reserve }, createLogger({ name: 'test', level: 'silent' }));
  onTestFinished(quotas.close);
  const budget = { kind: 'tokens' as const, target: 'a', assistantId: 'a' };

  const before = await quotas.reserve(quotaOf('a'), aTurn());
  const known = await quotas.reserve(quotaOf('a'), aTurn()); // that it is used up is remembered
  const day = placeOf(budget);
  goTo(Date.UTC(2027, 0, 1));
  const after = await quotas.reserve(quotaOf('a'), aTurn());

  for (const refused of [before, known]) {
    expect(refused).toMatchObject({ code: 'quota_exceeded', headers: { 'Retry-After': '1' } });
    expect((refused as ApiError).message).toContain('2027-01-01');
  }
  expect(after).toHaveProperty('settle');
  expect([day, placeOf(budget)].map(({ _id }) => _id)).toEqual(['tokens:a:2026-12-31', 'tokens:a:2027-01-01']);
  expect(day.to).toEqual(new Date(Date.UTC(2027, 0, 1)));
});
