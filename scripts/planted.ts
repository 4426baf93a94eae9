import { spawnSync } from 'node:child_process';
import { FAULTS } from '../test/kit/planted.ts';

/**
 * Plants each fault of `test/kit/planted.ts` and runs the tests that must notice it. The first test that fails
 * is enough. Exits with 0 only if each fault makes a test fail by an assertion.
 */
let unnoticed = 0;
for (const [name, [fault]] of Object.entries(FAULTS)) {
  if (!fault) continue;
  const startedAt = performance.now();
  const vitest = ['node_modules/vitest/vitest.mjs', 'run', '--project', '!long', '--bail', '1', fault.noticedBy];
  const run = spawnSync(process.execPath, vitest, {
    env: { ...process.env, PLANT: name, NO_COLOR: '1' },
    encoding: 'utf8',
    timeout: 900_000,
  });
  const failed = /^\s*Tests .*?(\d+) failed/m.exec(run.stdout)?.[1];
  const noticed = run.status !== 0 && failed !== undefined && !run.stderr.includes('no longer fits');
  if (!noticed) unnoticed += 1;
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
  console.log(`${noticed ? 'noticed' : 'NOT NOTICED'}  ${name} (${fault.noticedBy}: ${seconds} s)`);
  if (!noticed) console.log(run.stdout.slice(-2000), run.stderr.slice(-2000));
}
process.exitCode = unnoticed === 0 ? 0 : 1;
