import { readFileSync, rmSync } from 'node:fs';
import { constants, setPriority, tmpdir } from 'node:os';
import { join } from 'node:path';
import { launch } from '../../test/kit/processes.ts';
import type { LoadResult, LoadSettings, Told } from './settings.ts';

const GENERATOR = join(import.meta.dirname, 'generator.ts');
const SPARE_MS = 120_000;

/**
 * Lets the generator run before the service where the user may do this, because the times that it measures contain its
 * own waiting for a processor.
 */
const favour = (pid: number): void => {
  try {
    setPriority(pid, constants.priority.PRIORITY_HIGH);
  } catch {
    // only root may
  }
};

/** Runs the generator once. A time limit ends it if it does not end as planned. */
export const drive = async (settings: Omit<LoadSettings, 'toldFile'>): Promise<{ result: LoadResult; told: Told }> => {
  const toldFile = join(tmpdir(), `parley-load-${process.pid}-${settings.sessionPrefix}.json`);
  const limit = { timeout: settings.seconds * 1000 + SPARE_MS, killSignal: 'SIGKILL' } as const;
  const { pid, ended } = launch(process.execPath, [GENERATOR, JSON.stringify({ ...settings, toldFile })], limit);
  favour(pid);
  const { status, stdout, stderr } = await ended;
  try {
    if (status !== 0) throw new Error(`the load generator ended with ${status}: ${stderr}`);
    return { result: JSON.parse(stdout) as LoadResult, told: JSON.parse(readFileSync(toldFile, 'utf8')) as Told };
  } finally {
    rmSync(toldFile, { force: true });
  }
};
