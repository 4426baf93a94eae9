import { join } from 'node:path';
import { launch } from '../../test/kit/processes.ts';
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
    const { ended, output } = launch(process.execPath, [...nodeArgs, program], { timeout: withinS * 1000 });
    const { status } = await ended;
    const figure = { id: `${name}.missed`, what: `bench -- ${name}: its own limits`, unit: 'missed' };
    return { figures: [{ ...figure, value: status === 0 ? 0 : 1 }], detail: { output: output.said.split('\n') } };
  };
