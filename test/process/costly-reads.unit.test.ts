import { expect, test } from 'vitest';
import { createCostlyReads } from '../../src/platform/http/shares.ts';

test('many people of one assistant have its share of the costly reads', async () => {
  const costly = createCostlyReads();
  const { signal } = new AbortController();
  const released = Promise.withResolvers<void>();
  let running = 0;
  const theirs = Array.from({ length: 20 }, (_, nth) =>
    costly({ caller: `agent ${nth}`, holder: 'an assistant', tenant: `agent ${nth}`, signal }, async () => {
      running += 1;
      await released.promise;
    }),
  );
  const read = async (): Promise<number> => running;

  const duringOther = await costly({ caller: 'x', holder: 'another', tenant: 'x', signal }, read);
  released.resolve();
  await Promise.all(theirs);

  expect([duringOther, running]).toEqual([2, 20]);
});
