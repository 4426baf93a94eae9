import { randomUUID } from 'node:crypto';
import { mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';

/** Writes a file that only its owner may read. The rename is atomic, so readers never see a partial file. */
export const writePrivately = (path: string, text: string): void => {
  mkdirSync(dirname(path), { recursive: true });
  const whole = `${path}.${randomUUID()}`;
  try {
    writeFileSync(whole, text, { mode: 0o600, flag: 'wx' });
    renameSync(whole, path);
  } catch (cause) {
    rmSync(whole, { force: true });
    throw cause;
  }
};

export const writeJsonPrivately = (path: string, value: unknown): void =>
  writePrivately(path, `${JSON.stringify(value, null, 2)}\n`);
