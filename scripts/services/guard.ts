import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { ROOT } from './installed.ts';

export type Guard = {
  /** Sets the process to end if this process dies; undefined for none. */
  watch: (pid: number | undefined) => void;
  done: () => void;
};

/**
 * Starts a small process (scripts/setup/guard.sh) that sees by a closed pipe that this process is gone, even after
 * SIGKILL. `seconds` is the time between SIGTERM and SIGKILL; 0 sends SIGKILL at once. `folder` is removed afterwards.
 */
export const startGuard = ({ seconds, folder }: { seconds: number; folder?: string }): Guard => {
  const args = [join(ROOT, 'scripts/setup/guard.sh'), String(seconds), ...(folder === undefined ? [] : [folder])];
  const guard = spawn('sh', args, { detached: true, stdio: ['pipe', 'ignore', 'ignore'] });
  guard.on('error', () => undefined);
  guard.stdin.on('error', () => undefined); // the guard ends only when all ends
  guard.unref();
  return {
    watch: (pid) => guard.stdin.write(`${pid ?? 'none'}\n`),
    done: () => guard.stdin.end('done\n'),
  };
};
