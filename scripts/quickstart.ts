import { constants } from 'node:os';
import { join, relative } from 'node:path';
import { parseArgs } from 'node:util';
import { explainFailure, requireNode } from '../src/platform/process/lifecycle.ts';
import type { Capacity } from './quickstart/capacity.ts';
import { openQuickstart } from './quickstart/open.ts';
import { filesIn, readSettings, StartError } from './quickstart/settings.ts';
import { acquireLock } from './quickstart/pid-lock.ts';
import type { Supervisor } from './quickstart/supervisor.ts';
import { createTerminal } from './quickstart/terminal.ts';
import { refusal, welcome } from './quickstart/welcome.ts';

const ROOT = join(import.meta.dirname, '..');
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

const terminal = createTerminal(process.stdout);
const stopping = new AbortController();
const supervisors: Supervisor[] = [];
let stopSignal: (typeof SIGNALS)[number] | undefined;

const onSignal = (signal: (typeof SIGNALS)[number]): void => {
  if (stopSignal) {
    for (const one of supervisors) one.kill(); // a second Ctrl-C does not wait
    return;
  }
  stopSignal = signal;
  stopping.abort();
  for (const one of supervisors) void one.stop();
};

const untilStopped = (): Promise<void> =>
  new Promise((resolve) => {
    const wait = setInterval(() => undefined, 60_000); // keeps this process alive
    const end = (): void => {
      clearInterval(wait);
      resolve();
    };
    if (stopping.signal.aborted) end();
    stopping.signal.addEventListener('abort', end);
  });

const explain = (cause: unknown): string =>
  cause instanceof StartError ? cause.message : explainFailure(cause, process.env);

const sayCapacity = async (measure: () => Promise<Capacity>): Promise<void> => {
  const summarize = ({ sure, mixed }: Capacity): string =>
    `this machine answers ${sure} turns a second if words decide, ${mixed} if half of them need the model`;
  await terminal.step('capacity', measure, summarize).catch((cause: unknown) => {
    if (!stopSignal) terminal.say(`the capacity could not be measured: ${explain(cause)}`);
  });
};

const main = async (): Promise<number> => {
  const flag = { type: 'boolean', default: false } as const;
  const { values } = parseArgs({ options: { exit: flag, watch: flag, 'one-process': flag } });
  const settings = readSettings(process.env, { isOneProcess: values['one-process'] });
  const files = filesIn(settings.dir);
  const lock = acquireLock(files.lock, 'quickstart.ts');
  if (!lock.acquired) {
    process.stderr.write(`${refusal(files.state, lock.pid)}\n`);
    return 1;
  }
  for (const signal of SIGNALS) process.on(signal, onSignal);
  const undo: (() => unknown)[] = [lock.release];
  try {
    const opened = await openQuickstart({
      root: ROOT,
      env: process.env,
      settings,
      watch: values.watch,
      terminal,
      signal: stopping.signal,
      defer: (one) => undo.push(one),
      onSupervisor: (made) => void supervisors.push(made),
    });
    terminal.show(
      await welcome({ ...opened, dir: relative(ROOT, settings.dir) || '.', stays: !values.exit, watch: values.watch }),
    );
    if (values.exit) return 0;
    if (opened.measure && !values.watch) await sayCapacity(opened.measure);
    await untilStopped();
    return 0;
  } catch (cause) {
    if (stopSignal) return 128 + constants.signals[stopSignal];
    process.stderr.write(`${explain(cause)}\n${supervisors.length > 0 ? `The logs are in ${files.logs}.\n` : ''}`);
    return 1;
  } finally {
    const since = performance.now();
    for (const one of undo.toReversed()) {
      try {
        await one();
      } catch (cause) {
        process.stderr.write(`${explain(cause)}\n`);
      }
    }
    terminal.say(`stopped in ${((performance.now() - since) / 1000).toFixed(1)} s`);
  }
};

requireNode();
try {
  process.exit(await main());
} catch (cause) {
  process.stderr.write(`${explain(cause)}\n`);
  process.exit(1);
}
