import type { Command } from 'commander';
import { keyOperations } from '../../src/assistants/http/keys.ts';
import { ASSISTANT_OPTION, example, overlapOption, shortText, wholeNumber, wholeNumberOrNone } from './arguments.ts';
import { usage } from './failure.ts';
import type { Run } from './session.ts';
import { table } from './text.ts';

const KEY_EXAMPLE = '0d9e9f9b-6a3c-4a8f-8a55-5f9f6f0a2c31';
const LIMIT = ['--limit <per-minute>', 'requests per minute (60 if omitted)', wholeNumber(1, 1_000_000)] as const;
const QUOTA = [
  '--turns-per-month <number>',
  'quota of new turns, or none',
  wholeNumberOrNone(1, 1_000_000_000),
] as const;
type Options = { name?: string; limit?: number; turnsPerMonth?: number | null };

const bodyOf = ({ limit, ...rest }: Options) => ({
  ...rest,
  ...(limit !== undefined && { limitPerMinute: limit }),
});

const shownOnce = (keyId: string, apiKey: string): string =>
  `Key ${keyId}\n${apiKey}\nIt is shown only once. Keep it on your server.`;

export const addKeyCommands = (program: Command, run: Run): void => {
  const key = program.command('key').description('API keys of an assistant');

  key
    .command('create')
    .description('Create a key; prints it, only once')
    .requiredOption(...ASSISTANT_OPTION)
    .requiredOption('--name <name>', 'who or what uses it', shortText(100))
    .option(...LIMIT)
    .option(...QUOTA)
    .addHelpText(
      'after',
      example('key create --assistant 6f1c0a52-3b1e-4a57-9d0a-2f8f1f0c7b11 --name website --limit 120'),
    )
    .action(({ assistant, name, ...rest }: Options & { assistant: string; name: string }) =>
      run(async (api) => {
        const body = { name, ...bodyOf(rest) };
        const { key, apiKey } = await api.call(keyOperations.create, { id: assistant, what: 'assistant', body });
        return { json: { keyId: key.keyId, apiKey }, text: shownOnce(key.keyId, apiKey) };
      }),
    );

  key
    .command('list')
    .description('List keys by their last four characters, newest first')
    .requiredOption(...ASSISTANT_OPTION)
    .action(({ assistant }: { assistant: string }) =>
      run(async (api) => {
        const { keys } = await api.call(keyOperations.list, { id: assistant, what: 'assistant' });
        const rows = keys.map((one) => [
          one.keyId,
          one.name,
          `…${one.lastFour}`,
          one.limitPerMinute,
          one.turnsPerMonth,
          one.createdAt,
          one.lastUsedAt,
          one.revokedAt,
          one.overlapUntil,
        ]);
        const headings = [
          'KEY',
          'NAME',
          'ENDS IN',
          'A MINUTE',
          'A MONTH',
          'CREATED',
          'LAST USED',
          'REVOKED',
          'OLD KEY UNTIL',
        ];
        return { json: keys, text: table(headings, rows, 'There are no keys yet.') };
      }),
    );

  key
    .command('update <keyId>')
    .description('Change its name or limits; the key stays the same')
    .option('--name <name>', 'who or what uses it', shortText(100))
    .option(LIMIT[0], 'requests per minute', LIMIT[2])
    .option(...QUOTA)
    .addHelpText('after', example(`key update ${KEY_EXAMPLE} --turns-per-month 10000`))
    .action((keyId: string, options: Options) => {
      const body = bodyOf(options);
      if (Object.keys(body).length === 0) throw usage('Give at least one option; see --help.');
      return run(async (api) => {
        const changed = await api.call(keyOperations.update, { id: keyId, what: 'live key', body });
        return { json: changed, text: `Key ${keyId} was changed.` };
      });
    });

  key
    .command('revoke <keyId>')
    .description('Revoke a key; every process refuses it within a second')
    .addHelpText('after', example(`key revoke ${KEY_EXAMPLE}`))
    .action((keyId: string) =>
      run(async (api) => {
        const revoked = await api.call(keyOperations.revoke, { id: keyId, what: 'key' });
        return { json: revoked, text: `Key ${keyId} is revoked.` };
      }),
    );

  key
    .command('rotate <keyId>')
    .description('Replace a key; the old one is refused at once or later, and name, limit and id stay')
    .option(...overlapOption('stays valid'))
    .addHelpText('after', example(`key rotate ${KEY_EXAMPLE} --overlap 24`))
    .action((keyId: string, { overlap = 0 }: { overlap?: number }) =>
      run(async (api) => {
        const body = { overlapHours: overlap };
        const { key, apiKey } = await api.call(keyOperations.rotate, { id: keyId, what: 'live key', body });
        const { overlapUntil } = key;
        const text = shownOnce(keyId, apiKey) + (overlapUntil ? `\nThe old key is valid until ${overlapUntil}.` : '');
        return { json: { keyId, apiKey }, text };
      }),
    );
};
