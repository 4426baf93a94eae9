import { type Command, Option } from 'commander';
import type { ChannelChange } from '../../src/assistants/channel.ts';
import { channelOperations } from '../../src/assistants/http/channel.ts';
import { ASSISTANT_OPTION, bearerToken, example, wholeNumber } from './arguments.ts';
import { usage } from './failure.ts';
import type { Run } from './session.ts';

type SetOptions = { assistant: string; token?: string; open?: boolean; off?: boolean; limit?: number };

const changeOf = ({ token, open, off, limit }: SetOptions): ChannelChange => {
  if (off) return { connected: false };
  const limited = limit === undefined ? {} : { limitPerMinute: limit };
  if (token !== undefined || open) return { connected: true, token: token ?? null, ...limited };
  if (limit === undefined) throw usage('Give --token T, --open, --off or --limit.');
  return { limitPerMinute: limit };
};

export const addChannelCommands = (program: Command, run: Run): void => {
  const channel = program.command('channel').description('The inbound webhook channel of an assistant');

  channel
    .command('set')
    .description('Connect it with a verify token or open, or disconnect it')
    .requiredOption(...ASSISTANT_OPTION)
    .addOption(
      new Option('--token <token>', 'callers must send it as Bearer').argParser(bearerToken).conflicts(['open', 'off']),
    )
    .addOption(new Option('--open', 'anyone who knows the address may call').conflicts('off'))
    .addOption(new Option('--off', 'not connected: callers get 404').conflicts('limit'))
    .option('--limit <per-minute>', 'requests per minute', wholeNumber(1, 1_000_000))
    .addHelpText(
      'after',
      example('channel set --assistant 6f1c0a52-3b1e-4a57-9d0a-2f8f1f0c7b11 --token s3cret --limit 120'),
    )
    .action(async (options: SetOptions) => {
      const body = changeOf(options);
      const { assistant: assistantId } = options;
      return run(async (api) => {
        const changed = await api.call(channelOperations.change, { id: assistantId, what: 'assistant', body });
        const { warning, ...channel } = changed;
        const state = channel.connected ? `connected (${channel.open ? 'open' : 'with token'})` : 'off';
        const text = `POST ${channel.path} is ${state}, ${channel.limitPerMinute} requests a minute.`;
        return {
          json: { assistantId, ...channel, ...(warning !== null && { warning }) },
          text: warning === null ? text : `${text}\nWarning: ${warning}`,
        };
      });
    });

  channel
    .command('address')
    .description('Make an address with a secret in place of the token; the one before ends within a second')
    .requiredOption(...ASSISTANT_OPTION)
    .option('--remove', 'remove it: its callers get 401')
    .addHelpText('after', example('channel address --assistant 6f1c0a52-3b1e-4a57-9d0a-2f8f1f0c7b11'))
    .action(({ assistant, remove }: { assistant: string; remove?: true }) =>
      run(async (api) => {
        const of = { id: assistant, what: 'assistant' };
        if (remove) {
          await api.call(channelOperations.removeAddress, of);
          return { json: { secretPath: null }, text: 'The secret address is removed.' };
        }
        const { secretPath } = await api.call(channelOperations.rotateAddress, of);
        return {
          json: { secretPath },
          text: `POST ${secretPath}\nIt is shown only once. Who knows it can send messages.`,
        };
      }),
    );
};
