import { spawn } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { constants, setPriority } from 'node:os';
import { setTimeout as pause } from 'node:timers/promises';
import { guard } from './guard.js';

/** How long a command may take to end when its launcher was killed; longer than a quickstart's own deadline. */
const GUARD_SECONDS = 25;
const LEFTOVER_MS = 1000;
const KILLED_MS = 300;
const SAME_SIGNAL_MS = 1000;
const PARENT_CHECK_MS = 250;
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'];

export const statusOf = (code, signal) => code ?? 128 + (constants.signals[signal] ?? 0);

/**
 * Calls `stop` for a signal, and when npm (whose shell passes no signal on) was killed above us. Ctrl-C comes twice, from
 * the terminal and from npm: the same signal within a second is one. Hands back how to stop listening.
 */
export const onStop = (stop) => {
  const last = {};
  const hear = (signal) => {
    if (Date.now() - (last[signal] ?? 0) < SAME_SIGNAL_MS) return;
    last[signal] = Date.now();
    stop(signal);
  };
  for (const signal of SIGNALS) process.on(signal, hear);
  const parent = process.ppid;
  const orphaned = () => process.env.npm_lifecycle_event !== undefined && process.ppid !== parent;
  const check = setInterval(() => orphaned() && hear('SIGTERM'), PARENT_CHECK_MS);
  return () => {
    for (const signal of SIGNALS) process.off(signal, hear);
    clearInterval(check);
  };
};

const signalGroup = (group, signal) => {
  try {
    process.kill(-group, signal);
    return true;
  } catch {
    return false; // nobody of the group is left
  }
};

/** Whether anyone of the group still runs; the dead whom nobody has collected yet (a slow process 1) do not count. */
const groupLives = (group) => {
  if (!signalGroup(group, 0)) return false;
  if (process.platform !== 'linux') return true;
  return readdirSync('/proc').some((name) => {
    if (!/^\d+$/.test(name)) return false;
    try {
      const [state, , pgrp] = readFileSync(`/proc/${name}/stat`, 'utf8').split(') ').at(-1).split(' ');
      return Number(pgrp) === group && state !== 'Z' && state !== 'X';
    } catch {
      return false; // gone while we looked
    }
  });
};

/** A command may be gone before its own children: they go too, so that nothing works on behind the prompt. */
const endGroup = async (group) => {
  if (!signalGroup(group, 'SIGTERM')) return;
  const deadline = Date.now() + LEFTOVER_MS;
  while (groupLives(group)) {
    if (Date.now() > deadline) signalGroup(group, 'SIGKILL');
    if (Date.now() > deadline + KILLED_MS) return;
    await pause(20);
  }
};

/**
 * Runs one command in a process group of its own, to its end: `{status, stopped}`. Signals reach the group through us,
 * once; if we are killed, the guard ends the group. `aside`: it runs beside another command, so it yields the processor to
 * it, and says what it has to say in one piece at its end.
 */
export const start = ([command, ...args], { cwd, env, aside = false }) =>
  new Promise((resolve) => {
    let stopped = false;
    // Before there is anything to stop: a signal in between would end us, and the command would live on.
    const forget = onStop((signal) => {
      stopped = true;
      if (child.pid !== undefined) signalGroup(child.pid, signal);
    });
    const output = [];
    const stdio = aside ? ['ignore', 'pipe', 'pipe'] : 'inherit';
    const child = spawn(command, args, { cwd, env, stdio, detached: true });
    child.stdout?.on('data', (data) => output.push(data));
    child.stderr?.on('data', (data) => output.push(data));
    if (aside && child.pid !== undefined) setPriority(child.pid, constants.priority.PRIORITY_BELOW_NORMAL);
    const unguard = guard(child.pid === undefined ? 'none' : -child.pid, GUARD_SECONDS);
    const end = async (status) => {
      if (child.pid !== undefined) await endGroup(child.pid);
      forget();
      unguard();
      process.stdout.write(Buffer.concat(output));
      resolve({ status, stopped });
    };
    child.on('error', (cause) => {
      console.error(`${command}: ${cause.message}`);
      if (child.pid === undefined) void end(1);
    });
    child.on(aside ? 'close' : 'exit', (code, signal) => void end(statusOf(code, signal)));
  });
