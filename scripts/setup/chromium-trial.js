import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { guard } from './guard.js';

const START_MS = 20_000;
const FLAGS = [
  '--headless',
  '--disable-gpu',
  '--disable-dev-shm-usage', // /dev/shm of a container is often too small
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--remote-debugging-port=0',
];
const PAGE = 'data:text/html,<script>document.title=6*7</script>';

/**
 * Opens a page and reads its title through the debugging port. The option `--dump-dom` is not used, because it hangs in
 * some builds.
 */
const openPage = async (program, { env, sandbox }) => {
  const profile = mkdtempSync(join(tmpdir(), 'parley-chromium-'));
  const flags = [...FLAGS, ...(sandbox ? [] : ['--no-sandbox']), `--user-data-dir=${profile}`];
  const child = spawn(program, [...flags, PAGE], { env, stdio: ['ignore', 'ignore', 'pipe'], detached: true });
  const unguard = guard(child.pid === undefined ? 'none' : -child.pid, 2);
  let said = '';
  let ended;
  child.stderr.on('data', (data) => (said += data));
  child.on('error', (cause) => (ended = cause.message));
  const closed = new Promise((resolve) =>
    child.on('close', (code, signal) => resolve((ended ??= lastWords(said) ?? `ended with ${signal ?? code}`))),
  );
  try {
    for (const deadline = Date.now() + START_MS; Date.now() < deadline && ended === undefined; await pause(50)) {
      const port = /DevTools listening on ws:\/\/[^/]*:(\d+)/.exec(said)?.[1];
      const [about, pages] = port === undefined ? [] : await Promise.all([ask(port, 'version'), ask(port, 'list')]);
      if (pages?.some(({ title }) => title === '42')) return { version: /[\d.]+$/.exec(about?.Browser)?.[0] };
    }
    return { why: ended ?? `opens no page within ${START_MS / 1000} s` };
  } finally {
    if (child.pid !== undefined && ended === undefined) {
      process.kill(-child.pid, 'SIGKILL');
      await closed;
    }
    unguard();
    rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
  }
};

const ask = (port, what) =>
  fetch(`http://127.0.0.1:${port}/json/${what}`).then(
    (answer) => answer.json(),
    () => undefined, // the port is not open yet
  );

const lastWords = (said) => {
  const lines = said.split('\n').filter((line) => /error|fatal|cannot|no usable|snap/i.test(line));
  return lines.at(-1)?.slice(0, 300);
};

/**
 * Opens a page with this Chromium. Returns `{version, sandbox}`, or `{why}` if this Chromium cannot be used. The
 * sandbox often does not work as root or in containers; tests then run without it.
 */
export const tryChromium = async (program, env) => {
  const withSandbox = process.getuid?.() === 0 ? undefined : await openPage(program, { env, sandbox: true });
  const tried = withSandbox?.version ? withSandbox : await openPage(program, { env, sandbox: false });
  return tried.version ? { version: tried.version, sandbox: tried === withSandbox } : { why: tried.why };
};
