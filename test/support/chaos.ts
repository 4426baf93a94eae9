import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';

/** Runs a chaos command as its own process, and returns its exit code and what it printed. */
export const runChaos = async (
  command: string,
  ...args: string[]
): Promise<{ code: number | null; output: string }> => {
  const child = spawn(process.execPath, [command, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  const [output, errors, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')]);
  return { code: code as number | null, output: output + errors };
};

/** The figure of a row. */
export const countOf = (output: string, what: string): number =>
  Number(new RegExp(`^\\s*${what}\\s+(\\d+)`, 'm').exec(output)?.[1]);
