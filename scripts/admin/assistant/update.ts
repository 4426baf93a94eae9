import { type Command, InvalidArgumentError, Option } from 'commander';
import {
  ANSWERING,
  type AssistantInput,
  GUARDS,
  IF_NOT_TAKEN,
  IF_TOKENS_USED_UP,
  MAX_TAKE_WITHIN_MINUTES,
} from '../../../src/assistants/assistant.ts';
import type { EngineInput } from '../../../src/assistants/settings.ts';
import { assistantOperations } from '../../../src/assistants/http/assistants.ts';
import { definedFields } from '../../../src/operators/operation.ts';
import { commaList, example, fromVariable, orNone, shortText, wholeNumber, wholeNumberOrNone } from '../arguments.ts';
import { usage } from '../failure.ts';
import type { Run } from '../session.ts';

type Engine = {
  engine?: 'openai' | 'retrieval';
  baseUrl?: string;
  model?: string;
  keyEnv?: string;
  timeout?: number;
  temperature?: number;
};
/** Options with shorter names than their settings. */
type Short = {
  dedupeWindow?: number;
  quickMessages?: number | null;
  takeWithin?: number | null;
  sessionLimit?: number;
};
/** All other options are called like their settings. */
type UpdateOptions = Engine & Short & Partial<AssistantInput>;

const decimal =
  (min: number, max: number) =>
  (value: string): number => {
    const number = Number(value);
    if (value.trim() === '' || !(number >= min && number <= max))
      throw new InvalidArgumentError(`It must be ${min} to ${max}.`);
    return number;
  };

const onOrOff = (value: string): boolean => {
  if (value !== 'on' && value !== 'off') throw new InvalidArgumentError('It must be on or off.');
  return value === 'on';
};

const engineOf = ({ engine, baseUrl, model, keyEnv, timeout, temperature }: Engine): EngineInput | null => {
  const details = [baseUrl, model, keyEnv, timeout, temperature].some((one) => one !== undefined);
  if (engine !== 'openai') {
    if (details) throw usage('Provider settings go with --engine openai.');
    return engine ? { kind: engine } : null;
  }
  if (!baseUrl || !model) throw usage('--engine openai needs --base-url and --model.');
  return {
    kind: engine,
    baseUrl,
    model,
    ...(keyEnv !== undefined && { apiKey: fromVariable(keyEnv) }),
    ...(timeout !== undefined && { timeoutMs: timeout * 1000 }),
    ...(temperature !== undefined && { temperature }),
  };
};

export const addAssistantUpdate = (assistant: Command, run: Run): void => {
  assistant
    .command('update <assistantId>')
    .description('Change the settings of an assistant; `apply` also changes its opening hours')
    .option('--name <name>', 'display name', shortText(100))
    .option('--instructions <text>', 'instructions for a language model', shortText(8000))
    .option('--holding-text <text>', 'what visitors read while a person takes over', shortText(1000))
    .addOption(new Option('--engine <kind>', 'who answers').choices(['retrieval', 'openai']))
    .option('--base-url <url>', 'address of an OpenAI-compatible API, like https://api.example.com/v1')
    .option('--model <model>', 'model of the provider', shortText(200))
    .option('--key-env <name>', 'environment variable with the provider’s key; if omitted, the stored one stays')
    .option('--timeout <seconds>', 'seconds from the question to the end of the reply', wholeNumber(1, 25))
    .option('--temperature <number>', '0 to 2', decimal(0, 2))
    .option('--languages <tags>', 'languages it may answer in, like de,en; "" for all', commaList)
    .addOption(new Option('--answering <how>', 'how sure it must be before it answers').choices(ANSWERING))
    .option(
      '--threshold <number>',
      'the least confidence in place of --answering, 0 to 1, or none',
      orNone(decimal(0, 1)),
    )
    .addOption(new Option('--guard <what>', 'for messages that try to override the instructions').choices(GUARDS))
    .option('--allowed-links <hosts>', 'hosts a provider may link to, like example.com,example.org', commaList)
    .option('--strict <on|off>', 'on: a provider says only what stands in entries and sources', onOrOff)
    .option(
      '--dedupe-window <seconds>',
      'seconds within which a repeated message gets the same reply (0–600)',
      wholeNumber(0, 600),
    )
    .option(
      '--take-within <minutes>',
      'minutes of opening hours in which somebody must take an escalation, or none',
      wholeNumberOrNone(1, MAX_TAKE_WITHIN_MINUTES),
    )
    .addOption(new Option('--if-not-taken <what>', 'what happens to it after that time').choices(IF_NOT_TAKEN))
    .option('--contacts-escalate <on|off>', 'on: a visitor who leaves contact details is handed to a person', onOrOff)
    .option(
      '--quick-messages <seconds>',
      'answer messages that come within so many seconds together (0.5–10); none: each one',
      orNone(decimal(0.5, 10)),
    )
    .option('--drafts <on|off>', 'on: changes of knowledge, sources, instructions and engine make a draft', onOrOff)
    .option(
      '--worse-allowed <number>',
      'publishing a draft asks again if more cases got worse; none: never',
      wholeNumberOrNone(0, 1_000),
    )
    .option('--session-limit <number>', 'messages a minute of one session', wholeNumber(1, 1_000_000))
    .option('--turns-per-month <number>', 'quota of new turns, or none', wholeNumberOrNone(1, 1_000_000_000))
    .option(
      '--tokens-per-day <number>',
      'budget of a provider’s tokens, or none',
      wholeNumberOrNone(1, 1_000_000_000_000),
    )
    .addOption(
      new Option('--if-tokens-used-up <what>', 'who answers when the budget is used up').choices(IF_TOKENS_USED_UP),
    )
    .option(
      '--keep-days <number>',
      'erase a conversation that has not changed for so many days; none: never',
      wholeNumberOrNone(1, 3_650),
    )
    .addHelpText(
      'after',
      example(
        'assistant update <id> --engine openai --base-url https://api.example.com/v1 --model m --key-env PROVIDER_KEY',
      ),
    )
    .action((assistantId: string, options: UpdateOptions) => {
      const { engine: kind, baseUrl, model, keyEnv, timeout, temperature, ...others } = options;
      const engine = engineOf({ engine: kind, baseUrl, model, keyEnv, timeout, temperature });
      const { dedupeWindow, quickMessages, takeWithin, sessionLimit, ...settings } = others;
      const input = definedFields({
        ...settings,
        dedupeWindowSeconds: dedupeWindow,
        quickMessageSeconds: quickMessages,
        takeWithinMinutes: takeWithin,
        sessionLimitPerMinute: sessionLimit,
      });
      if (!engine && Object.keys(input).length === 0) throw usage('Give at least one option; see --help.');
      return run(async (api) => {
        const one = { id: assistantId, what: 'assistant' };
        // The engine is set first: if the API refuses it, the other fields stay unchanged too.
        const set = engine && (await api.call(assistantOperations.setEngine, { ...one, body: engine }));
        const rest = Object.keys(input).length > 0;
        const shown = !set || rest ? await api.call(assistantOperations.update, { ...one, body: input }) : set;
        return { json: shown, text: `Assistant ${assistantId} was changed; its engine is ${shown.engine.kind}.` };
      });
    });
};
