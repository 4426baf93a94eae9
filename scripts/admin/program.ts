import { Command, CommanderError } from 'commander';
import { VERSION } from '../../src/platform/process.ts';
import { addCommands } from './commands.ts';
import { toFailure } from './failure.ts';
import { type Answer, createSession } from './session.ts';
import { findSettings } from './settings.ts';
import { plain } from './text.ts';
import { ROOT } from '../services/installed.ts';

const program = async ({ asJson, words }: { asJson: boolean; words: string[] }): Promise<Command> => {
  const print = ({ json, text, status = 0 }: Answer): void => {
    process.stdout.write(`${asJson ? JSON.stringify(json) : text}\n`);
    process.exitCode = status;
  };
  const session = createSession({ settings: () => findSettings(process.env, ROOT), print });

  const root = new Command('admin')
    .description('Operate the service that the environment names, or else the running quickstart, through its API')
    .version(VERSION)
    .option('--json', 'print one JSON value, and errors as {"error": {code, message}}')
    .configureHelp({ showGlobalOptions: true })
    .configureOutput({ outputError: () => undefined, ...(asJson && { writeErr: () => undefined }) })
    .exitOverride();
  await addCommands(root, session, words);
  return root;
};

const LINGER_MS = 100;

/**
 * True if the output must be JSON. Checked before the arguments are parsed, so that parsing errors are printed as JSON
 * too.
 */
const wantsJson = (words: string[]): boolean => {
  const end = words.indexOf('--');
  return words.slice(0, end === -1 ? undefined : end).includes('--json');
};

export const main = async (argv: string[]): Promise<void> => {
  const words = argv.slice(2);
  const asJson = wantsJson(words);
  // A closed pipe (`| head`) is not an error.
  process.stdout.on('error', () => process.exit());
  try {
    const root = await program({ asJson, words });
    await root.parseAsync(argv);
    // An abandoned connection attempt can keep the process alive for seconds, so the process ends itself.
    setTimeout(() => process.exit(), LINGER_MS).unref();
  } catch (cause) {
    if (cause instanceof CommanderError && cause.exitCode === 0) return; // help or version was printed
    const { code, message, status } = toFailure(cause);
    process.stderr.write(`${asJson ? JSON.stringify({ error: { code, message } }) : plain(message)}\n`);
    // The process must end even if a connection attempt is still running.
    process.exit(status);
  }
};
