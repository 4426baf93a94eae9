import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { ROOT } from './installed.ts';

export type Guard = {
  /** Sets the process that the guard ends if this process dies. With undefined, the guard ends no process. */
  watch: (pid: number | undefined) => void;
  done: () => void;
};

/**
 * Starts a small guard process (scripts/setup/guard.sh). A closed pipe tells the guard that this process has ended,
 * even after SIGKILL. `seconds` is the time between SIGTERM and SIGKILL; with 0, the guard sends only SIGKILL. The
 * guard then removes `folder`.
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
