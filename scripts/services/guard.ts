import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { ROOT } from './installed.ts';

export type Guard = {
  /** What to end if this process dies without a word: a process id, or none for now. */
  watch: (pid: number | undefined) => void;
  done: () => void;
};

/**
 * Its own small process (scripts/setup/guard.sh) that notices by a closed pipe when this one is gone, even by SIGKILL.
 * `seconds` is the time between SIGTERM and SIGKILL, 0 for SIGKILL at once; the folder is removed after.
 */
export const startGuard = ({ seconds, folder }: { seconds: number; folder?: string }): Guard => {
  const args = [join(ROOT, 'scripts/setup/guard.sh'), String(seconds), ...(folder === undefined ? [] : [folder])];
  const guard = spawn('sh', args, { detached: true, stdio: ['pipe', 'ignore', 'ignore'] });
  guard.on('error', () => undefined);
  guard.stdin.on('error', () => undefined); // it is gone only when everything goes
  guard.unref();
  return {
    watch: (pid) => guard.stdin.write(`${pid ?? 'none'}\n`),
    done: () => guard.stdin.end('done\n'),
  };
};
