import { createHash } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { run } from './command.js';
import { SetupError } from './report.js';

/** npm under the Node that comes first on `env.PATH`: the very npm we were started by, else the one on PATH. */
export const npm = (args, options) => {
  const started = process.env.npm_execpath;
  const known = started !== undefined && basename(started) === 'npm-cli.js' && existsSync(started);
  return known ? run('node', [started, ...args], options) : run('npm', args, options);
};

/**
 * The packages of the lock file. A stamp inside `node_modules` says which lock (and which kind of machine) they were
 * installed for: times would lie after a checkout, and npm's own hidden lock is written before all files are there.
 */
export const packagesStep = {
  name: 'packages',
  doing: 'installing what package-lock.json names',

  find: ({ root, env }) => {
    const stamp = stampFile(root);
    if (!existsSync(stamp) || readFileSync(stamp, 'utf8') !== stampText(root)) return undefined;
    return { text: 'as locked', env };
  },

  given: ({ root }) => (existsSync(join(root, 'node_modules')) ? 'as they are' : undefined),

  make: async ({ root, env }, onLine) => {
    // Not `npm ci`: it fails where a registry copy lacks the binaries of other platforms. `--no-save` leaves the lock as it is.
    const args = ['install', '--no-save', '--include=dev', '--no-audit', '--no-fund'];
    const installed = await npm(args, { cwd: root, env, onLine });
    if (!installed.ok) {
      throw new SetupError(
        `npm install failed: ${installed.reason}\nThe npm registry must be reachable for the first start.`,
      );
    }
    writeFileSync(stampFile(root), stampText(root));
  },
};

const stampFile = (root) => join(root, 'node_modules/.parley-installed');

const stampText = (root) => {
  const lock = createHash('sha256')
    .update(readFileSync(join(root, 'package-lock.json')))
    .digest('hex');
  return `${lock} ${process.platform} ${process.arch}`;
};
