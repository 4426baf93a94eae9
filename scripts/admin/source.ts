import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { type Command, Option } from 'commander';
import { draftOperations } from '../../src/assistants/drafts/http.ts';
import { sourceOperations } from '../../src/sources/http.ts';
import { PAGE_STATES, type PageState, SCHEDULES, type Schedule } from '../../src/sources/source.ts';
import type { Answered, Api } from './api.ts';
import { ASSISTANT_OPTION, commaList, example, shortText } from './arguments.ts';
import { Failure, usage } from './failure.ts';
import type { Run } from './session.ts';
import { plain, table } from './text.ts';

const ASSISTANT = '6f1c0a52-3b1e-4a57-9d0a-2f8f1f0c7b11';
const SOURCE = '9a7d3c15-2f64-4a0b-8f5e-1b0c6d7e8f90';

type Source = Answered<typeof sourceOperations.read>;

const readBytes = (file: string): Uint8Array => {
  try {
    return readFileSync(file);
  } catch (cause) {
    const reason = String((cause as NodeJS.ErrnoException).code);
    throw new Failure('file_unreadable', `${file} cannot be read: ${reason}.`, { cause });
  }
};

const isUrl = (text: string): boolean => /^https?:\/\//i.test(text);

const stateOf = ({ state, counts }: Source): string => {
  const done = counts.read + counts.unchanged + counts.skipped + counts.failed;
  return state === 'running' ? `running, ${done} of ${Math.max(done, counts.found)} pages` : state;
};

/** What the draft does with the source, for the end of a sentence. */
const inDraft = ({ edit }: Pick<Source, 'edit'>): string => (edit ? ' in the draft' : '');

const told = (source: Source, what: string) => ({ json: source, text: `Source ${source.sourceId} ${what}.` });

const assistantOf = (assistant: string) => ({ id: assistant, what: 'assistant' });
const sourceOf = (assistant: string, sourceId: string) => ({
  id: assistant,
  params: { sourceId },
  what: `source ${sourceId} of assistant`,
});

type Paths = { name?: string; schedule?: Schedule; include?: string[]; exclude?: string[] };
type AddOptions = Paths & { assistant: string; page?: true };

const add = async (api: Api, given: string, { assistant, page, ...settings }: AddOptions): Promise<Source> => {
  if (isUrl(given)) {
    const body = { url: given, kind: page ? ('page' as const) : ('site' as const), ...settings };
    return api.call(sourceOperations.add, { ...assistantOf(assistant), body });
  }
  const { name = basename(given), ...others } = settings;
  if (page || Object.keys(others).length > 0) throw usage('A file has a name, and no other options.');
  return api.call(sourceOperations.upload, { ...assistantOf(assistant), query: { name }, file: readBytes(given) });
};

const withSettings = (command: Command): Command =>
  command
    .option('--name <name>', 'its name in lists', shortText(200))
    .addOption(new Option('--schedule <schedule>', 'how often it is read again').choices(SCHEDULES))
    .option('--include <paths>', 'only pages of these paths of a website, for example "/docs/**"', commaList)
    .option('--exclude <paths>', 'no pages of these paths', commaList);

export const addSourceCommands = (program: Command, run: Run): void => {
  const source = program
    .command('source')
    .alias('sources')
    .description('Websites and files that an assistant answers from');

  withSettings(source.command('add <urlOrFile>').description('Add a website, a page or a file'))
    .requiredOption(...ASSISTANT_OPTION)
    .option('--page', 'only this page, not the website below it')
    .addHelpText('after', example(`source add --assistant ${ASSISTANT} https://example.com/help --schedule daily`))
    .action((given: string, options: AddOptions) =>
      run(async (api) => {
        const added = await add(api, given, options);
        return told(added, `is added${inDraft(added)} and will be read`);
      }),
    );

  source
    .command('replace <sourceId> <file>')
    .description('Replace the content of a file; the one before answers until the new one is read')
    .requiredOption(...ASSISTANT_OPTION)
    .addHelpText('after', example(`source replace ${SOURCE} handbook.pdf --assistant ${ASSISTANT}`))
    .action((sourceId: string, file: string, { assistant }: { assistant: string }) =>
      run(async (api) => {
        const given = { query: { name: basename(file) }, file: readBytes(file) };
        const replaced = await api.call(sourceOperations.replace, { ...sourceOf(assistant, sourceId), ...given });
        return told(replaced, 'is replaced and will be read');
      }),
    );

  source
    .command('list')
    .description('Sources of an assistant, oldest first')
    .requiredOption(...ASSISTANT_OPTION)
    .action(({ assistant }: { assistant: string }) =>
      run(async (api) => {
        const { sources, proposed, leftOut } = await api.call(sourceOperations.list, assistantOf(assistant));
        const rows = sources.map((one) => [
          one.sourceId,
          one.kind,
          one.name,
          stateOf(one),
          one.counts.passages,
          one.schedule,
          one.edit?.kind,
          one.error?.message,
        ]);
        const headings = ['SOURCE', 'KIND', 'NAME', 'STATE', 'PASSAGES', 'SCHEDULE', 'DRAFT', 'ERROR'];
        const text = table(headings, rows, 'There are no sources yet.');
        const waiting = proposed > 0 ? `\n\n${proposed} proposed entries wait in the dashboard.` : '';
        const unused = leftOut > 0 ? `\n\n${leftOut} passages exceed the memory of a worker and are not used.` : '';
        return { json: sources, text: `${text}${waiting}${unused}` };
      }),
    );

  source
    .command('pages <sourceId>')
    .description('Pages of a source, with their state')
    .requiredOption(...ASSISTANT_OPTION)
    .addOption(new Option('--state <state>', 'only these').choices(PAGE_STATES))
    .addHelpText('after', example(`source pages ${SOURCE} --assistant ${ASSISTANT} --state failed`))
    .action((sourceId: string, { assistant, state }: { assistant: string; state?: PageState }) =>
      run(async (api) => {
        const pages: Answered<typeof sourceOperations.pages>['pages'] = [];
        let cursor: string | undefined;
        do {
          const query = { state, cursor };
          const part = await api.call(sourceOperations.pages, { ...sourceOf(assistant, sourceId), query });
          pages.push(...part.pages);
          cursor = part.nextCursor ?? undefined;
        } while (cursor !== undefined);
        const rows = pages.map(({ state: at, url, title, error }) => [at, url, title, error?.message]);
        return { json: pages, text: table(['STATE', 'PAGE', 'TITLE', 'ERROR'], rows, 'There are no pages.') };
      }),
    );

  withSettings(source.command('update <sourceId>').description('Change its name, schedule or paths'))
    .requiredOption(...ASSISTANT_OPTION)
    .addHelpText('after', example(`source update ${SOURCE} --assistant ${ASSISTANT} --schedule weekly`))
    .action((sourceId: string, { assistant, ...body }: Paths & { assistant: string }) =>
      run(async (api) => {
        if (Object.keys(body).length === 0) throw usage('Give what to change.');
        return told(await api.call(sourceOperations.update, { ...sourceOf(assistant, sourceId), body }), 'is changed');
      }),
    );

  source
    .command('refresh <sourceId>')
    .description('Read a source again now')
    .requiredOption(...ASSISTANT_OPTION)
    .addHelpText('after', example(`source refresh ${SOURCE} --assistant ${ASSISTANT}`))
    .action((sourceId: string, { assistant }: { assistant: string }) =>
      run(async (api) => told(await api.call(sourceOperations.refresh, sourceOf(assistant, sourceId)), 'will be read')),
    );

  source
    .command('remove <sourceId>')
    .description('Remove a source; answers no longer use it, with drafts once it is published')
    .requiredOption(...ASSISTANT_OPTION)
    .addHelpText('after', example(`source remove ${SOURCE} --assistant ${ASSISTANT}`))
    .action((sourceId: string, { assistant }: { assistant: string }) =>
      run(async (api) => {
        const removed = await api.call(sourceOperations.read, sourceOf(assistant, sourceId));
        await api.call(sourceOperations.remove, sourceOf(assistant, sourceId));
        const { drafts } = await api.call(draftOperations.read, assistantOf(assistant));
        return { json: removed, text: `${plain(removed.name)} is removed${drafts ? ' in the draft' : ''}.` };
      }),
    );

  source
    .command('keep <sourceId>')
    .description('Keep a source that the draft removes')
    .requiredOption(...ASSISTANT_OPTION)
    .action((sourceId: string, { assistant }: { assistant: string }) =>
      run(async (api) => told(await api.call(sourceOperations.keep, sourceOf(assistant, sourceId)), 'is kept')),
    );
};
