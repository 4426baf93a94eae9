import { spawn } from 'node:child_process';
import { guard } from './guard.js';

/** The running commands, all of which must end when the set-up ends. */
const running = new Set();

let stopped = false;

/** Ends all running commands and prevents new ones. */
export const stopCommands = (signal) => {
  stopped = true;
  for (const child of running) child.kill(signal);
};

/**
 * Runs a command and returns `{ok, output, reason}`. It never throws, because the caller treats a missing command like
 * a failing one: it tries the next alternative. `onLine` receives the output while the command runs.
 */
export const run = (command, args, { env, cwd, timeoutMs, onLine } = {}) =>
  new Promise((resolve) => {
    let output = '';
    if (stopped) return resolve({ ok: false, output, reason: 'stopped' });
    const child = spawn(command, args, { env, cwd, stdio: ['ignore', 'pipe', 'pipe'] });
    running.add(child);
    // The guard ends the command if the set-up is killed, because an installation that continues would disturb the next
    // start.
    const unguard = onLine && child.pid !== undefined ? guard(child.pid, 2) : () => undefined;
    const timer = timeoutMs === undefined ? undefined : setTimeout(() => child.kill('SIGKILL'), timeoutMs);
    const end = (ok, reason) => {
      clearTimeout(timer);
      running.delete(child);
      unguard();
      resolve({ ok, output, reason });
    };
    const read = (chunk) => {
      output += chunk;
      const last = String(chunk)
        .trim()
        .split(/[\r\n]+/)
        .at(-1);
      if (onLine && last && !/\bwarn/i.test(last)) onLine(last);
    };
    child.stdout.on('data', read);
    child.stderr.on('data', read);
    child.on('error', (cause) => end(false, cause.code === 'ENOENT' ? `${command} is not installed` : cause.message));
    child.on('close', (code, signal) =>
      end(code === 0, lastWords(output) ?? `ended with ${signal ?? `status ${code}`}`),
    );
  });

/** The lines of the output that most likely explain the failure. */
const lastWords = (output) => {
  const lines = output.split(/[\r\n]+/).map((line) => line.trim());
  const plain = lines.filter((line) => /^(\w*error\b|npm error|e:)/i.test(line));
  const telling =
    plain.length > 0 ? plain : lines.filter((line) => /failed|cannot|refused|denied|not found/i.test(line));
  const words = telling.length > 0 ? telling.slice(0, 3).join('; ') : lines.filter(Boolean).at(-1);
  return words?.slice(0, 400);
};
