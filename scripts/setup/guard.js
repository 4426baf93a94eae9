import { spawn } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const SCRIPT = join(dirname(fileURLToPath(import.meta.url)), 'guard.sh');

/**
 * Ends `target` (a process id, or a negative group id) if this process dies first. The returned function removes the
 * guard.
 */
export const guard = (target, seconds) => {
  const watcher = spawn('sh', [SCRIPT, String(seconds)], { detached: true, stdio: ['pipe', 'ignore', 'ignore'] });
  watcher.on('error', () => undefined);
  watcher.stdin.on('error', () => undefined);
  watcher.stdin.write(`${target}\n`);
  return () => watcher.stdin.end('done\n');
};
