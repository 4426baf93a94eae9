import { expect, test } from 'vitest';
import { countOf, runChaos } from '../support/chaos.ts';

const SEED = '20';
const ANSWERS = 101;

// The results of long runs are in chaos/RESULTS.md.
test('under random faults nothing is lost, doubled or reordered', async () => {
  const load = ['--visitors', '10', '--answers', String(ANSWERS)];
  const { code, output } = await runChaos('chaos/service.ts', '--minutes', '0.4', '--seed', SEED, ...load);
  expect(output).not.toContain('VIOLATED');
  expect(countOf(output, 'faults')).toBeGreaterThanOrEqual(5);
  expect(countOf(output, 'answered')).toBeGreaterThanOrEqual(ANSWERS);
  expect(code).toBe(0);
});
