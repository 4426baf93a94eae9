import { spawnSync } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { longTest, sized } from '../support/size.ts';

const ROOT = join(import.meta.dirname, '../..');
const RED = /^red: \d passed, [1-9] failed, 0 unsteady, … s$/;
const PASSES = `test('one passes', () => {});`;
const FAILS = `test('one passes', () => {});\ntest('one fails', () => { expect(1).toBe(2); });`;
/** Fails only if no earlier try left its mark. */
const failsOnce = (how: string): string => `
import { existsSync, writeFileSync } from 'node:fs';
const mark = import.meta.dirname + '/tried';
const isFirst = !existsSync(mark);
writeFileSync(mark, '');
test('one passes', () => {});
test('one fails once', async () => { if (isFirst) { ${how} } });`;

/** Runs a suite of these files, as `npm test` runs ours. */
const runSuite = async (
  files: Record<string, string>,
  { args = [], config = '' }: { args?: string[]; config?: string } = {},
) => {
  await mkdir(join(ROOT, '.local/suites'), { recursive: true });
  const root = await mkdtemp(join(ROOT, '.local/suites/s-'));
  onTestFinished(() => rm(root, { recursive: true, force: true }));
  await writeFile(
    join(root, 'vitest.config.ts'),
    `export default { test: { globals: true, pool: 'forks', maxWorkers: 1, include: ['*.test.ts'], ${config} } };`,
  );
  for (const [name, text] of Object.entries(files)) await writeFile(join(root, name), text);
  const { PARLEY_TEST_RUN: _ours, VITEST: _vitest, ...env } = process.env;
  const suite = [join(ROOT, 'scripts/test.ts'), '--root', root, ...args];
  const { status, stdout, stderr } = spawnSync(process.execPath, suite, { env, encoding: 'utf8' });
  const lines = stdout.trimEnd().split('\n');
  return { status, output: stdout + stderr, counts: lines.at(-1)?.replace(/\d+ s$/, '… s'), lines };
};

longTest('a suite whose files pass is green, and its slowest files are listed', async () => {
  const { status, counts, lines } = await runSuite({ 'a.test.ts': PASSES, 'b.test.ts': PASSES });

  expect(counts).toBe('green: 2 passed, 0 failed, 0 unsteady, … s');
  expect(status).toBe(0);
  expect(lines.filter((line) => /^ +\d+\.\d s {2}[ab]\.test\.ts$/.test(line))).toHaveLength(2);
});

longTest('a file that always fails is red, after a second try', async () => {
  const { status, counts, lines, output } = await runSuite({ 'a.test.ts': PASSES, 'b.test.ts': FAILS });

  expect(output).toContain('second try, alone: b.test.ts');
  expect(lines).toContain('failed: b.test.ts (AssertionError: expected 1 to be 2 // Object.is equality)');
  expect(counts).toBe('red: 2 passed, 1 failed, 0 unsteady, … s');
  expect(status).toBe(1);
});

const ONCE: [name: string, how: string, reason: string][] = [
  ['a failed assertion', 'expect(1).toBe(2);', 'AssertionError: expected 1 to be 2 // Object.is equality'],
  ['an unhandled rejection', `void Promise.reject(new Error('late'));`, 'Error: late'],
];

test.each(sized({ everyday: ONCE.slice(0, 1), long: ONCE }))(
  'a file that fails once by %s is unsteady, named, and green',
  async (_name, how, reason) => {
    const { status, counts, lines } = await runSuite({ 'a.test.ts': failsOnce(how), 'b.test.ts': PASSES });

    expect(lines).toContain(`unsteady: a.test.ts (${reason})`);
    expect(lines.filter((line) => /^ +\d+\.\d s {2}[ab]\.test\.ts$/.test(line))).toHaveLength(2);
    expect(counts).toMatch(/^green: [34] passed, 0 failed, 1 unsteady, … s$/);
    expect(status).toBe(0);
  },
);

longTest('a strict run gives no second try', async () => {
  const suite = { 'a.test.ts': failsOnce('expect(1).toBe(2);') };

  const { status, counts, output } = await runSuite(suite, { args: ['--strict'] });

  expect(output).not.toContain('second try');
  expect(counts).toBe('red: 1 passed, 1 failed, 0 unsteady, … s');
  expect(status).toBe(1);
});

longTest('more than ten failing files are red at once', async () => {
  const names = Array.from({ length: 11 }, (_, nth) => `f${nth}.test.ts`);

  const { status, counts, output } = await runSuite(Object.fromEntries(names.map((name) => [name, FAILS])));

  expect(output).not.toContain('second try');
  expect(counts).toBe('red: 11 passed, 11 failed, 0 unsteady, … s');
  expect(status).toBe(1);
});

const END = `afterAll(() => { throw new Error('its end failed'); });\n${PASSES}`;
const CRASHES = `test('one', () => process.kill(process.pid, 'SIGKILL'));`;

const FAILING: Record<string, string> = {
  'a file that cannot be loaded': `import './missing.ts';`,
  'a file without a test': `export {};`,
  'a file whose last hook fails': END,
  'a process of the runner that crashes': CRASHES,
};

for (const [name, text] of Object.entries(FAILING)) {
  longTest(`${name} is red`, async () => {
    const { status, counts } = await runSuite({ 'a.test.ts': text });

    expect(counts).toMatch(RED);
    expect(status).toBe(1);
  });
}

test('every way in which a file fails is red and named, and a strict run gives no second try', async () => {
  const [unloaded, empty, hook, crash] = Object.values(FAILING);
  const suite = { unloaded, empty, hook, crash, fails: FAILS, passes: PASSES };
  const files = Object.fromEntries(Object.entries(suite).map(([name, text = '']) => [`${name}.test.ts`, text]));

  const { status, lines, output } = await runSuite(files, { args: ['--strict'] });

  const named = lines.flatMap((line) => /^failed: (\w+)\.test\.ts \(/.exec(line)?.[1] ?? []);
  expect(named.toSorted()).toEqual(['crash', 'empty', 'fails', 'hook', 'unloaded']);
  expect(output).not.toContain('second try');
  expect(status).toBe(1);
});

longTest('no file at all is red', async () => {
  const { status, counts } = await runSuite({});

  expect(counts).toMatch(RED);
  expect(status).toBe(1);
});

const SERVICES = [
  ['does not end', `return () => { throw new Error('still there'); };`],
  ['does not start', `throw new Error('no Redis');`],
];

test.each(sized({ everyday: SERVICES.slice(0, 1), long: SERVICES }))(
  'a service that %s is red',
  async (_name, setUp) => {
    const files = { 'a.test.ts': PASSES, 'set-up.ts': `export default () => { ${setUp} };` };

    const { status, counts } = await runSuite(files, { config: `globalSetup: ['./set-up.ts']` });

    expect(counts).toMatch(RED);
    expect(status).toBe(1);
  },
);

test('a failed check of types is red, named, and its output is shown', async () => {
  const check = 'echo "error TS2322: not assignable"; exit 2';

  const { status, counts, lines } = await runSuite({ 'a.test.ts': PASSES }, { args: ['--check', check] });

  expect(lines).toContain('error TS2322: not assignable');
  expect(lines).toContain(`failed: ${check}: see above`);
  expect(counts).toMatch(RED);
  expect(status).toBe(1);
});
