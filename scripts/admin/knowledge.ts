import { type Command, Option } from 'commander';
import { KNOWLEDGE_FORMATS, type KnowledgeFormat, knowledgeFormatOf } from '../../src/assistants/knowledge/import.ts';
import { knowledgeOperations } from '../../src/assistants/knowledge/http.ts';
import { ASSISTANT_OPTION, example } from './arguments.ts';
import { usage } from './failure.ts';
import { followStatus, readStatus, statusText } from './knowledge/semantic-status.ts';
import type { Run } from './session.ts';
import { readText } from './text-file.ts';
import { fields, plain, table } from './text.ts';

const FORMATS_HELP = `
A JSON file is an array of {question, variants?: [], answer, language?, actions?: [{label, type, payload}], tags?: []}.
CSV has those names as headings; several variants or tags in a cell are separated by |, actions are lines of
"label | type | payload"; lists may also be written as JSON. In Markdown every heading with text under it is a question.`;

const one = (assistantId: string) => ({ id: assistantId, what: 'assistant' });

type ImportOptions = { assistant: string; format?: KnowledgeFormat; replace?: boolean; wait: boolean };

export const addKnowledgeCommands = (program: Command, run: Run): void => {
  const knowledge = program.command('knowledge').description('Questions and answers of an assistant');

  knowledge
    .command('import <file>')
    .description('Import questions from a file; wrong rows are reported with their line, the others are imported')
    .requiredOption(...ASSISTANT_OPTION)
    .addOption(new Option('--format <format>', "if the file's name does not tell").choices(KNOWLEDGE_FORMATS))
    .option('--replace', 'remove the existing entries')
    .option('--no-wait', 'return when the entries are stored, before their vectors are made')
    .addHelpText('after', FORMATS_HELP)
    .addHelpText('after', example('knowledge import --assistant 6f1c0a52-3b1e-4a57-9d0a-2f8f1f0c7b11 faq.csv'))
    .action(async (file: string, options: ImportOptions, command: Command) => {
      const { assistant, format = knowledgeFormatOf(file) ?? undefined, replace, wait } = options;
      const { json } = command.optsWithGlobals<{ json?: boolean }>();
      if (!format)
        throw usage(`The name of ${file} does not show its format: give --format ${KNOWLEDGE_FORMATS.join('|')}.`);
      return run(async (api) => {
        const body = { format, text: readText(file), replace: replace === true };
        const { imported, refused } = await api.call(knowledgeOperations.importFile, { ...one(assistant), body });
        const refusals = refused.map(({ line, reason }) => `\n  line ${line}: ${plain(reason)}`).join('');
        const text = `${imported} imported, ${refused.length} refused${refusals === '' ? '.' : `:${refusals}`}`;
        // With `--json` the command does not wait, because a program can poll `knowledge status` itself.
        const follow = json !== true && wait && imported > 0;
        const status = await (follow ? followStatus : readStatus)(api, assistant);
        return { json: { imported, refused }, text: `${text}\n${statusText(status)}` };
      });
    });

  knowledge
    .command('list')
    .description('List an assistant’s knowledge entries, in their order')
    .requiredOption(...ASSISTANT_OPTION)
    .action(({ assistant }: { assistant: string }) =>
      run(async (api) => {
        const { entries } = await api.call(knowledgeOperations.list, one(assistant));
        const rows = entries.map(({ entryId, question, language, variants }) => [
          entryId,
          language,
          variants.length,
          question,
        ]);
        return {
          json: entries,
          text: [
            table(['ENTRY', 'LANGUAGE', 'VARIANTS', 'QUESTION'], rows, 'There are no entries yet.'),
            statusText(await readStatus(api, assistant)),
          ].join('\n\n'),
        };
      }),
    );

  knowledge
    .command('status')
    .description('Read the state of semantic search')
    .requiredOption(...ASSISTANT_OPTION)
    .addHelpText('after', example('knowledge status --assistant 6f1c0a52-3b1e-4a57-9d0a-2f8f1f0c7b11'))
    .action(({ assistant }: { assistant: string }) =>
      run(async (api) => {
        const status = await readStatus(api, assistant);
        const { state, reason, done, total, model } = status;
        const text = fields({ state, ...(reason !== null && { reason }), entries: total, ready: done, model });
        return { json: status, text: `${statusText(status)}\n\n${text}` };
      }),
    );
};
