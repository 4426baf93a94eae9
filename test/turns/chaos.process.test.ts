import { expect, test } from 'vitest';
import { countOf, runChaos } from '../support/chaos.ts';

const SEED = '20';

// The results of long runs are in chaos/RESULTS.md.
test('under half a minute of random faults nothing is lost, doubled or reordered', { timeout: 240_000 }, async () => {
  const { code, output } = await runChaos('chaos/service.ts', '--minutes', '0.5', '--seed', SEED, '--visitors', '10');
  expect(output).not.toContain('VIOLATED');
  expect(countOf(output, 'faults')).toBeGreaterThanOrEqual(5);
  expect(countOf(output, 'answered')).toBeGreaterThan(100);
  expect(code).toBe(0);
});
