import type { Command } from 'commander';
import { draftOperations } from '../../src/assistants/drafts/http.ts';
import type { Answered } from './api.ts';
import { ASSISTANT_OPTION, example, shortText } from './arguments.ts';
import type { Run } from './session.ts';
import { fields, table } from './text.ts';

type RollBackOptions = { assistant: string; note?: string };
type PublishOptions = { assistant: string; name?: string; note?: string; confirm?: boolean };
type Version = Answered<typeof draftOperations.versions>['versions'][number];

const EXAMPLE_ID = '6f1c0a52-3b1e-4a57-9d0a-2f8f1f0c7b11';
const of = (assistantId: string) => ({ id: assistantId, what: 'assistant' });

const changesIn = ({ added, changed, removed, isReplaced, sources, settings }: Version['changes']): string =>
  [
    isReplaced && 'all replaced',
    added > 0 && `${added} added`,
    changed > 0 && `${changed} changed`,
    removed > 0 && `${removed} removed`,
    sources.added > 0 && `sources added: ${sources.added}`,
    sources.removed > 0 && `sources removed: ${sources.removed}`,
    ...settings,
  ]
    .filter(Boolean)
    .join(', ');

const resultIn = (result: Version['result']): string | null => {
  if (!result) return null;
  const { set, counts, judged } = result;
  return set === null
    ? `visitors: ${counts.worse} worse, ${counts.better} better, ${counts.other} other`
    : `${set}: ${judged.right} right, ${judged.hedged + judged.offered} offered, ${judged.wrong} wrong`;
};

export const addDraftCommands = (program: Command, run: Run): void => {
  const draft = program.command('draft').description('What is changed and not yet live, with the setting drafts');

  draft
    .command('show')
    .description('Show what the draft changes, and who changed it')
    .requiredOption(...ASSISTANT_OPTION)
    .action(({ assistant }: { assistant: string }) =>
      run(async (api) => {
        const shown = await api.call(draftOperations.read, of(assistant));
        const { drafts, version, draft: found } = shown;
        const rows = [
          ...(found?.settings ?? []).map(({ field, by, at }) => ['changed', field, by.name, at]),
          ...(found?.sources ?? []).map(({ kind, name, by, at }) => [kind, `source ${name}`, by.name, at]),
          ...(found?.entries ?? []).map(({ kind, question, by, at }) => [kind, question, by.name, at]),
        ];
        const text = [
          table(['CHANGE', 'WHAT', 'BY', 'AT'], rows, 'Nothing differs from what is live.'),
          fields({ drafts: drafts ? 'on' : 'off', version, ...found?.counts }),
        ].join('\n\n');
        return { json: shown, text };
      }),
    );

  draft
    .command('publish')
    .description('Make the draft live as the next version')
    .requiredOption(...ASSISTANT_OPTION)
    .option('--name <name>', 'a name for the version', shortText(100))
    .option('--note <text>', 'what it changes', shortText(2_000))
    .option('--confirm', 'also if more cases got worse than the assistant allows')
    .addHelpText('after', example(`draft publish --assistant ${EXAMPLE_ID} --name "Winter hours"`))
    .action(({ assistant, name, note, confirm = false }: PublishOptions) =>
      run(async (api) => {
        const body = { name: name ?? null, note: note ?? null, confirm };
        const published = await api.call(draftOperations.publish, { ...of(assistant), body });
        return { json: published, text: `Version ${published.version} is live: ${changesIn(published.changes)}.` };
      }),
    );

  draft
    .command('discard')
    .description('Discard the draft with the changes of all its authors')
    .requiredOption(...ASSISTANT_OPTION)
    .action(({ assistant }: { assistant: string }) =>
      run(async (api) => {
        await api.call(draftOperations.discard, of(assistant));
        return { json: {}, text: 'The draft is discarded.' };
      }),
    );

  draft
    .command('versions')
    .description('List the last 50 versions, newest first')
    .requiredOption(...ASSISTANT_OPTION)
    .action(({ assistant }: { assistant: string }) =>
      run(async (api) => {
        const { versions } = await api.call(draftOperations.versions, of(assistant));
        const rows = versions.map((one) => {
          return [one.version, one.name, one.by.name, one.at, changesIn(one.changes), resultIn(one.result)];
        });
        const text = table(['VERSION', 'NAME', 'BY', 'AT', 'CHANGES', 'RESULT'], rows, 'There are no versions yet.');
        return { json: versions, text };
      }),
    );

  draft
    .command('roll-back')
    .description('Make an earlier version live again, as the next version')
    .argument('<version>', 'its number')
    .requiredOption(...ASSISTANT_OPTION)
    .option('--note <text>', 'why', shortText(2_000))
    .addHelpText('after', example(`draft roll-back 3 --assistant ${EXAMPLE_ID}`))
    .action((version: string, { assistant, note }: RollBackOptions) =>
      run(async (api) => {
        const made = await api.call(draftOperations.rollBack, {
          id: assistant,
          what: `version ${version} of the assistant`,
          params: { version },
          body: { note: note ?? null },
        });
        return { json: made, text: `Version ${made.version} is live: it has what version ${version} had.` };
      }),
    );
};
