import { expect, test } from 'vitest';
import { createSlots, whatRemains } from '../../src/platform/process/slots.ts';

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
