import { expect, test } from 'vitest';
import { countOf, runChaos } from '../support/chaos.ts';

// The results of long runs are in chaos/RESULTS.md.
test('a rolling restart under load breaks no request, and callers who retry get every answer', async () => {
  const { code, output } = await runChaos('chaos/stop.ts', '--rounds', '1', '--each', '1', '--visitors', '6');
  expect(output).not.toContain('VIOLATED');
  expect(countOf(output, 'stops')).toBe(4); // one of each kind of process
  expect(countOf(output, 'messages sent')).toBeGreaterThan(20);
  expect([code, output]).toEqual([0, output]);
});
