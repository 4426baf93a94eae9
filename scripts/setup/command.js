import { spawn } from 'node:child_process';
import { guard } from './guard.js';

/** What the set-up has started and must not leave behind when it is told to stop. */
const running = new Set();

let stopped = false;

/** Ends what runs; nothing is started after it. */
export const stopCommands = (signal) => {
  stopped = true;
  for (const child of running) child.kill(signal);
};

/**
 * Runs a command to its end and hands back status and output: never throws, since "not there" and "failed" both only mean
 * that the next way is tried. `onLine` sees the output as it comes.
 */
export const run = (command, args, { env, cwd, timeoutMs, onLine } = {}) =>
  new Promise((resolve) => {
    let output = '';
    if (stopped) return resolve({ ok: false, output, reason: 'stopped' });
    const child = spawn(command, args, { env, cwd, stdio: ['ignore', 'pipe', 'pipe'] });
    running.add(child);
    // Half an installation that goes on alone would get in the way of the next start.
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

/** The lines of a tool's output that most likely say what went wrong. */
const lastWords = (output) => {
  const lines = output.split(/[\r\n]+/).map((line) => line.trim());
  const plain = lines.filter((line) => /^(\w*error\b|npm error|e:)/i.test(line));
  const telling =
    plain.length > 0 ? plain : lines.filter((line) => /failed|cannot|refused|denied|not found/i.test(line));
  const words = telling.length > 0 ? telling.slice(0, 3).join('; ') : lines.filter(Boolean).at(-1);
  return words?.slice(0, 400);
};
