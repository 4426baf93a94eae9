import { type Command, Option } from 'commander';
import { noteOfToken } from '../../src/operators/http/operators.ts';
import { type Scope, SCOPES } from '../../src/operators/token.ts';
import { example, shortText } from './arguments.ts';
import { type AssistantList, assistantList, idsIn } from './assistant-list.ts';
import type { RunLocal } from './session.ts';
import { recordLocal } from './audit.ts';

type CreateOptions = { name: string; scope: Scope; assistants?: AssistantList };

export const addTokenCommands = (program: Command, runLocal: RunLocal): void => {
  program
    .command('token')
    .description('Operator tokens: what programs, this command among them, sign in with')
    .command('create')
    .description('Create a token directly in MongoDB; prints it, only once. The dashboard lists and revokes tokens')
    .requiredOption('--name <name>', 'who or what uses it', shortText(100))
    .addOption(new Option('--scope <scope>', 'read: reads only; manage: changes too').choices(SCOPES).default('read'))
    .option('--assistants <ids|all>', 'the assistants it is limited to, separated by commas', assistantList)
    .addHelpText('after', example('token create --name "admin command" --scope manage'))
    .action(({ name, scope, assistants = 'all' }: CreateOptions) =>
      runLocal(async ({ tokens, audit }) => {
        const made = await tokens.createToken({ name, scope, assistantIds: idsIn(assistants), createdBy: null });
        const { tokenId } = made.token;
        await recordLocal(audit, { action: 'token.create', ...noteOfToken(made.token) });
        const text = `Token ${tokenId}\n${made.secret}\nIt is shown only once. Put it into OPERATOR_TOKEN.`;
        return { json: { tokenId, token: made.secret }, text };
      }),
    );
};
