import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { freePort } from '../../scripts/services.ts';

/** The bridge as a process that can be killed and started again, at the same address. */
export const openBridgeProcess = async (log: (line: string) => void) => {
  const port = await freePort();
  let env: Record<string, string> = {};
  let child: ChildProcess | null = null;
  let starts = 0;

  const start = async (): Promise<void> => {
    starts += 1;
    const file = join(import.meta.dirname, 'bridge.ts');
    const started = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', file], {
      env: { ...process.env, ...env, PORT: String(port) },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    child = started;
    await new Promise<void>((resolve, reject) => {
      started.once('exit', () => reject(new Error('the bridge did not start')));
      started.stdout.on('data', (chunk: Buffer) => {
        for (const line of chunk.toString().trim().split('\n')) log(`bridge: ${line}`);
        if (chunk.includes('ready')) resolve();
      });
    });
  };
  const kill = async (): Promise<void> => {
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
  };

  return {
    url: `http://127.0.0.1:${port}`,
    restarts: (): number => starts - 1,
    start: async (settings: Record<string, string>): Promise<void> => {
      env = settings;
      await start();
    },
    kill,
    restart: async (): Promise<void> => {
      await kill();
      await start();
    },
  };
};
