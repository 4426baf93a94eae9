import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { ROOT } from './installed.ts';

export type Guard = {
  /** Sets the process that the guard ends if this process dies. With undefined, there is none to end. */
  watch: (pid: number | undefined) => void;
  done: () => void;
};

/**
 * Starts a small guard process (scripts/setup/guard.sh). When this process ends, even by SIGKILL, a pipe closes and the
 * guard notices. The guard then ends the watched process and removes `folder`. `seconds` is the time between SIGTERM
 * and SIGKILL. With 0, the guard sends only SIGKILL.
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
