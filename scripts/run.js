import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { stopCommands } from './setup/command.js';
import { SetupError } from './setup/report.js';
import { onStop, start, statusOf } from './setup/start.js';
import { setUp } from './setup/steps.js';
import { findTarget, targetsIn, usageOf } from './setup/targets.js';

// The launcher of all npm scripts. It sets up what a script needs and starts the script with the right Node. The
// launcher itself is plain JavaScript for Node 20 without packages, because a fresh clone has no packages installed.

const root = join(dirname(fileURLToPath(import.meta.url)), '..');

const interruptedSetUp = (signal) => {
  stopCommands('SIGTERM');
  setTimeout(() => {
    stopCommands('SIGKILL');
    process.exit(statusOf(null, signal));
  }, 1000);
};

/** Runs commands one after the other until one fails. */
const runAll = async (commands, options) => {
  for (const command of commands) {
    const { status, stopped } = await start(command, options);
    if (status !== 0 || stopped) return status;
  }
  return 0;
};

const main = async () => {
  const targets = targetsIn(root);
  const target = findTarget(targets, process.argv.slice(2));
  if (!target) throw new SetupError(`usage: node scripts/run.js <command> [arguments]\n  ${usageOf(targets)}`);
  const { args, verbose } = target;
  const needs = typeof target.needs === 'function' ? target.needs(args) : target.needs;

  const stopListening = onStop(interruptedSetUp);
  const { found, env } = await setUp({ root, needs, verbose }).finally(stopListening);

  if (target.printsFound) {
    console.log(JSON.stringify(found));
    return 0;
  }
  return runAll(target.commands(args), { cwd: root, env });
};

try {
  process.exitCode = await main();
} catch (cause) {
  console.error(cause instanceof SetupError ? cause.message : cause.stack);
  process.exitCode = 1;
}
