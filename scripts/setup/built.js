import { createHash } from 'node:crypto';
import { existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { run } from './command.js';
import { SetupError } from './report.js';

/** What is built for browsers: the folder, and the folders and files of which it is built. */
export const DASHBOARD = {
  folder: 'dashboard',
  sources: ['dashboard/src', 'dashboard/build', 'dashboard/public'],
  files: [
    'dashboard/index.html',
    'dashboard/vite.config.ts',
    'dashboard/tsconfig.json',
    // The files of the service from which the pages import values, not only types.
    'src/platform/process/clock.ts',
    'src/platform/process/text-file.ts',
    'src/platform/process/time-limits.ts',
    'package-lock.json',
  ],
};
export const WIDGET = {
  folder: 'packages/widget',
  sources: ['packages/widget/src', 'dashboard/build'],
  files: ['packages/widget/vite.config.ts', 'packages/widget/tsconfig.json', 'package-lock.json'],
};

/** Builds the files if their sources have changed since the last build. */
const buildStep = (name, one) => ({
  name,
  doing: 'building its files',

  find: ({ root, env }) => {
    const stamp = stampFile(root, one);
    if (!existsSync(stamp) || readFileSync(stamp, 'utf8') !== stampText(root, one)) return undefined;
    return { text: `built, ${readFileSync(join(root, one.folder, 'dist/.weight'), 'utf8')}`, env };
  },

  given: ({ root }) => (existsSync(join(root, one.folder, 'dist')) ? 'as it is' : 'not built'),

  make: async ({ root, env }, onLine) => {
    const built = await build(one, { root, env, onLine });
    if (!built.ok) throw new SetupError(`the ${name} could not be built: ${built.reason}`);
  },
});

export const dashboardStep = buildStep('dashboard', DASHBOARD);
export const widgetStep = buildStep('widget', WIDGET);

const build = async (one, { root, env, onLine }) => {
  const vite = join(root, 'node_modules/vite/bin/vite.js');
  // Another NODE_ENV would include React's development build.
  const options = { cwd: root, env: { ...env, NODE_ENV: 'production' }, onLine };
  const before = stampText(root, one);
  const built = await run('node', [vite, 'build', one.folder, '--config', `${one.folder}/vite.config.ts`], options);
  if (built.ok) writeFileSync(stampFile(root, one), before);
  return built;
};

const stampFile = (root, { folder }) => join(root, folder, 'dist/.built-from');

const sourcesIn = (root, { files, sources }) => [
  ...files,
  ...sources.flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name).slice(root.length + 1)),
  ),
];

const stampText = (root, one) => {
  const hash = createHash('sha256');
  for (const file of sourcesIn(root, one).sort()) hash.update(`${file}\0`).update(readFileSync(join(root, file)));
  return hash.digest('hex');
};
