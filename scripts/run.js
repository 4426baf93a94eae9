import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { stopCommands } from './setup/command.js';
import { SetupError } from './setup/report.js';
import { onStop, start, statusOf } from './setup/start.js';
import { setUp } from './setup/steps.js';

// The launcher behind every npm script: sets up what the script needs, then starts the real thing on the right Node. Plain
// JavaScript without packages, good on Node 20, since nothing newer and no package is here yet after a clone.

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const tool = (name) => join(root, 'node_modules/.bin', name);

const TYPES = [[tool('tsc')], [tool('tsc'), '-p', 'dashboard']];
const VITE = [tool('vite')];
const LINT = [
  [tool('biome'), 'format', '.'],
  [tool('oxlint'), '--type-aware'],
];
const VITEST = [tool('vitest'), 'run'];
const CODE = ['packages'];
const PAGES = [...CODE, 'dashboard'];
const ALL = [...PAGES, 'redis', 'mongodb', 'semantic'];
const BROWSER = [...ALL, 'chromium'];

/** What each script needs, and the commands it stands for (run in order, the first that fails ends it). */
const TARGETS = {
  quickstart: { needs: ALL, talkative: true, commands: (args) => [['node', 'scripts/quickstart.ts', ...args]] },
  test: {
    needs: BROWSER,
    talkative: true,
    commands: (args) => (args.length > 0 ? [[...VITEST, ...args]] : [...TYPES, ...LINT, VITEST]),
  },
  planted: { needs: BROWSER, talkative: true, commands: () => [['node', 'scripts/planted.ts']] },
  typecheck: { needs: CODE, commands: () => TYPES },
  lint: { needs: CODE, commands: () => LINT },
  format: {
    needs: CODE,
    commands: (args) => [[tool('biome'), 'format', '--write', ...(args.length > 0 ? args : ['.'])]],
  },
  'chaos:delivery': {
    needs: ALL,
    talkative: true,
    commands: (args) => [['node', 'chaos/delivery.ts', ...args]],
  },
  'bench:isolation': {
    needs: ALL,
    talkative: true,
    commands: (args) => [['node', 'bench/isolation.ts', ...args]],
  },
  'bench:order': { needs: ALL, talkative: true, commands: (args) => [['node', 'bench/order.ts', ...args]] },
  screenshots: { needs: BROWSER, talkative: true, commands: () => [['node', 'scripts/screenshots.ts']] },
  eval: { needs: [...CODE, 'semantic'], commands: (args) => [['node', 'scripts/eval.ts', ...args]] },
  'eval:fit': { needs: [...CODE, 'semantic'], commands: () => [['node', 'test/eval/fit.ts']] },
  'eval:ablation': { needs: [...CODE, 'semantic'], commands: () => [['node', 'test/eval/ablation.ts']] },
  bench: { needs: ALL, commands: (args) => [['node', 'bench/run.ts', ...args]] },
  'bench:page': { needs: CODE, commands: () => [['node', 'bench/page.ts']] },
  'bench:engine': {
    needs: [...CODE, 'semantic'],
    commands: () => [
      ['node', '--expose-gc', 'bench/engine.ts'],
      ['node', 'bench/understanding.ts'],
    ],
  },
  admin: { needs: CODE, commands: (args) => [['node', 'scripts/admin.ts', ...args]] },
  'pack:client': { needs: CODE, commands: () => [['npm', 'pack', './packages/client']] },
  'try:compose': { needs: [], commands: (args) => [['node', 'scripts/try-compose.ts', ...args]] },
  'build:dashboard': { needs: PAGES, talkative: true, commands: () => [] },
  'dashboard:dev': {
    needs: CODE,
    commands: (args) => [[...VITE, 'dashboard', '--config', 'dashboard/vite.config.ts', ...args]],
  },
  api: { needs: PAGES, commands: (args) => [['node', 'src/main.ts', ...args]] },
  'reply-worker': { needs: [...CODE, 'semantic'], commands: (args) => [['node', 'workers/reply/main.ts', ...args]] },
  'delivery-worker': { needs: CODE, commands: (args) => [['node', 'workers/delivery/main.ts', ...args]] },
};

const interruptedSetUp = (signal) => {
  stopCommands('SIGTERM');
  setTimeout(() => {
    stopCommands('SIGKILL');
    process.exit(statusOf(null, signal));
  }, 1000);
};

const main = async () => {
  const [name, ...args] = process.argv.slice(2);
  const locate = name === 'locate'; // for a test run started without this launcher: says how to start the services
  const target = locate ? { needs: args.length > 0 ? args : ['redis', 'mongodb'] } : TARGETS[name];
  if (!target) throw new SetupError(`usage: node scripts/run.js ${Object.keys(TARGETS).join('|')} [arguments]`);

  const stopListening = onStop(interruptedSetUp);
  const { found, env } = await setUp({ root, needs: target.needs, talkative: target.talkative }).finally(stopListening);

  if (locate) {
    console.log(JSON.stringify(found));
    return 0;
  }
  for (const command of target.commands(args)) {
    const { status, stopped } = await start(command, { cwd: root, env });
    if (status !== 0 || stopped) return status;
  }
  return 0;
};

try {
  process.exitCode = await main();
} catch (cause) {
  console.error(cause instanceof SetupError ? cause.message : cause.stack);
  process.exitCode = 1;
}
