import { spawn } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { constants } from 'node:os';
import { setTimeout as pause } from 'node:timers/promises';
import { guard } from './guard.js';

/**
 * The number of seconds that a command has to end after its launcher was killed. It is longer than a quickstart's own
 * deadline for stopping.
 */
const GUARD_SECONDS = 25;
const LEFTOVER_MS = 1000;
const KILLED_MS = 300;
const SAME_SIGNAL_MS = 1000;
const PARENT_CHECK_MS = 250;
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'];

export const statusOf = (code, signal) => code ?? 128 + (constants.signals[signal] ?? 0);

/**
 * Calls `stop` on a signal, or when the npm that started this process was killed (npm's shell does not pass signals
 * on). Ctrl-C arrives twice, from the terminal and from npm, so a repetition of the same signal within a second is
 * ignored. Returns a function that ends the listening.
 */
export const onStop = (stop) => {
  const last = {};
  const onSignal = (signal) => {
    if (Date.now() - (last[signal] ?? 0) < SAME_SIGNAL_MS) return;
    last[signal] = Date.now();
    stop(signal);
  };
  for (const signal of SIGNALS) process.on(signal, onSignal);
  const parent = process.ppid;
  const orphaned = () => process.env.npm_lifecycle_event !== undefined && process.ppid !== parent;
  const check = setInterval(() => orphaned() && onSignal('SIGTERM'), PARENT_CHECK_MS);
  return () => {
    for (const signal of SIGNALS) process.off(signal, onSignal);
    clearInterval(check);
  };
};

const signalGroup = (group, signal) => {
  try {
    process.kill(-group, signal);
    return true;
  } catch {
    return false; // the group is empty
  }
};

/** True if a process of the group is still running. Zombies are not counted. */
const groupLives = (group) => {
  if (!signalGroup(group, 0)) return false;
  if (process.platform !== 'linux') return true;
  return readdirSync('/proc').some((name) => {
    if (!/^\d+$/.test(name)) return false;
    try {
      const [state, , pgrp] = readFileSync(`/proc/${name}/stat`, 'utf8').split(') ').at(-1).split(' ');
      return Number(pgrp) === group && state !== 'Z' && state !== 'X';
    } catch {
      return false; // the process has just ended
    }
  });
};

/** Ends the remaining processes of a command's group, so that none continues in the background. */
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
 * Runs one command in its own process group and returns `{status, stopped}`. A signal to this process is passed to the
 * group. If this process is killed, a guard ends the group.
 */
export const start = ([command, ...args], { cwd, env }) =>
  new Promise((resolve) => {
    let stopped = false;
    // The handler is registered before the command starts. Otherwise a signal in between would end this process and
    // leave the command running.
    const stopListening = onStop((signal) => {
      stopped = true;
      if (child.pid !== undefined) signalGroup(child.pid, signal);
    });
    const child = spawn(command, args, { cwd, env, stdio: 'inherit', detached: true });
    const unguard = guard(child.pid === undefined ? 'none' : -child.pid, GUARD_SECONDS);
    const end = async (status) => {
      if (child.pid !== undefined) await endGroup(child.pid);
      stopListening();
      unguard();
      resolve({ status, stopped });
    };
    child.on('error', (cause) => {
      console.error(`${command}: ${cause.message}`);
      if (child.pid === undefined) void end(1);
    });
    child.on('exit', (code, signal) => void end(statusOf(code, signal)));
  });
