import { randomBytes } from 'node:crypto';
import { openCompose } from './try-compose/compose.ts';
import { talk } from './try-compose/talk.ts';
import { freePort } from './services/resources.ts';

// Tests the Docker stack: builds the image, starts docker-compose.yml, creates an owner, signs in, sends a turn, runs
// the doctor and removes the stack. The test has its own project name, so that a stack in use is not touched.

const USAGE = 'usage: node scripts/run.js compose [--keep]   (--keep leaves the stack up, and says how to reach it)';
const OWNER = 'owner@example.com';

const args = process.argv.slice(2);
const keep = args.includes('--keep');
if (args.some((word) => word !== '--keep')) {
  console.error(USAGE);
  process.exit(2);
}

const port = process.env['PORT'] || String(await freePort());
const key = process.env['ENCRYPTION_KEY'] || randomBytes(32).toString('base64');
const compose = openCompose({ ...process.env, PORT: port, ENCRYPTION_KEY: key });
const url = `http://127.0.0.1:${port}`;

const admin = (...words: string[]): string =>
  compose.read('run', '--rm', '-T', 'api', 'node', 'scripts/admin.ts', ...words);

const step = async <Value>(name: string, work: () => Value | Promise<Value>): Promise<Value> => {
  const since = Date.now();
  const value = await work();
  console.log(`${name.padEnd(34)} ${((Date.now() - since) / 1000).toFixed(1)} s`);
  return value;
};

// Ctrl-C ends the running docker command. This program continues and removes the stack.
process.on('SIGINT', () => undefined);
process.on('SIGTERM', () => undefined);

const tryIt = async (): Promise<string> => {
  await step('built, started and healthy', () => compose.show('up', '--build', '--wait'));
  const made = await step('the owner is made', () => admin('operator', 'create', '--email', OWNER, '--json'));
  const { password } = JSON.parse(made) as { password: string };
  await talk({ url, email: OWNER, password, step });
  await step('the doctor finds nothing wrong', () => admin('doctor'));
  return keep ? `It stays up at ${url}: ${OWNER}, ${password}. To end it: ${compose.down}` : 'It works.';
};

try {
  await step('docker compose is there', () => compose.read('version'));
  try {
    console.log(await tryIt());
  } catch (cause) {
    compose.tryTo('logs', '--tail', '40');
    throw cause;
  } finally {
    if (!keep) compose.tryTo('down', '--volumes', '--remove-orphans');
  }
} catch (cause) {
  console.error(cause instanceof Error ? cause.message : cause);
  process.exitCode = 1;
}
