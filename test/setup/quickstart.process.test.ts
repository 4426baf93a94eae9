import { spawnSync } from 'node:child_process';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, onTestFinished, test } from 'vitest';
import { launch } from '../kit/processes.ts';
import { eventually } from '../support/eventually.ts';
import { longTest } from '../support/size.ts';

const ROOT = join(import.meta.dirname, '../..');

const dir = mkdtempSync(join(tmpdir(), 'parley-quickstart-'));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

const quickstart = (args: string[] = [], settings: Record<string, string> = {}) => {
  const program = launch(process.execPath, ['scripts/quickstart.ts', ...args], {
    // The test uses separate services and a separate folder, so that a developer's running quickstart is not disturbed.
    env: { ...process.env, REDIS_URL: '', MONGODB_URL: '', PORT: '0', LOCAL_DIR: dir, ...settings },
  });
  onTestFinished(() => program.kill()); // its guards then end what it started
  const { child, output: run, ended } = program;
  /** Waits until it prints this, however long that takes on a busy machine, or until it ends without it. */
  const said = (text: string) =>
    new Promise<void>((resolve, reject) => {
      const check = (): void => {
        if (run.said.includes(text)) resolve();
      };
      for (const stream of [child.stdout, child.stderr]) stream?.on('data', check);
      child.on('close', () => reject(new Error(`it ended and did not print "${text}":\n${run.said}`)));
      check();
    });
  return { child, run, ended, said };
};

type State = {
  baseUrl: string;
  assistantId: string;
  apiKey: string;
  verifyToken: string;
  receiverUrl: string;
  operator: { email: string; password: string };
  operatorToken: string;
  pids: { api: number[]; replyWorker: number[]; deliveryWorker: number[]; sourcesWorker: number[] };
};

const stateFile = join(dir, 'quickstart.json');
const readState = () => JSON.parse(readFileSync(stateFile, 'utf8')) as State;

/** All processes that have this folder in their environment, including guards. Works only on Linux. */
const leftRunning = (): string[] =>
  (process.platform === 'linux' ? readdirSync('/proc') : []).flatMap((pid) => {
    try {
      if (!/^\d+$/.test(pid) || !readFileSync(`/proc/${pid}/environ`, 'utf8').includes(dir)) return [];
      return [`${pid} ${readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ')}`];
    } catch {
      return []; // the process has ended, or belongs to another user
    }
  });
const expectNothingLeft = () => eventually(() => expect(leftRunning()).toEqual([]));

const shellBlocks = (page: string): string[] =>
  [...page.matchAll(/^```sh\n(.*?)^```$/gms)].map(([, block = '']) => block);
/** A folder in which the state of the quickstart is where the README says it is. */
const folderWithState = (): string => {
  const folder = join(dir, 'pasted');
  mkdirSync(folder, { recursive: true });
  symlinkSync(dir, join(folder, '.local'));
  return folder;
};

const ask = async ({ baseUrl, assistantId, verifyToken }: State, message: string) => {
  const response = await fetch(`${baseUrl}/api/v1/channels/webhook/${assistantId}`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${verifyToken}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ session_id: 'the-test', message }),
  });
  expect(response.status).toBe(200);
  return (await response.json()) as { reply: string; conversationId: string };
};

const receivedOf = async ({ receiverUrl }: State, conversationId: string) => {
  type Received = { verified: boolean; event: { event: string; payload: { conversation_id: string } } | null };
  const all = (await (await fetch(`${receiverUrl}/received`)).json()) as Received[];
  return all
    .filter(({ event }) => event?.payload.conversation_id === conversationId)
    .map(({ event, verified }) => ({ event: event?.event, verified }));
};

describe('npm run quickstart', () => {
  test('-- --exit ends with 0 after a reply and verified events, and leaves nothing running', async () => {
    const { status, stdout, stderr } = await quickstart(['--exit']).ended;

    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    expect(stdout).toMatch(/quickstart {2}demo assistant: created with .*, \d\.\d s\n/);
    expect(stdout).toMatch(/event +message\.received +signature verified/);
    expect(stdout).toMatch(/first turn: answered in \d+ ms, 2 events received, signatures verified/);
    expect(stdout).toMatch(/assistant {2}We are open Monday/);
    expect(existsSync(stateFile)).toBe(false);
    await expectNothingLeft();
  });

  longTest('-- --one-process is the same with one process, which is all of them', async () => {
    const running = quickstart(['--one-process']);
    await running.said('Ctrl-C stops everything');
    const { pids } = readState();
    running.child.kill('SIGINT');
    const { status, stdout, stderr } = await running.ended;

    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    expect(stdout).toContain('processes: one for everything, demo receiver');
    expect(stdout).toMatch(/first turn: answered in \d+ ms, 2 events received, signatures verified/);
    expect(new Set(Object.values(pids).map(([pid]) => pid)).size).toBe(1);
    await expectNothingLeft();
  });

  test('-- --one-process with several of a kind is refused before anything is started', async () => {
    const { status, stdout, stderr } = await quickstart(['--one-process'], { REPLY_WORKERS: '2' }).ended;

    expect([status, stdout]).toEqual([1, '']);
    expect(stderr).toContain('--one-process has one of each');
  });

  longTest('a killed process is restarted, a second quickstart is refused, and Ctrl-C ends everything', async () => {
    const { child, run, ended, said } = quickstart();
    await said('Ctrl-C stops everything');
    const before = readState();
    expect(statSync(stateFile).mode & 0o777).toBe(0o600);
    expect(run.stdout).toContain('demo assistant: found from an earlier start');
    expect(run.stdout).toMatch(/^ {2}OpenAPI {2,}http:\S+\/openapi\.json$/m);
    expect(run.stdout).toMatch(/^ {2}verify token {2,}\S+$/m);
    expect(run.stdout).toContain(before.apiKey);
    expect(run.stdout).toContain(before.operator.password);
    const signIn = await fetch(`${before.baseUrl}/operator/v1/session`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(before.operator),
    });
    expect(signIn.status).toBe(200);
    const withToken = await fetch(`${before.baseUrl}/operator/v1/assistants`, {
      headers: { Authorization: `Bearer ${before.operatorToken}` },
    });
    expect(withToken.status).toBe(200);
    expect(await withToken.json()).toMatchObject({ assistants: [{ assistantId: before.assistantId }] });

    await said('quickstart  capacity: ');
    expect(run.stdout).toMatch(
      /capacity: this machine answers [1-9]\d* turns a second if words decide, [1-9]\d* if half/,
    );

    const pasted = spawnSync('sh', ['-c', shellBlocks(readFileSync(join(ROOT, 'README.md'), 'utf8'))[1] ?? ''], {
      cwd: folderWithState(),
      encoding: 'utf8',
    });
    expect(JSON.parse(pasted.stdout)).toMatchObject({ reply: expect.stringContaining('3.90 €') });

    const second = await quickstart(['--exit']).ended;
    expect(second.status).toBe(1);
    expect(second.stderr).toContain(`(pid ${child.pid}): it answers at ${before.baseUrl}`);

    const kinds = ['api', 'replyWorker', 'deliveryWorker', 'sourcesWorker'] as const;
    const victims = kinds.flatMap((kind) => before.pids[kind]);
    const redis = leftRunning().filter((line) => line.includes('redis-server'));
    for (const pid of [...victims, ...redis.map((line) => Number.parseInt(line, 10))]) process.kill(pid, 'SIGKILL');
    const after = await eventually(() => {
      const now = readState();
      expect(kinds.map((kind) => now.pids[kind].length)).toEqual([1, 1, 1, 1]);
      expect(kinds.flatMap((kind) => now.pids[kind]).filter((pid) => victims.includes(pid))).toEqual([]);
      return now;
    });
    for (const pid of victims) await said(`(pid ${pid}) ended by SIGKILL; started again as pid`);
    for (const line of redis) await said(`Redis (pid ${Number.parseInt(line, 10)}) ended; started again as pid`);
    const answer = await eventually(() => ask(after, 'How can I pay?'));
    expect(answer.reply).toContain('PayPal');
    await eventually(async () =>
      expect(await receivedOf(after, answer.conversationId)).toEqual([
        { event: 'conversation.created', verified: true },
        { event: 'message.received', verified: true },
      ]),
    );

    child.kill('SIGINT');
    expect((await ended).status).toBe(0);
    expect(existsSync(stateFile)).toBe(false);
    await expectNothingLeft();
  });

  longTest('an interrupted start ends with 130 and leaves nothing running', async () => {
    const { child, said, ended } = quickstart();
    await said('services: MongoDB at');

    child.kill('SIGINT');

    expect((await ended).status).toBe(130);
    await expectNothingLeft();
  });

  test('a PORT in use is reported before anything is started', async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;

    const { status, stdout, stderr } = await quickstart([], { PORT: String(port) }).ended;

    expect(status).toBe(1);
    expect(stderr).toContain(`PORT=${port}: another program listens on 127.0.0.1:${port}`);
    expect(stdout).not.toContain('services');
  });
});
