import { text as readAll } from 'node:stream/consumers';
import { type Command, Option } from 'commander';
import { operatorOperations } from '../../src/operators/http/operators.ts';
import { Email, Password, type Role, ROLES } from '../../src/operators/operator.ts';
import { newPassword } from '../../src/operators/store.ts';
import type { Answered, Api } from './api.ts';
import { example } from './arguments.ts';
import { type AssistantList, assistantList, ASSISTANTS, idsIn } from './assistant-list.ts';
import { Failure, notFoundFailure, usage } from './failure.ts';
import type { Run, RunLocal } from './session.ts';
import { table } from './text.ts';
import { recordLocal } from './audit.ts';

type Operator = Answered<typeof operatorOperations.update>;

const emailOf = (given: string): string => {
  const email = Email.safeParse(given);
  if (!email.success) throw usage('--email: it must be an email address.');
  return email.data;
};

const passwordFromStdin = async (): Promise<string> => {
  const password = Password.safeParse((await readAll(process.stdin)).replace(/\r?\n$/, ''));
  if (!password.success) {
    throw new Failure('validation_failed', `The password ${password.error.issues[0]?.message ?? 'is not valid'}.`);
  }
  return password.data;
};

const assistantsOf = ({ role, assistantIds }: Pick<Operator, 'role' | 'assistantIds'>): string => {
  if (role === 'owner' || assistantIds === null) return 'all';
  return String(assistantIds.length);
};

const findByIdOrEmail = async (api: Api, idOrEmail: string): Promise<Operator> => {
  const email = idOrEmail.includes('@') ? emailOf(idOrEmail) : null;
  const { operators } = await api.call(operatorOperations.list);
  const found = operators.find((one) => (email === null ? one.operatorId === idOrEmail : one.email === email));
  if (!found) throw notFoundFailure('operator', idOrEmail);
  return found;
};

type CreateOptions = { email: string; role: Role; assistants?: AssistantList; passwordStdin?: boolean };

export const addOperatorCommands = (program: Command, { run, runLocal }: { run: Run; runLocal: RunLocal }): void => {
  const operator = program.command('operator').description('People who can sign in to the dashboard');

  operator
    .command('create')
    .description('Create an operator; prints the password, only once, unless it was given')
    .requiredOption('--email <email>', 'to sign in with')
    .addOption(
      new Option('--role <role>', 'owner: everything; agent: inbox and playground').choices(ROLES).default('owner'),
    )
    .option(...ASSISTANTS, assistantList)
    .option('--password-stdin', 'read the password from standard input instead of generating one')
    .addHelpText(
      'after',
      example(
        'operator create --email ada@example.com',
        'operator create --email bo@example.com --role agent --assistants 6f1c0a52-3b1e-4a57-9d0a-2f8f1f0c7b11',
      ),
    )
    .action(async ({ email: given, role, assistants = 'all', passwordStdin }: CreateOptions) => {
      const email = emailOf(given);
      const password = passwordStdin ? await passwordFromStdin() : newPassword();
      return runLocal(async ({ operators, audit }) => {
        const assistantIds = idsIn(assistants);
        const { operatorId } = await operators.createOperator({ email, role, password, assistantIds });
        const details = { email, role, assistants: assistantIds?.join(', ') ?? 'all' };
        await recordLocal(audit, { action: 'operator.create', target: operatorId, details });
        const shown = passwordStdin ? { operatorId, email } : { operatorId, email, password };
        const secret = passwordStdin ? '' : `\n${password}\nThe password is shown only once.`;
        return { json: shown, text: `Operator ${operatorId}, ${role}: ${email}${secret}` };
      });
    });

  operator
    .command('list')
    .description('List operators, oldest first')
    .action(() =>
      run(async (api) => {
        const { operators: all } = await api.call(operatorOperations.list);
        const stateOf = (one: Operator) => (one.disabled ? 'disabled' : one.invited ? 'invited' : 'active');
        const rows = all.map((one) => [
          one.operatorId,
          one.email,
          one.role,
          assistantsOf(one),
          stateOf(one),
          one.lastSignInAt,
        ]);
        const headings = ['OPERATOR', 'EMAIL', 'ROLE', 'ASSISTANTS', 'STATE', 'LAST SIGN-IN'];
        return { json: all, text: table(headings, rows, 'There are no operators yet.') };
      }),
    );

  operator
    .command('update <idOrEmail>')
    .description('Change an agent’s assistants, in effect at once; sessions continue')
    .requiredOption(...ASSISTANTS, assistantList)
    .addHelpText('after', example('operator update bo@example.com --assistants all'))
    .action((idOrEmail: string, { assistants }: { assistants: AssistantList }) =>
      run(async (api) => {
        const { operatorId: id } = await findByIdOrEmail(api, idOrEmail);
        const body = { assistantIds: idsIn(assistants) };
        const changed = await api.call(operatorOperations.update, { id, what: 'operator', body });
        const count = assistantsOf(changed);
        return { json: changed, text: `Operator ${changed.email} is changed; assistants: ${count}.` };
      }),
    );

  const change = (name: 'disable' | 'enable', description: string) =>
    operator
      .command(`${name} <idOrEmail>`)
      .description(description)
      .addHelpText('after', example(`operator ${name} bo@example.com`))
      .action((idOrEmail: string) =>
        run(async (api) => {
          const { operatorId: id } = await findByIdOrEmail(api, idOrEmail);
          const body = { disabled: name === 'disable' };
          const changed = await api.call(operatorOperations.update, { id, what: 'operator', body });
          return { json: changed, text: `Operator ${changed.email} is ${name}d.` };
        }),
      );
  change('disable', 'Disable an operator; every session ends at once');
  change('enable', 'Enable an operator again');
};
