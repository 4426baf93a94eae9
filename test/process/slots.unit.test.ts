import { expect, test } from 'vitest';
import { createSlots, oneAtLeast, whatRemains } from '../../src/platform/process/slots.ts';

test('holders that take all slots they get, one after the other, leave one for each that has none', () => {
  const slots = createSlots(whatRemains(256));
  for (let nth = 0; nth < 16; nth += 1) {
    for (let before = -1; before < slots.inUse; ) {
      before = slots.inUse;
      void slots.acquire(`greedy ${nth}`);
    }
  }
  const taken = slots.inUse;

  for (let nth = 0; nth < 50; nth += 1) void slots.acquire(`other ${nth}`);

  expect(taken).toBeGreaterThan(180);
  expect(slots.inUse - taken).toBe(50);
  slots.close();
});

test('a holder without a slot gets one at once, although sixteen others have all', async () => {
  const slots = createSlots(oneAtLeast(16));
  for (let nth = 0; nth < 16; nth += 1) for (let own = 0; own < 4; own += 1) void slots.acquire(`greedy ${nth}`);

  const slot = await slots.acquire('other');

  expect(slot?.hasWaited).toBe(false);
  expect(slots.inUse).toBe(12 + 2 + 12 + 1); // of three, of the fourth, of those who came late, and of the other
  slots.close();
});
