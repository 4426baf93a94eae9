import { type Command, Option } from 'commander';
import type { WebSettings } from '../../src/assistants/settings.ts';
import { webChannelOperations } from '../../src/assistants/http/channel.ts';
import type { Answered } from './api.ts';
import { ASSISTANT_OPTION, color, commaList, example } from './arguments.ts';
import { usage } from './failure.ts';
import type { Run } from './session.ts';
import { fields, plain } from './text.ts';

type Web = Answered<typeof webChannelOperations.read>;
type SetOptions = { assistant: string; on?: true; off?: true; starter?: string[] } & Partial<
  Omit<WebSettings, 'enabled' | 'starters'>
>;

const ID = '6f1c0a52-3b1e-4a57-9d0a-2f8f1f0c7b11';
const of = (assistantId: string) => ({ id: assistantId, what: 'assistant' });

const describe = ({ enabled, origins, starters, identity, ...rest }: Web): string =>
  fields({
    state: enabled ? 'on' : 'off',
    origins: origins.join(', '),
    starters: starters.join(' | '),
    ...rest,
    'signed-in users': identity === null ? 'not accepted' : `secret of ${identity.createdAt}`,
  });

const changeOf = ({ assistant: _assistant, on, off, starter, ...looks }: SetOptions): Partial<WebSettings> => {
  const enabled = on ? { enabled: true } : off ? { enabled: false } : {};
  const starters = starter ? { starters: starter.filter((one) => one !== '') } : {};
  const change = { ...enabled, ...starters, ...looks };
  if (Object.keys(change).length === 0) throw usage('Give at least one option; see --help.');
  return change;
};

export const addWebCommands = (program: Command, run: Run): void => {
  const web = program.command('web').description('The web channel of an assistant: widget and hosted page');

  web
    .command('show')
    .description('Show who may show the widget, and how it looks')
    .requiredOption(...ASSISTANT_OPTION)
    .action(({ assistant }: { assistant: string }) =>
      run(async (api) => {
        const json = await api.call(webChannelOperations.read, of(assistant));
        return { json, text: describe(json) };
      }),
    );

  web
    .command('set')
    .description('Switch it on or off, or change its sites or looks; the rest stays')
    .requiredOption(...ASSISTANT_OPTION)
    .addOption(new Option('--on', 'the widget and the hosted page are there').conflicts('off'))
    .option('--off', 'they are not there')
    .option(
      '--origins <origins>',
      'sites that may show the widget, like https://www.example.com; "" for none',
      commaList,
    )
    .option('--title <text>', '"" for the name of the assistant')
    .option('--greeting <text>', '"" for one in the language of the page')
    .option('--starter <question...>', 'questions that a visitor may begin with; "" for none')
    .option('--accent <colour>', 'like #1e90ff', color)
    .addOption(new Option('--theme <theme>', 'auto: as the visitor’s system is').choices(['auto', 'light', 'dark']))
    .addOption(new Option('--side <side>', 'where the button is').choices(['end', 'start']))
    .addHelpText('after', example(`web set --assistant ${ID} --on --origins https://www.example.com`))
    .action((options: SetOptions) => {
      const body = changeOf(options);
      return run(async (api) => {
        const json = await api.call(webChannelOperations.change, { ...of(options.assistant), body });
        return { json, text: describe(json) };
      });
    });

  web
    .command('identity')
    .description('Make a new secret that signs the ids of users; the one before ends at once')
    .requiredOption(...ASSISTANT_OPTION)
    .option('--remove', 'remove the secret: ids of users are no longer accepted')
    .addHelpText('after', example(`web identity --assistant ${ID}`))
    .action(({ assistant, remove }: { assistant: string; remove?: true }) =>
      run(async (api) => {
        if (remove) {
          await api.call(webChannelOperations.removeIdentity, of(assistant));
          return { json: { secret: null }, text: 'Ids of users are no longer accepted.' };
        }
        const { secret } = await api.call(webChannelOperations.rotateIdentity, of(assistant));
        return { json: { secret }, text: `Secret (shown only once): ${plain(secret)}` };
      }),
    );
};
