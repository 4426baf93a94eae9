import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { beforeAll } from 'vitest';
import { runCommand } from '../../scripts/admin/program.ts';
import type { Stack } from './stack.ts';

const ROOT = join(import.meta.dirname, '../..');

type AdminRun = { status: number; stdout: string; stderr: string; ms: number };

/** Collects what is written to it. */
const collected = () => {
  let text = '';
  const stream = new Writable({
    write: (chunk: Buffer, _encoding, done) => {
      text += chunk.toString();
      done();
    },
  });
  return { stream, text: () => text };
};

/** Runs the admin command on the service that `env` names, in this process. */
export const runAdmin = async (env: Record<string, string>, args: string[]): Promise<AdminRun> => {
  const startedAt = performance.now();
  const [stdout, stderr] = [collected(), collected()];
  const { status } = await runCommand(args, { environment: env, stdout: stdout.stream, stderr: stderr.stream });
  return { status, stdout: stdout.text(), stderr: stderr.text(), ms: performance.now() - startedAt };
};

/** The same in a process of its own, without the variables of this process. */
export const spawnAdmin = (env: Record<string, string>, args: string[]): Promise<AdminRun> => {
  const startedAt = performance.now();
  // The compile cache shortens the start of each process by a third.
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

/** The stack's environment with the address of its API and a token with all rights. */
export const adminOf = async (stack: Stack): Promise<Record<string, string>> => {
  const given = { name: 'admin command', scope: 'manage', assistantIds: null, createdBy: null } as const;
  const { secret } = await stack.service.tokens.createToken(given);
  return { ...stack.env, PARLEY_URL: stack.url, OPERATOR_TOKEN: secret };
};

/** Like `adminOf`, but filled before the tests of a file. */
export const useAdmin = (stack: Stack): Record<string, string> => {
  const env: Record<string, string> = {};
  beforeAll(async () => {
    Object.assign(env, await adminOf(stack));
  });
  return env;
};

/** Returns the command's JSON output. Throws if the command fails. */
export const adminJson = async <Value>(env: Record<string, string>, ...args: string[]): Promise<Value> => {
  const { status, stdout, stderr } = await runAdmin(env, [...args, '--json']);
  if (status !== 0) throw new Error(`admin ${args.join(' ')} ended with ${status}: ${stderr}${stdout}`);
  return JSON.parse(stdout) as Value;
};
