import { Command, CommanderError } from 'commander';
import { VERSION } from '../../src/platform/process/lifecycle.ts';
import { setNulls } from './arguments.ts';
import { addCommands } from './commands.ts';
import { toFailure } from './failure.ts';
import { type Answer, createSession } from './session.ts';
import { findSettings } from './settings.ts';
import { plain } from './text.ts';
import { ROOT } from '../services/installed.ts';

/** What a command reads and writes beside its arguments. */
type Surroundings = {
  environment: Record<string, string | undefined>;
  stdout: NodeJS.WritableStream;
  stderr: NodeJS.WritableStream;
};

/**
 * True if the output must be JSON. Checked before the arguments are parsed, so that parsing errors are printed as JSON
 * too.
 */
const wantsJson = (words: string[]): boolean => {
  const end = words.indexOf('--');
  return words.slice(0, end === -1 ? undefined : end).includes('--json');
};

/** Moves a terminal's cursor to the top left corner and clears the screen. */
const CLEAR = '\u001b[H\u001b[2J';

/** Runs one command, given by its words, and returns its exit status. */
export const runCommand = async (
  words: string[],
  { environment, stdout, stderr }: Surroundings,
): Promise<{ status: number; failed: boolean }> => {
  const asJson = wantsJson(words);
  let ended = 0;
  const isTerminal = 'isTTY' in stdout && stdout.isTTY === true;
  const print = ({ json, text, status = 0, replaces }: Answer): void => {
    const before = replaces && isTerminal && !asJson ? CLEAR : '';
    stdout.write(`${before}${asJson ? JSON.stringify(json) : text}\n`);
    ended = status;
  };
  try {
    const session = createSession({ settings: () => findSettings(environment, ROOT), print, stderr });
    const root = new Command('admin')
      .description('Operate the service that the environment names, or else the running quickstart, through its API')
      .version(VERSION)
      .option('--json', 'print one JSON value, and errors as {"error": {code, message}}')
      .configureHelp({ showGlobalOptions: true })
      .configureOutput({
        writeOut: (text) => void stdout.write(text),
        writeErr: (text) => void (asJson || stderr.write(text)),
        outputError: () => undefined,
      })
      .exitOverride()
      .hook('preAction', (_root, command) => setNulls(command));
    await addCommands(root, session, words);
    await root.parseAsync(words, { from: 'user' });
    return { status: ended, failed: false };
  } catch (cause) {
    if (cause instanceof CommanderError && cause.exitCode === 0) return { status: 0, failed: false }; // help or version
    const { code, message, status } = toFailure(cause);
    stderr.write(`${asJson ? JSON.stringify({ error: { code, message } }) : plain(message)}\n`);
    return { status, failed: true };
  }
};

const LINGER_MS = 100;

export const main = async (argv: string[]): Promise<void> => {
  // A closed pipe (`| head`) is not an error.
  process.stdout.on('error', () => process.exit());
  const { env: environment, stdout, stderr } = process;
  const { status, failed } = await runCommand(argv.slice(2), { environment, stdout, stderr });
  // The process must end even if a connection attempt is still running.
  if (failed) process.exit(status);
  process.exitCode = status;
  setTimeout(() => process.exit(), LINGER_MS).unref();
};
