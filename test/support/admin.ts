import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { beforeAll } from 'vitest';
import type { Stack } from './stack.ts';

const ROOT = join(import.meta.dirname, '../..');

export type AdminRun = { status: number; stdout: string; stderr: string; ms: number };

/** The command as people type it, on the service that `env` names and no other. */
export const runAdmin = (env: Record<string, string>, args: string[]): Promise<AdminRun> => {
  const startedAt = performance.now();
  // With what Node compiled for the one before it, a process starts in two thirds of the time.
  const { PATH = '', NODE_COMPILE_CACHE = '' } = process.env;
  return new Promise((resolve) => {
    execFile(
      process.execPath,
      [join(ROOT, 'scripts/admin.ts'), ...args],
      { cwd: ROOT, env: { PATH, NODE_COMPILE_CACHE, ...env } },
      (failure, stdout, stderr) => {
        const status = failure === null ? 0 : Number(failure.code ?? -1);
        resolve({ status, stdout, stderr, ms: performance.now() - startedAt });
      },
    );
  });
};

/** The stack's environment with its API, and a token that may do everything. */
export const adminOf = async (stack: Stack): Promise<Record<string, string>> => {
  const given = { name: 'admin command', scope: 'manage', assistantIds: null, createdBy: null } as const;
  const { secret } = await stack.service.tokens.createToken(given);
  return { ...stack.env, PARLEY_URL: stack.url, OPERATOR_TOKEN: secret };
};

/** The same, filled before a file's tests. */
export const useAdmin = (stack: Stack): Record<string, string> => {
  const env: Record<string, string> = {};
  beforeAll(async () => {
    Object.assign(env, await adminOf(stack));
  });
  return env;
};

/** Its one JSON value; anything but success is an error. */
export const adminJson = async <Value>(env: Record<string, string>, ...args: string[]): Promise<Value> => {
  const { status, stdout, stderr } = await runAdmin(env, [...args, '--json']);
  if (status !== 0) throw new Error(`admin ${args.join(' ')} ended with ${status}: ${stderr}${stdout}`);
  return JSON.parse(stdout) as Value;
};
