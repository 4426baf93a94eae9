import { execFileSync } from 'node:child_process';
import { linkSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { dirname } from 'node:path';
import { writePrivately } from './private-file.ts';

type LockResult = { acquired: true; release: () => void } | { acquired: false; pid: number };

/** The command line of a process, or empty if it is not running. The caller uses it to detect a reused process id. */
const commandOf = (pid: number): string => {
  try {
    if (process.platform === 'linux') return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
    return execFileSync('ps', ['-o', 'args=', '-p', String(pid)], { encoding: 'utf8' });
  } catch {
    return '';
  }
};

const ownerOf = (file: string): number | undefined => {
  try {
    const pid = Number(readFileSync(file, 'utf8'));
    return Number.isInteger(pid) && pid > 0 ? pid : undefined;
  } catch {
    return undefined;
  }
};

const tryToLink = (file: string): boolean => {
  const own = `${file}.${process.pid}`;
  writePrivately(own, String(process.pid));
  try {
    linkSync(own, file); // atomic, and fails if the file exists
    return true;
  } catch {
    return false;
  } finally {
    rmSync(own, { force: true });
  }
};

/**
 * Allows only one quickstart per clone, because two would share the data and the state file. `mark` is a word that the
 * command line of a quickstart contains. The lock of a dead process is taken over.
 */
export const acquireLock = (file: string, mark: string): LockResult => {
  mkdirSync(dirname(file), { recursive: true });
  for (let tries = 0; tries < 3; tries++) {
    if (tryToLink(file)) return { acquired: true, release: () => rmSync(file, { force: true }) };
    const pid = ownerOf(file);
    if (pid !== undefined && pid !== process.pid && commandOf(pid).includes(mark)) return { acquired: false, pid };
    rmSync(file, { force: true });
  }
  throw new Error(`${file} cannot be written`);
};
