import type { Command } from 'commander';
import { assistantOperations } from '../../src/assistants/http/assistants.ts';
import { overviewOperations } from '../../src/insights/http/overview.ts';
import { usageOperations } from '../../src/insights/http/usage.ts';
import type { Answered, Api } from './api.ts';
import { commaList, example, shortText, wholeNumber } from './arguments.ts';
import { addAssistantUpdate } from './assistant/update.ts';
import type { Run } from './session.ts';
import { fields, table } from './text.ts';

type Assistant = Answered<typeof assistantOperations.read>;

const getAssistant = (api: Api, id: string): Promise<Assistant> =>
  api.call(assistantOperations.read, { id, what: 'assistant' });

const describeChannel = ({ connected, open }: { connected: boolean; open: boolean }): string => {
  if (!connected) return 'off';
  return open ? 'open' : 'with token';
};

const describeEngine = (engine: Assistant['engine']): string =>
  engine.kind === 'retrieval'
    ? engine.kind
    : `${engine.model} at ${engine.baseUrl} (key ${engine.apiKey}), else retrieval`;

type CreateOptions = {
  name: string;
  dedupeWindow?: number;
  instructions?: string;
  languages?: string[];
  holdingText?: string;
};

export const addAssistantCommands = (program: Command, run: Run): void => {
  const assistant = program.command('assistant').description('Assistants');

  assistant
    .command('create')
    .description('Create an assistant; prints its id')
    .requiredOption('--name <name>', 'display name', shortText(100))
    .option(
      '--dedupe-window <seconds>',
      'seconds within which a repeated message gets the same reply (0–600)',
      wholeNumber(0, 600),
    )
    .option('--instructions <text>', 'instructions for a language model', shortText(8000))
    .option('--languages <tags>', 'languages it may answer in, like de,en; all if omitted', commaList)
    .option('--holding-text <text>', 'what visitors read while a person takes over', shortText(1000))
    .addHelpText('after', example('assistant create --name "Shop" --dedupe-window 60'))
    .action((options: CreateOptions) =>
      run(async (api) => {
        const { dedupeWindow, ...input } = options;
        const body = { ...input, ...(dedupeWindow !== undefined && { dedupeWindowSeconds: dedupeWindow }) };
        const { assistantId } = await api.call(assistantOperations.create, { body });
        return { json: { assistantId }, text: `Assistant ${assistantId} was created.` };
      }),
    );

  assistant
    .command('list')
    .description('List assistants, oldest first')
    .action(() =>
      run(async (api) => {
        const { assistants: shown } = await api.call(assistantOperations.list);
        const rows = shown.map((one) => [one.assistantId, one.name, describeChannel(one.channel), one.createdAt]);
        return {
          json: shown,
          text: table(['ASSISTANT', 'NAME', 'CHANNEL', 'CREATED'], rows, 'There are no assistants yet.'),
        };
      }),
    );

  assistant
    .command('show <assistantId>')
    .description('Show an assistant with its keys, channel and endpoints')
    .addHelpText('after', example('assistant show 6f1c0a52-3b1e-4a57-9d0a-2f8f1f0c7b11'))
    .action((assistantId: string) =>
      run(async (api) => {
        const shown = await getAssistant(api, assistantId);
        const overview = await api.call(overviewOperations.read, { id: assistantId, what: 'assistant' });
        const { knowledgeEntries, apiKeys, endpoints } = overview;
        const counts = { knowledgeEntries, apiKeys, endpoints: endpoints.all };
        const text = fields({
          ...shown,
          channel: describeChannel(shown.channel),
          languages: shown.languages.join(', '),
          engine: describeEngine(shown.engine),
          allowedLinks: shown.allowedLinks.join(', '),
          ...counts,
        });
        return { json: { ...shown, ...counts }, text };
      }),
    );

  assistant
    .command('usage <assistantId>')
    .description('Show what an assistant used, by day and by key')
    .option('--from <day>', 'the first day in UTC, like 2026-05-04; the first of the month if omitted')
    .option('--to <day>', 'the last day; today if omitted')
    .addHelpText('after', example('assistant usage 6f1c0a52-3b1e-4a57-9d0a-2f8f1f0c7b11 --from 2026-05-01'))
    .action((assistantId: string, query: { from?: string; to?: string }) =>
      run(async (api) => {
        const used = await api.call(usageOperations.read, { id: assistantId, what: 'assistant', query });
        const tokens = (one: { promptTokens: number; completionTokens: number }): number =>
          one.promptTokens + one.completionTokens;
        const days = [...used.days.filter(({ turns }) => turns > 0), { day: 'all', ...used.totals }];
        const rows = days.map((one) => [
          one.day,
          one.turns,
          one.answered,
          one.escalated,
          one.deliveries.delivered,
          tokens(one),
        ]);
        const keys = used.keys.map((one) => [one.keyId, one.name, one.turns, one.answered, tokens(one)]);
        const text = [
          table(['DAY', 'TURNS', 'ANSWERED', 'ESCALATED', 'DELIVERED', 'TOKENS'], rows),
          table(['KEY', 'NAME', 'TURNS', 'ANSWERED', 'TOKENS'], keys, 'No key was used.'),
        ].join('\n\n');
        return { json: used, text };
      }),
    );

  assistant
    .command('limits <assistantId>')
    .description('Show what is used of its quotas and its budget')
    .addHelpText('after', example('assistant limits 6f1c0a52-3b1e-4a57-9d0a-2f8f1f0c7b11'))
    .action((assistantId: string) =>
      run(async (api) => {
        const limits = await api.call(usageOperations.limits, { id: assistantId, what: 'assistant' });
        const { turns, tokens, keys } = limits;
        const rows = [
          ...(turns ? [['turns of the month', turns.used, turns.limit, turns.until]] : []),
          ...(tokens ? [['tokens of the day', tokens.used, tokens.limit, tokens.until]] : []),
          ...keys.map(({ name, used, limit, until }) => [`turns of key ${name}`, used, limit, until]),
        ];
        return { json: limits, text: table(['WHAT', 'USED', 'LIMIT', 'UNTIL'], rows, 'There are no quotas.') };
      }),
    );

  addAssistantUpdate(assistant, run);
};
