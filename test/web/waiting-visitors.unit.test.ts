import type { Response } from 'express';
import { expect, test } from 'vitest';
import { createWaitForNews } from '../../src/web-channel/access.ts';

test('many waiting visitors look less often, together some 3,000 times a second', async () => {
  let looks = 0;
  const find = async () => {
    looks += 1;
    return { seq: 1, status: 'escalated' };
  };
  const waitForNews = createWaitForNews({ find, draining: new AbortController().signal });
  const known = { after: 1, status: 'escalated', waitMs: 2_000, res: { closed: false } as Response };
  const wait = (assistantId: string, count: number) =>
    Array.from({ length: count }, (_, nth) => waitForNews({ key: `${assistantId} ${nth}`, assistantId }, known));

  await Promise.all([...wait('one', 1_900), ...wait('two', 900)]);

  // Each looks at once, after a pause, and when its time is up.
  expect(looks).toBeLessThan(2_800 * 5);
});
