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
  };
};
