import { linkSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { dirname } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

const BEAT_MS = 2000;
const STALE_MS = 20_000;

const isAlive = (pid) => {
  try {
    process.kill(pid, 0);
    return true;
  } catch (cause) {
    return cause.code === 'EPERM';
  }
};

/** The owner is gone: a process of this machine that no longer lives, or a heart that has stopped beating. */
const isAbandoned = (file) => {
  try {
    const [host, pid] = readFileSync(file, 'utf8').split(' ');
    if (host === hostname() && !isAlive(Number(pid))) return true;
    return Date.now() - statSync(file).mtimeMs > STALE_MS;
  } catch {
    return false; // released just now: the next try will tell
  }
};

/** True if this process now owns the file. A link appears whole or not at all, so no one ever reads half an owner. */
const take = (file) => {
  const mine = `${file}.${process.pid}`;
  writeFileSync(mine, `${hostname()} ${process.pid}`);
  try {
    linkSync(mine, file);
    return true;
  } catch (cause) {
    if (cause.code !== 'EEXIST') throw cause;
    return false;
  } finally {
    rmSync(mine, { force: true });
  }
};

/** Lets one launcher of a clone set up at a time; a second one waits, and then finds the work done. */
export const withLock = async (file, onWait, work) => {
  mkdirSync(dirname(file), { recursive: true });
  let waiting = false;
  while (!take(file)) {
    if (isAbandoned(file)) {
      const aside = `${file}.old.${process.pid}`;
      try {
        renameSync(file, aside); // of several who saw the dead owner only one moves it away
        rmSync(aside, { force: true });
      } catch {}
      continue;
    }
    if (!waiting) onWait();
    waiting = true;
    await pause(100);
  }
  const beat = setInterval(() => utimesSync(file, new Date(), new Date()), BEAT_MS);
  const release = () => rmSync(file, { force: true });
  process.once('exit', release);
  try {
    return await work();
  } finally {
    clearInterval(beat);
    process.off('exit', release);
    release();
  }
};
