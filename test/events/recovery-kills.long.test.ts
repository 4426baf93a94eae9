import { expect, test } from 'vitest';
import { countOf, runChaos } from '../support/chaos.ts';

// The results of long runs are in chaos/RESULTS.md.
test('a recovery under kills of workers sends what was missed, once and in order', async () => {
  const { code, output } = await runChaos('chaos/recovery.ts', '--minutes', '0.1', '--kills', '4');

  expect(output).not.toContain('FAILED');
  expect(countOf(output, 'sent again')).toBeGreaterThan(10);
  expect(code).toBe(0);
});

test('a receiver that lost its database rebuilds it from the list of events under kills of workers', async () => {
  const { code, output } = await runChaos('chaos/recovery.ts', '--rebuild', '--minutes', '0.2', '--kills', '4');

  expect(output).not.toContain('FAILED');
  expect(countOf(output, 'events in the rebuilt ledger')).toBeGreaterThan(10);
  expect(code).toBe(0);
});
