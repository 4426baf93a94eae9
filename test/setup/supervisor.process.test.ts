import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { keepSecrets } from '../../scripts/quickstart/secrets.ts';
import { acquireLock } from '../../scripts/quickstart/pid-lock.ts';
import { createSupervisor, type SupervisorOptions } from '../../scripts/quickstart/supervisor.ts';

const aFolder = (): string => {
  const folder = mkdtempSync(join(tmpdir(), 'parley-quickstart-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
};

const aSupervisor = (overrides: Partial<SupervisorOptions> = {}) => {
  const lines: string[] = [];
  const changes: Record<string, number[]>[] = [];
  const supervisor = createSupervisor({
    cwd: aFolder(),
    logDir: aFolder(),
    env: process.env,
    say: (line) => lines.push(line),
    onChange: (pids) => changes.push(pids),
    ...overrides,
  });
  onTestFinished(async () => void (await supervisor.stop()));
  return { supervisor, lines, changes };
};

const aChild = (script: string, name = 'worker-1') => ({ name, kind: 'worker', args: ['--eval', script] });
const FOREVER = 'setInterval(() => {}, 1000)';

/** A process that has ended but was not yet reaped (slow in some containers) counts as ended. */
const isAlive = (pid: number | undefined): boolean => {
  try {
    if (pid === undefined || !process.kill(pid, 0)) return false;
    return process.platform !== 'linux' || !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
};

describe('the supervisor', () => {
  test('a killed process is restarted, and the output and the process ids show it', async () => {
    const { supervisor, lines, changes } = aSupervisor();
    await supervisor.start(aChild(FOREVER));
    const first = supervisor.pids()['worker']?.[0] ?? 0;

    process.kill(first, 'SIGKILL');
    await expect.poll(() => lines, { timeout: 10_000 }).toHaveLength(1);

    const second = supervisor.pids()['worker']?.[0];
    expect(lines[0]).toBe(`worker-1 (pid ${first}) ended by SIGKILL; started again as pid ${second}`);
    expect(changes.map((pids) => pids['worker'])).toEqual([[first], [], [second]]);
    expect(isAlive(second)).toBe(true);
  });

  test('stopping ends all processes and restarts none', async () => {
    const { supervisor, lines } = aSupervisor();
    await supervisor.start(aChild(FOREVER));
    await supervisor.start(aChild(FOREVER, 'worker-2'));
    const pids = supervisor.pids()['worker'] ?? [];

    expect(pids).toHaveLength(2);
    expect(await supervisor.stop()).toBe(true);

    expect(pids.filter(isAlive)).toEqual([]);
    expect(lines).toEqual([]);
  });

  test('a process that ignores its stop is killed at the deadline, and this is reported', async () => {
    const { supervisor, lines } = aSupervisor({ stopMs: 300 });
    const logDir = aFolder();
    const mark = join(logDir, 'deaf');
    const script = `process.on('SIGTERM', () => {}); require('fs').writeFileSync(${JSON.stringify(mark)}, ''); ${FOREVER}`;
    await supervisor.start({ ...aChild(script), isReady: async () => statSync(mark).isFile() });
    const [pid] = supervisor.pids()['worker'] ?? [];

    expect(await supervisor.stop()).toBe(false);

    expect(isAlive(pid)).toBe(false);
    expect(lines).toEqual([`worker-1 (pid ${pid}) did not end within 0.3 s: killed`]);
  });

  test('a second stop kills the running processes at once', async () => {
    const { supervisor } = aSupervisor({ stopMs: 60_000 });
    const mark = join(aFolder(), 'deaf');
    const script = `process.on('SIGTERM', () => {}); require('fs').writeFileSync(${JSON.stringify(mark)}, ''); ${FOREVER}`;
    await supervisor.start({ ...aChild(script), isReady: async () => statSync(mark).isFile() });
    const [pid] = supervisor.pids()['worker'] ?? [];

    const stopped = supervisor.stop();
    supervisor.kill();
    await stopped;

    expect(isAlive(pid)).toBe(false);
    await expect(supervisor.start(aChild(FOREVER, 'worker-2'))).rejects.toThrow(
      'stopped before everything was started',
    );
  });

  test('a process that ends before it is ready fails the start, and its log is named', async () => {
    const logDir = aFolder();
    const { supervisor } = aSupervisor({ logDir });
    const child = { ...aChild('console.log("no key"); process.exit(2)'), isReady: async () => false };

    await expect(supervisor.start(child)).rejects.toThrow(
      `worker-1 ended while starting: see ${join(logDir, 'worker-1.log')}`,
    );

    expect(readFileSync(join(logDir, 'worker-1.log'), 'utf8')).toContain('no key');
  });

  test('its processes end when the supervisor is killed', async () => {
    const owner = spawn(process.execPath, ['--input-type=module-typescript', '--eval', OWNER, aFolder()], {
      cwd: join(import.meta.dirname, '../..'),
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const pid = await new Promise<number>((resolve) => owner.stdout.once('data', (data) => resolve(Number(data))));
    expect(isAlive(pid)).toBe(true);

    owner.kill('SIGKILL');

    await expect.poll(() => isAlive(pid), { timeout: 5000 }).toBe(false);
  });
});

const OWNER = `
import { createSupervisor } from './scripts/quickstart/supervisor.ts';
const logDir = process.argv.at(-1);
const s = createSupervisor({ cwd: '.', logDir, env: process.env, say: () => {}, onChange: () => {} });
await s.start({ name: 'parley-owned', kind: 'worker', args: ['--eval', 'setInterval(() => {}, 1000)'] });
console.log(s.pids().worker[0]);`;

describe('the files of the quickstart', () => {
  test('secrets are made once and readable by their owner only', () => {
    const path = join(aFolder(), 'env');

    const first = keepSecrets(path, {});
    const again = keepSecrets(path, {});

    expect(Buffer.from(first.ENCRYPTION_KEY, 'base64')).toHaveLength(32);
    expect(again).toEqual(first);
    expect(statSync(path).mode & 0o777).toBe(0o600);
  });

  test('a second quickstart learns the process id of the first, and a killed one leaves no lock', () => {
    const file = join(aFolder(), 'quickstart.lock');
    const other = spawn(process.execPath, ['--eval', FOREVER, 'quickstart.ts']);
    onTestFinished(() => void other.kill('SIGKILL'));
    writeFileSync(file, String(other.pid));
    expect(acquireLock(file, 'quickstart.ts')).toEqual({ acquired: false, pid: other.pid });

    writeFileSync(file, String(process.ppid)); // a living process that is not a quickstart: the process id was reused
    const claim = acquireLock(file, 'quickstart.ts');

    expect(claim.acquired).toBe(true);
    expect(readFileSync(file, 'utf8')).toBe(String(process.pid));
  });
});
