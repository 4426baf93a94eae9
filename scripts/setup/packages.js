import { createHash } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { run } from './command.js';
import { SetupError } from './report.js';

/** Runs npm with the first Node on `env.PATH`. Uses the npm that started this process, or else the npm on PATH. */
export const npm = (args, options) => {
  const started = process.env.npm_execpath;
  const known = started !== undefined && basename(started) === 'npm-cli.js' && existsSync(started);
  return known ? run('node', [started, ...args], options) : run('npm', args, options);
};

/**
 * Installs the packages of the lock file. A stamp file in `node_modules` has the lock's hash and the platform, and
 * shows whether an installation is needed. File times would not show it, because they change with a checkout. Nor would
 * npm's own hidden lock, because npm writes it before all files are installed.
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
    // `npm ci` is not used, because it fails if a registry mirror lacks binaries of other platforms. `--no-save` keeps
    // the lock unchanged.
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
