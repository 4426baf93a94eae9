import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import type { Part } from '../support/figures.ts';

type Script = { name: string; file: string; nodeArgs?: string[]; withinS: number };

/**
 * Runs a bench that is a separate program with its own limits. The result says only whether the program met its limits.
 */
export const script =
  ({ name, file, nodeArgs = [], withinS }: Script): Part =>
  async (_options, say) => {
    say(name);
    const program = join(import.meta.dirname, '..', file);
    const child = spawn(process.execPath, [...nodeArgs, program], { stdio: 'pipe', timeout: withinS * 1000 });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (chunk: Buffer) => (output += chunk.toString()));
    }
    const [status] = (await once(child, 'close')) as [number | null];
    const figure = { id: `${name}.missed`, what: `bench -- ${name}: its own limits`, unit: 'missed' };
    return { figures: [{ ...figure, value: status === 0 ? 0 : 1 }], detail: { output: output.split('\n') } };
  };
