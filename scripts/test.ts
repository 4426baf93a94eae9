import { spawn } from 'node:child_process';
import { constants, setPriority } from 'node:os';
import { join, relative } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs, stripVTControlCharacters } from 'node:util';
import { createVitest, type TestModule } from 'vitest/node';

/**
 * Runs a whole suite, and types, format and rules beside it. Each file that failed runs once more, alone, in a process
 * of its own. If it passes then, it is unsteady: the run is green and names it. The last lines are for people and
 * programs: an `unsteady:` or `failed:` line for each such file, then the counts and the seconds.
 *
 *     node scripts/test.ts [--strict] [--root folder] [--project name]… [--exclude pattern]… [--check 'command']…
 *                          [part of a file's name]…
 *
 * `--strict` gives no second try. Exits with 0 only if all is green.
 */
const { values: options, positionals: names } = parseArgs({
  options: {
    strict: { type: 'boolean', default: false },
    root: { type: 'string', default: process.cwd() },
    project: { type: 'string', multiple: true, default: [] },
    exclude: { type: 'string', multiple: true, default: [] },
    check: { type: 'string', multiple: true, default: [] },
  },
  allowPositionals: true,
});
const projects = options.project.flatMap((name) => ['--project', name]);

/** If more files fail, something common to them is broken, and their second tries would only take long. */
const SECOND_TRIES = 10;
const SHOWN_SLOWEST = 10;
const VITEST = join(import.meta.dirname, '../node_modules/vitest/vitest.mjs');
/** For the end of services and processes, which has limits of its own. Something that hangs must not hold the run. */
const CLOSE_MS = 180_000;
/** The mark of this run's processes (test/support/global-setup.ts). A second try is a run of its own. */
const MARK = 'PARLEY_TEST_RUN';

type Failure = { file: string; tests: number; reason: string };
type Ran = {
  passed: number;
  failures: Failure[];
  /** Faults that belong to no file: the run has to be red, whatever the files say. */
  faults: string[];
  seconds: Map<string, number>;
};

const startedAt = performance.now();
const secondsSince = (since: number): number => Math.round((performance.now() - since) / 1000);
/** Vitest gives plain objects for what was thrown in a test's process. */
const firstLineOf = (cause: unknown): string => {
  const { name = 'Error', message = 'no message' } = cause as { name?: string; message?: string };
  return stripVTControlCharacters(`${name}: ${message.split('\n')[0]}`).slice(0, 200);
};

/** Runs a command to its end. With `aside`, at a lower priority, and its output is printed at once when it ends. */
const run = (command: string, args: string[], { aside }: { aside: boolean }): Promise<boolean> =>
  new Promise((resolve) => {
    const env = { ...process.env };
    delete env[MARK];
    const child = spawn(command, args, {
      cwd: options.root,
      env,
      stdio: ['ignore', aside ? 'pipe' : 'inherit', aside ? 'pipe' : 'inherit'],
    });
    const output: Buffer[] = [];
    child.stdout?.on('data', (data: Buffer) => output.push(data));
    child.stderr?.on('data', (data: Buffer) => output.push(data));
    if (aside && child.pid !== undefined) setPriority(child.pid, constants.priority.PRIORITY_BELOW_NORMAL);
    child.on('error', (cause) => output.push(Buffer.from(`${command}: ${cause.message}\n`)));
    child.on('close', (code) => {
      process.stdout.write(Buffer.concat(output));
      resolve(code === 0);
    });
  });

const failureOf = (module: TestModule, unhandled: unknown[]): Failure | null => {
  const failed = [...module.children.allTests('failed')];
  const isOver = ['passed', 'failed', 'skipped'].includes(module.state());
  const reasons = [...module.errors(), ...failed.flatMap((one) => one.result().errors ?? []), ...unhandled];
  if (isOver && module.state() !== 'failed' && reasons.length === 0) return null;
  return {
    file: relative(options.root, module.moduleId),
    // A file that could not be loaded, or whose hooks failed, counts as one.
    tests: Math.max(1, failed.length),
    reason: reasons.length > 0 ? firstLineOf(reasons[0]) : `it did not end (${module.state()})`,
  };
};

/** The first try: everything at once, in this process. */
const runAll = async (): Promise<Ran> => {
  const { root, project, exclude } = options;
  const chosen = { ...(project.length > 0 && { project }), ...(exclude.length > 0 && { exclude }) };
  const vitest = await createVitest({ root, run: true, watch: false, ...chosen });
  const faults: string[] = [];
  await vitest.start(names).catch((cause: unknown) => {
    console.error(cause);
    faults.push(firstLineOf(cause));
  });
  const modules = vitest.state.getTestModules();
  const errors = vitest.state.getUnhandledErrors() as { VITEST_TEST_PATH?: string }[];
  const failures = modules.flatMap((module) => {
    const unhandled = errors.filter(({ VITEST_TEST_PATH: path }) => path === module.moduleId);
    return failureOf(module, unhandled) ?? [];
  });
  const files = new Set(modules.map(({ moduleId }) => moduleId));
  const ownerless = errors.filter(({ VITEST_TEST_PATH: path }) => path === undefined || !files.has(path));
  faults.push(...ownerless.map(firstLineOf));
  if (modules.length === 0) faults.push('no test ran');

  // The status so far says what the modules say. From here on it tells whether the services and processes of the run ended.
  process.exitCode = 0;
  const isClosed = await Promise.race([vitest.close().then(() => true), pause(CLOSE_MS, false, { ref: false })]);
  if (!isClosed) faults.push('the end of the run hangs');
  if (process.exitCode !== 0) faults.push('the end of the run failed: see above');
  const seconds = modules.map((module) => {
    const { duration, collectDuration, setupDuration } = module.diagnostic();
    return [relative(options.root, module.moduleId), (duration + collectDuration + setupDuration) / 1000] as const;
  });
  const passed = modules.reduce((sum, module) => sum + [...module.children.allTests('passed')].length, 0);
  return { passed, failures, faults, seconds: new Map(seconds) };
};

const checks = Promise.all(
  options.check.map(async (command) => ((await run('sh', ['-c', command], { aside: true })) ? [] : [command])),
);
const { passed, failures, faults, seconds } = await runAll();
const failedChecks = (await checks).flat();
faults.push(...failedChecks.map((command) => `${command}: see above`));

const isHopeless = options.strict || failures.length > SECOND_TRIES;
const unsteady: Failure[] = [];
for (const failure of isHopeless ? [] : failures) {
  console.log(`\nsecond try, alone: ${failure.file}`);
  const again = [VITEST, 'run', '--root', options.root, ...projects, failure.file];
  if (await run(process.execPath, again, { aside: false })) unsteady.push(failure);
}
const failed = failures.filter((one) => !unsteady.includes(one));
const testsOf = (some: Failure[]): number => some.reduce((sum, { tests }) => sum + tests, 0);

const slowest = [...seconds].sort(([, one], [, other]) => other - one).slice(0, SHOWN_SLOWEST);
console.log('\nslowest files:');
for (const [file, took] of slowest) console.log(`${took.toFixed(1).padStart(7)} s  ${file}`);
for (const { file, reason } of unsteady) console.log(`unsteady: ${file} (${reason})`);
for (const { file, reason } of failed) console.log(`failed: ${file} (${reason})`);
for (const fault of faults) console.log(`failed: ${fault}`);
const isGreen = failed.length === 0 && faults.length === 0;
console.log(
  `${isGreen ? 'green' : 'red'}: ${passed + testsOf(unsteady)} passed, ${testsOf(failed) + faults.length} failed, ` +
    `${unsteady.length} unsteady, ${secondsSince(startedAt)} s`,
);
process.exit(isGreen ? 0 : 1);
