import { spawnSync, type StdioOptions } from 'node:child_process';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '../..');
const PROJECT = 'parley-try';

/** Runs `docker compose` on our file, with its own project name. */
export const openCompose = (env: NodeJS.ProcessEnv) => {
  const call = (words: string[], stdout: 'inherit' | 'pipe') => {
    const stdio: StdioOptions = ['ignore', stdout, 'inherit'];
    return spawnSync('docker', ['compose', '-p', PROJECT, ...words], { cwd: ROOT, env, encoding: 'utf8', stdio });
  };
  const must = (words: string[], stdout: 'inherit' | 'pipe'): string => {
    const { error, status, stdout: text } = call(words, stdout);
    if (error) throw new Error(`docker cannot be started: ${error.message}`);
    if (status !== 0) throw new Error(`docker compose ${words.join(' ')} ended with ${status}\n${text ?? ''}`);
    return text ?? '';
  };
  return {
    /** Returns the output. */
    read: (...words: string[]): string => must(words, 'pipe'),
    /** Shows the output. */
    show: (...words: string[]): void => void must(words, 'inherit'),
    /** Shows the output and ignores a failure. */
    tryTo: (...words: string[]): void => void call(words, 'inherit'),
    down: `docker compose -p ${PROJECT} down --volumes`,
  };
};
