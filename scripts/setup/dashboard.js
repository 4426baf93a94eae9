import { createHash } from 'node:crypto';
import { existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { run } from './command.js';
import { SetupError } from './report.js';

/** The folders whose files are built into the dashboard. */
const SOURCES = ['dashboard/src', 'dashboard/build', 'dashboard/public'];
const FILES = [
  'dashboard/index.html',
  'dashboard/vite.config.ts',
  'dashboard/tsconfig.json',
  // The only file of the service from which the pages import values, not only types.
  'src/process/time-limits.ts',
  'package-lock.json',
];

/** Builds the dashboard if its sources have changed since the last build. */
export const dashboardStep = {
  name: 'dashboard',
  doing: 'building its pages',

  find: ({ root, env }) => {
    const stamp = stampFile(root);
    if (!existsSync(stamp) || readFileSync(stamp, 'utf8') !== stampText(root)) return undefined;
    return { text: `built, ${readFileSync(join(root, 'dashboard/dist/.weight'), 'utf8')}`, env };
  },

  given: ({ root }) => (existsSync(join(root, 'dashboard/dist')) ? 'as it is' : 'not built'),

  make: async ({ root, env }, onLine) => {
    const built = await buildDashboard(root, env, onLine);
    if (!built.ok) throw new SetupError(`the dashboard could not be built: ${built.reason}`);
  },
};

const buildDashboard = async (root, env, onLine) => {
  const vite = join(root, 'node_modules/vite/bin/vite.js');
  // Another NODE_ENV would include React's development build.
  const options = { cwd: root, env: { ...env, NODE_ENV: 'production' }, onLine };
  const before = stampText(root);
  const built = await run('node', [vite, 'build', 'dashboard', '--config', 'dashboard/vite.config.ts'], options);
  if (built.ok) writeFileSync(stampFile(root), before);
  return built;
};

const stampFile = (root) => join(root, 'dashboard/dist/.built-from');

const sourcesIn = (root) => [
  ...FILES,
  ...SOURCES.flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name).slice(root.length + 1)),
  ),
];

const stampText = (root) => {
  const hash = createHash('sha256');
  for (const file of sourcesIn(root).sort()) hash.update(`${file}\0`).update(readFileSync(join(root, file)));
  return hash.digest('hex');
};
