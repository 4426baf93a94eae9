import { text as readAll } from 'node:stream/consumers';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { openOperators } from '../../src/operators/open.ts';
import { AssistantIds, Email, type Operator, Password } from '../../src/operators/operator.ts';
import { newPassword } from '../../src/operators/password.ts';
import { type Role, ROLES } from '../../src/operators/roles.ts';
import type { OperatorStore } from '../../src/operators/store.ts';
import { commaList, example, orNothingUnder } from './arguments.ts';
import { Failure, nothingUnder, usage } from './failure.ts';
import type { Opened, Run } from './session.ts';
import { table } from './text.ts';

const operatorsOf = async (opened: Opened) => (await openOperators(opened.mongo)).operators;

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

const toShown = ({ generation: _generation, hasPassword, ...operator }: Operator) => ({
  ...operator,
  invited: !hasPassword,
});

type AssistantList = 'all' | string[];

/** Not null for all of them: Commander takes a parser's null for no value. */
const assistantList = (value: string): AssistantList => {
  if (value.trim() === 'all') return 'all';
  const ids = AssistantIds.safeParse(commaList(value));
  if (!ids.success) throw new InvalidArgumentError('It must be assistant ids, separated by commas, or all.');
  return ids.data ?? 'all';
};

const idsIn = (list: AssistantList): string[] | null => (list === 'all' ? null : list);

const ASSISTANTS = [
  '--assistants <ids|all>',
  'what an agent is limited to: ids with commas between; "" is none',
] as const;

const assistantsOf = ({ role, assistantIds }: Pick<Operator, 'role' | 'assistantIds'>): string => {
  if (role === 'owner' || assistantIds === null) return 'all';
  return String(assistantIds.length);
};

const findByIdOrEmail = async (operators: OperatorStore, idOrEmail: string): Promise<Operator> => {
  const found = idOrEmail.includes('@')
    ? await operators.findByEmail(emailOf(idOrEmail))
    : await operators.findOperator(idOrEmail);
  if (!found) throw nothingUnder('operator', idOrEmail);
  return found;
};

type CreateOptions = { email: string; role: Role; assistants?: AssistantList; passwordStdin?: boolean };

export const addOperatorCommands = (program: Command, run: Run): void => {
  const operator = program.command('operator').description('People who can sign in to the dashboard');

  operator
    .command('create')
    .description('Create an operator; prints the password, only once, unless it was given')
    .requiredOption('--email <email>', 'to sign in with')
    .addOption(
      new Option('--role <role>', 'owner: everything; agent: inbox and playground').choices(ROLES).default('owner'),
    )
    .option(...ASSISTANTS, assistantList)
    .option('--password-stdin', 'read the password from standard input in place of making one')
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
      return run(async (opened) => {
        const operators = await operatorsOf(opened);
        const { operatorId } = await operators.createOperator({
          email,
          role,
          password,
          assistantIds: idsIn(assistants),
        });
        const shown = passwordStdin ? { operatorId, email } : { operatorId, email, password };
        const secret = passwordStdin ? '' : `\n${password}\nThe password is shown this once.`;
        return { json: shown, text: `Operator ${operatorId}, ${role}: ${email}${secret}` };
      });
    });

  operator
    .command('list')
    .description('List operators, oldest first')
    .action(() =>
      run(async (opened) => {
        const all = (await (await operatorsOf(opened)).listOperators()).map(toShown);
        const stateOf = (one: (typeof all)[number]) => (one.disabled ? 'disabled' : one.invited ? 'invited' : 'active');
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
      run(async (opened) => {
        const operators = await operatorsOf(opened);
        const { operatorId } = await findByIdOrEmail(operators, idOrEmail);
        const update = operators.updateOperator(operatorId, { assistantIds: idsIn(assistants) });
        const changed = await orNothingUnder('operator', operatorId, update);
        const count = assistantsOf(changed);
        return { json: toShown(changed), text: `Operator ${changed.email} is changed; assistants: ${count}.` };
      }),
    );

  const change = (name: 'disable' | 'enable', description: string) =>
    operator
      .command(`${name} <idOrEmail>`)
      .description(description)
      .addHelpText('after', example(`operator ${name} bo@example.com`))
      .action((idOrEmail: string) =>
        run(async (opened) => {
          const operators = await operatorsOf(opened);
          const { operatorId } = await findByIdOrEmail(operators, idOrEmail);
          const changed = await orNothingUnder(
            'operator',
            operatorId,
            operators.updateOperator(operatorId, { disabled: name === 'disable' }),
          );
          return { json: toShown(changed), text: `Operator ${changed.email} is ${name}d.` };
        }),
      );
  change('disable', 'Disable an operator; every session ends at once');
  change('enable', 'Enable an operator again');
};
