import { mkdtempSync, readdirSync, readFileSync, rmSync, utimesSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, onTestFinished, test } from 'vitest';
import { launch } from '../kit/processes.ts';
import { eventually } from '../support/eventually.ts';
import { atPace } from '../support/pace.ts';

const ROOT = join(import.meta.dirname, '../..');
const TICKS_A_SECOND = 100;
/** The restart is repeated until one is quick enough, because other load on the machine slows single ones. */
const TRIES = 6;
/**
 * The limit of the CPU time of one restart. On an idle machine, a restart needs half of this CPU time and less than a
 * second of real time.
 */
const LONGEST_S = 2;

const dir = mkdtempSync(join(tmpdir(), 'parley-dev-'));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

const dev = () => {
  const { child, output, ended, kill } = launch(process.execPath, ['scripts/quickstart.ts', '--watch'], {
    env: {
      ...process.env,
      REDIS_URL: '',
      MONGODB_URL: '',
      PORT: '0',
      LOCAL_DIR: dir,
      FORCE_COLOR: '1',
      NO_COLOR: undefined,
    },
  });
  onTestFinished(() => kill()); // its guards then end what it started
  return { child, run: output, ended };
};

type State = { baseUrl: string; apiKey: string; pids: { api: [number] } };
const readState = () => JSON.parse(readFileSync(join(dir, 'quickstart.json'), 'utf8')) as State;

const ask = async ({ baseUrl, apiKey }: State) => {
  const response = await fetch(`${baseUrl}/api/v1/chat`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${apiKey}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ session_id: 'the-developer', message: 'How can I pay?' }),
  });
  return ((await response.json()) as { reply: string }).reply;
};

/** The id of the process that a watcher runs. */
const childOf = (pid: number): number => {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean);
  expect(children).toHaveLength(1);
  return Number(children[0]);
};

const processSeconds = (pid: number): number => {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ') ?? [];
  return (Number(fields[11]) + Number(fields[12])) / TICKS_A_SECOND;
};

const leftRunning = (): string[] =>
  readdirSync('/proc').filter((pid) => {
    try {
      return /^\d+$/.test(pid) && readFileSync(`/proc/${pid}/environ`, 'utf8').includes(dir);
    } catch {
      return false; // the process has ended, or belongs to another user
    }
  });

test.runIf(process.platform === 'linux')(
  'npm run dev answers a turn, restarts the processes that use a saved file, and ends cleanly',
  async () => {
    const { child, run, ended } = dev();
    await eventually(() => expect(run.said).toContain('Ctrl-C stops everything'));
    const state = readState();
    expect(await ask(state)).toContain('PayPal');
    await eventually(() => expect(run.said).toMatch(/INFO\S* \(parley-reply-worker\): \S*turn ended/));

    const seconds: number[] = [];
    for (let tries = 0; tries < TRIES && Math.min(...seconds) >= LONGEST_S; tries++) {
      const before = childOf(state.pids.api[0]);
      utimesSync(join(ROOT, 'src/main.ts'), new Date(), new Date());
      await eventually(async () => {
        const now = childOf(state.pids.api[0]);
        expect(now).not.toBe(before);
        expect((await fetch(`${state.baseUrl}/readyz`)).status).toBe(200);
        seconds.push(processSeconds(now));
      });
    }
    expect(Math.min(...seconds)).toBeLessThan(atPace(LONGEST_S));
    expect(await ask(state)).toContain('PayPal');

    child.kill('SIGINT');
    expect(await ended).toMatchObject({ status: 0, stderr: '' });
    await eventually(() => expect(leftRunning()).toEqual([]));
  },
);
