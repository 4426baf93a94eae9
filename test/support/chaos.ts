import { launch } from '../kit/processes.ts';

/** Runs a chaos command as its own process, and returns its exit code and what it printed. */
export const runChaos = async (
  command: string,
  ...args: string[]
): Promise<{ code: number | null; output: string }> => {
  const { status: code, stdout, stderr } = await launch(process.execPath, [command, ...args]).ended;
  return { code, output: stdout + stderr };
};

/** The figure of a row. */
export const countOf = (output: string, what: string): number =>
  Number(new RegExp(`^\\s*${what}\\s+(\\d+)`, 'm').exec(output)?.[1]);
