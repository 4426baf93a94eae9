import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import * as z from 'zod';

export const ROOT = join(import.meta.dirname, '../..');

const Installed = z.object({ way: z.string(), program: z.string().optional(), image: z.string().optional() });
const FoundBrowser = z.object({
  program: z.string(),
  sandbox: z.boolean(),
  env: z.record(z.string(), z.string()).default({}),
});
const FoundPython = z.object({ program: z.string(), folder: z.string() });
const FoundServices = z.object({
  redis: Installed.optional(),
  mongodb: Installed.optional(),
  chromium: FoundBrowser.optional(),
  python: FoundPython.optional(),
  schemathesis: FoundPython.optional(),
});

export type ServiceName = 'redis' | 'mongodb';
type Program = { program: string } | { image: string };
/**
 * An installed browser. `sandbox` is true if the browser's sandbox works on this machine. `env` has the variables that
 * the browser needs.
 */
export type Browser = z.output<typeof FoundBrowser>;

const read = (text: string) => FoundServices.parse(JSON.parse(text));

const cache = new Map<string, z.infer<typeof FoundServices>>();

/**
 * Reads the services that the launcher found. If the launcher did not run (for example, a test started in an editor),
 * this function starts the launcher to find them.
 */
const findServices = (env: NodeJS.ProcessEnv, ...names: (keyof z.infer<typeof FoundServices>)[]) => {
  const fromLauncher = env['SETUP_FOUND'] === undefined ? undefined : read(env['SETUP_FOUND']);
  if (fromLauncher && names.every((name) => fromLauncher[name])) return fromLauncher;
  // A browser opens the dashboard, so a changed dashboard is built first.
  const wanted = names.flatMap((name) => (name === 'chromium' ? ['dashboard', name] : name));
  const ask = (): string =>
    // With these URLs, `locate` would return running servers. The caller needs programs that it can start and kill.
    execFileSync(process.execPath, [join(ROOT, 'scripts/run.js'), 'locate', ...wanted], {
      encoding: 'utf8',
      env: { ...env, REDIS_URL: '', MONGODB_URL: '' },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
  const key = names.join();
  const found = cache.get(key) ?? read(ask());
  cache.set(key, found);
  return found;
};

/** The program or image to start a service from. */
export const programFor = (name: ServiceName): Program => {
  const found = findServices(process.env, 'redis', 'mongodb')[name];
  if (found?.program !== undefined) return { program: found.program };
  if (found?.image !== undefined) return { image: found.image };
  throw new Error(`${name} is given by its URL, so there is no program to start another one`);
};

export const findBrowser = (): Browser => {
  const { chromium } = findServices(process.env, 'chromium');
  if (!chromium) throw new Error('the set-up found no Chromium and did not say so');
  return chromium;
};

/** Python, and the folder with what it imports: for the tests of the Python package, or for requests by schema. */
export const findPython = (key: 'python' | 'schemathesis' = 'python'): z.output<typeof FoundPython> => {
  const found = findServices(process.env, key)[key];
  if (!found) throw new Error(`Python 3.11 with pip is away, see above: what needs ${key} is not tested`);
  return found;
};
