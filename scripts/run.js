import { spawn } from 'node:child_process';
import { constants } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { stopCommands } from './setup/command.js';
import { SetupError } from './setup/report.js';
import { setUp } from './setup/steps.js';

// The launcher behind every npm script: sets up what the script needs, then starts the real thing on the right Node. Plain
// JavaScript without packages, good on Node 20, since nothing newer and no package is here yet after a clone.

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const tool = (name) => join(root, 'node_modules/.bin', name);

const TYPES = [tool('tsc')];
const LINT = [
  [tool('biome'), 'format', '.'],
  [tool('oxlint'), '--type-aware'],
];
const VITEST = [tool('vitest'), 'run'];
const CODE = ['packages'];
const ALL = ['packages', 'redis', 'mongodb'];

/** What each script needs, and the commands it stands for (run in order, the first that fails ends it). */
const TARGETS = {
  quickstart: { needs: ALL, talkative: true, commands: (args) => [['node', 'scripts/quickstart.ts', ...args]] },
  test: {
    needs: ALL,
    talkative: true,
    commands: (args) => (args.length > 0 ? [[...VITEST, ...args]] : [TYPES, ...LINT, VITEST]),
  },
  typecheck: { needs: CODE, commands: (args) => [[...TYPES, ...args]] },
  lint: { needs: CODE, commands: () => LINT },
  format: {
    needs: CODE,
    commands: (args) => [[tool('biome'), 'format', '--write', ...(args.length > 0 ? args : ['.'])]],
  },
  admin: { needs: CODE, commands: (args) => [['node', 'scripts/admin.ts', ...args]] },
  api: { needs: CODE, commands: (args) => [['node', 'src/main.ts', ...args]] },
  'reply-worker': { needs: CODE, commands: (args) => [['node', 'workers/reply/main.ts', ...args]] },
  'delivery-worker': { needs: CODE, commands: (args) => [['node', 'workers/delivery/main.ts', ...args]] },
};

/** How long a command that was left behind by a killed launcher may take to end. */
const GUARD_SECONDS = '20';
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'];

/**
 * A terminal sends Ctrl-C to the whole group, so the command mostly has it already, and a second one means "at once" to
 * many programs. It is passed on only when the command is still there after a second (the signal was for us alone).
 */
const PASS_ON_AFTER_MS = { SIGINT: 1000, SIGTERM: 0, SIGHUP: 0 };

const statusOf = (code, signal) => code ?? 128 + (constants.signals[signal] ?? 0);

const start = ([command, ...args], env) =>
  new Promise((resolve) => {
    const child = spawn(command, args, { cwd: root, env, stdio: 'inherit' });
    const guard = spawn('sh', [join(root, 'scripts/setup/guard.sh'), GUARD_SECONDS], {
      detached: true, // else a signal to the group would end the guard together with what it guards
      stdio: ['pipe', 'ignore', 'ignore'],
    });
    guard.on('error', () => undefined);
    guard.stdin.on('error', () => undefined);
    guard.stdin.write(`${child.pid ?? '-'}\n`);
    const timers = new Map();
    const passOn = (signal) => {
      if (timers.has(signal)) return;
      const send = () => {
        timers.delete(signal);
        child.kill(signal);
      };
      timers.set(signal, setTimeout(send, PASS_ON_AFTER_MS[signal]));
    };
    for (const signal of SIGNALS) process.on(signal, passOn);
    const end = (status, signalled) => {
      for (const signal of SIGNALS) process.off(signal, passOn);
      for (const timer of timers.values()) clearTimeout(timer);
      guard.stdin.end('done\n');
      resolve({ status, stop: signalled || timers.size > 0 });
    };
    child.on('error', (cause) => {
      console.error(`${command}: ${cause.message}`);
      end(1, false);
    });
    child.on('close', (code, signal) => end(statusOf(code, signal), signal !== null));
  });

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

  for (const signal of SIGNALS) process.on(signal, interruptedSetUp);
  const { found, env } = await setUp({ root, needs: target.needs, talkative: target.talkative });
  for (const signal of SIGNALS) process.off(signal, interruptedSetUp);

  if (locate) {
    console.log(JSON.stringify(found));
    return 0;
  }
  for (const command of target.commands(args)) {
    const { status, stop } = await start(command, env);
    if (status !== 0 || stop) return status;
  }
  return 0;
};

try {
  process.exitCode = await main();
} catch (cause) {
  console.error(cause instanceof SetupError ? cause.message : cause);
  process.exitCode = 1;
}
