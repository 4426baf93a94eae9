import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';

const SEED = '20';

const runChaos = async (...args: string[]): Promise<{ code: number | null; output: string }> => {
  const child = spawn(process.execPath, ['chaos/service.ts', ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  const [output, errors, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')]);
  return { code: code as number | null, output: output + errors };
};

const countOf = (output: string, what: string): number =>
  Number(new RegExp(`^\\s*${what}\\s+(\\d+)`, 'm').exec(output)?.[1]);

// The long runs and their results are in docs/reliability.md.
test('under a minute of random faults nothing is lost, doubled or reordered', { timeout: 240_000 }, async () => {
  const { code, output } = await runChaos('--minutes', '1', '--seed', SEED, '--visitors', '10');
  expect(output).not.toContain('VIOLATED');
  expect(countOf(output, 'faults')).toBeGreaterThanOrEqual(10);
  expect(countOf(output, 'answered')).toBeGreaterThan(100);
  expect(code).toBe(0);
});
