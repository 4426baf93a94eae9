import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';
import type { TestProject } from 'vitest/node';
import { type Services, startServices } from '../../scripts/services.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** One Redis and one MongoDB for the whole run. Each file uses its own prefix and database. */
    redisUrl: string;
    mongodbUrl: string;
  }
}

/** The services of this run. Each project loads this file anew, so they are kept outside the module. */
const run = globalThis as { testServices?: { started: Promise<Services>; users: number } };

/** Every process that a test starts has this in its environment, because it inherits it. */
const MARK = 'PARLEY_TEST_RUN';
const GUARDS_END_MS = 10_000;
process.env[MARK] ??= `${process.pid}-${Date.now()}`;

/** The commands of processes that tests of this run have started and not ended. Only Linux tells them. */
const leftRunning = (): string[] => {
  const mark = `${MARK}=${process.env[MARK]}\0`;
  const contentOf = (file: string): string => {
    try {
      return readFileSync(file, 'utf8');
    } catch {
      return ''; // ended meanwhile, or of another user
    }
  };
  const pids = process.platform === 'linux' ? readdirSync('/proc').filter((name) => /^\d+$/.test(name)) : [];
  return pids
    .filter((pid) => Number(pid) !== process.pid && contentOf(`/proc/${pid}/environ`).includes(mark))
    .map((pid) => `${pid} ${contentOf(`/proc/${pid}/cmdline`).replaceAll('\0', ' ')}`)
    .filter((command) => !command.includes('vitest') && !command.includes('esbuild'));
};

export default async (project: TestProject): Promise<() => Promise<void>> => {
  run.testServices ??= { started: startServices(), users: 0 };
  const shared = run.testServices;
  shared.users += 1;
  const services = await shared.started;
  project.provide('redisUrl', services.redisUrl);
  project.provide('mongodbUrl', services.mongodbUrl);
  return async () => {
    shared.users -= 1;
    if (shared.users > 0) return;
    delete run.testServices;
    await services.stop();
    // The guards end by themselves, soon. Anything else stays.
    const until = Date.now() + GUARDS_END_MS;
    let left = leftRunning();
    while (left.length > 0 && Date.now() < until) {
      await setTimeout(100);
      left = leftRunning();
    }
    if (left.length > 0) throw new Error(`processes of this run are still alive:\n${left.join('\n')}`);
  };
};
