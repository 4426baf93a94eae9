import { type Command, InvalidArgumentError, Option } from 'commander';
import { type AssistantInput, GUARDS, IF_TOKENS_USED_UP } from '../../../src/assistants/assistant.ts';
import type { EngineInput } from '../../../src/assistants/settings.ts';
import { assistantOperations } from '../../../src/operator-api/assistants.ts';
import { commaList, example, shortText, wholeNumber, wholeNumberOrNone } from '../arguments.ts';
import { usage } from '../failure.ts';
import type { Run } from '../session.ts';

type Limits = Pick<AssistantInput, 'worseAllowed' | 'turnsPerMonth' | 'tokensPerDay' | 'ifTokensUsedUp' | 'keepDays'>;
type UpdateOptions = Pick<AssistantInput, 'name' | 'instructions' | 'guard' | 'allowedLinks' | 'holdingText'> &
  Limits & {
    sessionLimit?: number;
    strict?: 'on' | 'off';
    drafts?: 'on' | 'off';
    contactsEscalate?: 'on' | 'off';
    engine?: 'openai' | 'retrieval';
    baseUrl?: string;
    model?: string;
    keyEnv?: string;
    timeout?: number;
    temperature?: number;
  };

const temperature = (value: string): number => {
  const number = Number(value);
  if (value.trim() === '' || !(number >= 0 && number <= 2)) throw new InvalidArgumentError('It must be 0 to 2.');
  return number;
};

/**
 * Reads the provider key from an environment variable, because an argument would be visible in the process list and in
 * the shell history.
 */
const keyOf = (name: string | undefined): { apiKey?: string } => {
  if (name === undefined) return {};
  const apiKey = process.env[name];
  if (!apiKey) throw usage(`The variable ${name} is not set.`);
  return { apiKey };
};

const engineOf = ({
  engine,
  baseUrl,
  model,
  keyEnv,
  timeout,
  temperature: warmth,
}: UpdateOptions): EngineInput | null => {
  const details = [baseUrl, model, keyEnv, timeout, warmth].some((one) => one !== undefined);
  if (engine !== 'openai') {
    if (details) throw usage('Provider settings go with --engine openai.');
    return engine ? { kind: engine } : null;
  }
  if (!baseUrl || !model) throw usage('--engine openai needs --base-url and --model.');
  return {
    kind: engine,
    baseUrl,
    model,
    ...keyOf(keyEnv),
    ...(timeout !== undefined && { timeoutMs: timeout * 1000 }),
    ...(warmth !== undefined && { temperature: warmth }),
  };
};

export const addAssistantUpdate = (assistant: Command, run: Run): void => {
  assistant
    .command('update <assistantId>')
    .description('Change the texts, engine, guard or limits of an assistant')
    .option('--name <name>', 'display name', shortText(100))
    .option('--instructions <text>', 'instructions for a language model', shortText(8000))
    .option('--holding-text <text>', 'what visitors read while a person takes over', shortText(1000))
    .addOption(new Option('--engine <kind>', 'who answers').choices(['retrieval', 'openai']))
    .option('--base-url <url>', 'address of an OpenAI-compatible API, like https://api.example.com/v1')
    .option('--model <model>', 'model of the provider', shortText(200))
    .option('--key-env <name>', 'environment variable with the provider’s key; if omitted, the stored one stays')
    .option('--timeout <seconds>', 'seconds from the question to the end of the reply', wholeNumber(1, 25))
    .option('--temperature <number>', '0 to 2', temperature)
    .addOption(new Option('--guard <what>', 'for messages that try to override the instructions').choices(GUARDS))
    .option('--allowed-links <hosts>', 'hosts a provider may link to, like example.com,example.org', commaList)
    .addOption(
      new Option('--strict <what>', 'on: a provider says only what stands in entries and sources').choices([
        'on',
        'off',
      ]),
    )
    .addOption(
      new Option('--drafts <what>', 'on: changes of knowledge, instructions and engine make a draft').choices([
        'on',
        'off',
      ]),
    )
    .addOption(
      new Option(
        '--contacts-escalate <what>',
        'on: a visitor who leaves contact details is handed to a person',
      ).choices(['on', 'off']),
    )
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
      const engine = engineOf(options);
      const { name, instructions, guard, allowedLinks, holdingText } = options;
      const strict = options.strict && options.strict === 'on';
      const drafts = options.drafts && options.drafts === 'on';
      const contactsEscalate = options.contactsEscalate && options.contactsEscalate === 'on';
      const {
        sessionLimit: sessionLimitPerMinute,
        turnsPerMonth,
        tokensPerDay,
        ifTokensUsedUp,
        keepDays,
        worseAllowed,
      } = options;
      const limits = { sessionLimitPerMinute, turnsPerMonth, tokensPerDay, ifTokensUsedUp, keepDays, worseAllowed };
      const switches = { strict, drafts, contactsEscalate };
      const given = Object.entries({ name, instructions, guard, allowedLinks, holdingText, ...switches, ...limits });
      const input = Object.fromEntries(given.filter(([, value]) => value !== undefined)) as Partial<AssistantInput>;
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
