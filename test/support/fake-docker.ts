import { spawnSync } from 'node:child_process';
import { appendFileSync, readFileSync } from 'node:fs';

// A fake `docker` command. Its containers are processes that a test has started in the image's folder. `run` and `exec`
// start a command in that folder, as the image's user.

type State = {
  calls: string;
  app: string;
  as: { uid?: number; gid?: number };
  services: Record<string, { env: Record<string, string>; health: [string, ...string[]] }>;
};

const state = JSON.parse(readFileSync(process.env['FAKE_DOCKER'] ?? '', 'utf8')) as State;
const given = process.argv.slice(2);
appendFileSync(state.calls, `${given.join(' ')}\n`);

const inContainer = (service: string, [command = '', ...args]: string[]): number => {
  const { env } = state.services[service] ?? {};
  if (!env) throw new Error(`no such service: ${service}`);
  return spawnSync(command, args, { cwd: state.app, env, ...state.as, stdio: 'inherit' }).status ?? 1;
};

const words = given.slice(given[1] === '-p' ? 3 : 1);
const verb = words.shift();
if (given[0] !== 'compose') throw new Error(`not understood: ${given.join(' ')}`);
if (verb === 'run' || verb === 'exec') {
  const at = words.findIndex((word) => !word.startsWith('-'));
  process.exitCode = inContainer(words[at] ?? '', words.slice(at + 1));
} else if (verb === 'up') {
  const healthy = Object.entries(state.services).every(([name, { health }]) => inContainer(name, health) === 0);
  process.exitCode = healthy ? 0 : 1;
} else if (!['version', 'logs', 'down'].includes(verb ?? '')) {
  throw new Error(`not understood: ${given.join(' ')}`);
}
