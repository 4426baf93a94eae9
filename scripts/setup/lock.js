import { linkSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { dirname } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

const HEARTBEAT_MS = 2000;
const STALE_MS = 20_000;

const isAlive = (pid) => {
  try {
    process.kill(pid, 0);
    return true;
  } catch (cause) {
    return cause.code === 'EPERM';
  }
};

/** True if the owner of the lock is dead: its process on this machine has ended, or its heartbeat has stopped. */
const isAbandoned = (file) => {
  try {
    const [host, pid] = readFileSync(file, 'utf8').split(' ');
    if (host === hostname() && !isAlive(Number(pid))) return true;
    return Date.now() - statSync(file).mtimeMs > STALE_MS;
  } catch {
    return false; // it was released just now; the next try decides
  }
};

/** Returns true if this process now owns the lock. The link is atomic, so no other process reads a partial file. */
const tryAcquire = (file) => {
  const own = `${file}.${process.pid}`;
  writeFileSync(own, `${hostname()} ${process.pid}`);
  try {
    linkSync(own, file);
    return true;
  } catch (cause) {
    if (cause.code !== 'EEXIST') throw cause;
    return false;
  } finally {
    rmSync(own, { force: true });
  }
};

/**
 * Runs `work` under a lock, so that only one launcher sets up a clone at a time. Other launchers wait, and then find
 * the work already done.
 */
export const withLock = async (file, onWait, work) => {
  mkdirSync(dirname(file), { recursive: true });
  let waiting = false;
  while (!tryAcquire(file)) {
    if (isAbandoned(file)) {
      const aside = `${file}.old.${process.pid}`;
      try {
        renameSync(file, aside); // only one of several waiters succeeds
        rmSync(aside, { force: true });
      } catch {}
      continue;
    }
    if (!waiting) onWait();
    waiting = true;
    await pause(100);
  }
  const heartbeat = setInterval(() => utimesSync(file, new Date(), new Date()), HEARTBEAT_MS);
  const release = () => rmSync(file, { force: true });
  process.once('exit', release);
  try {
    return await work();
  } finally {
    clearInterval(heartbeat);
    process.off('exit', release);
    release();
  }
};
