import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import * as z from 'zod';

export const ROOT = join(import.meta.dirname, '../..');

const Found = z.object({ way: z.string(), program: z.string().optional(), image: z.string().optional() });
const FoundServices = z.object({ redis: Found.optional(), mongodb: Found.optional() });

export type ServiceName = 'redis' | 'mongodb';
export type Program = { program: string } | { image: string };

const read = (text: string) => FoundServices.parse(JSON.parse(text));

let asked: z.infer<typeof FoundServices> | undefined;

/** What the launcher found; asked for once where the launcher was not used (an editor's test run, say). */
const foundServices = (env: NodeJS.ProcessEnv) => {
  const told = env['SETUP_FOUND'] === undefined ? undefined : read(env['SETUP_FOUND']);
  if (told?.redis && told.mongodb) return told;
  const ask = (): string =>
    // Without the URLs: this is asked only for programs that can be started, stopped and killed.
    execFileSync(process.execPath, [join(ROOT, 'scripts/run.js'), 'locate'], {
      encoding: 'utf8',
      env: { ...env, REDIS_URL: '', MONGODB_URL: '' },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
  asked ??= read(ask());
  return asked;
};

/** The program (or image) a service of our own is started from. */
export const programFor = (name: ServiceName): Program => {
  const found = foundServices(process.env)[name];
  if (found?.program !== undefined) return { program: found.program };
  if (found?.image !== undefined) return { image: found.image };
  throw new Error(`${name} is given by its URL here, so there is no program to start another one from`);
};
