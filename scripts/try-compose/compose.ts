import { spawnSync, type StdioOptions } from 'node:child_process';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '../..');
const PROJECT = 'parley-try';

/** `docker compose` on our file, as a project of its own. */
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
    /** Its output is the answer. */
    read: (...words: string[]): string => must(words, 'pipe'),
    /** Its output is shown. */
    show: (...words: string[]): void => void must(words, 'inherit'),
    /** Its output is shown, and a failure is no more than that. */
    tryTo: (...words: string[]): void => void call(words, 'inherit'),
    down: `docker compose -p ${PROJECT} down --volumes`,
  };
};
