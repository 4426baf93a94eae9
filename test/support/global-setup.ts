import type { TestProject } from 'vitest/node';
import { startServices } from '../../scripts/services.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** One Redis and one MongoDB for the whole run. Each file uses its own prefix and database. */
    redisUrl: string;
    mongodbUrl: string;
  }
}

export default async (project: TestProject): Promise<() => Promise<void>> => {
  const services = await startServices();
  project.provide('redisUrl', services.redisUrl);
  project.provide('mongodbUrl', services.mongodbUrl);
  return services.stop;
};
