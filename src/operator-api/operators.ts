import * as z from 'zod';
import { AssistantIds, Email, type Operator, RoleName } from '../operators/operator.ts';
import { type Link, LINK_DAYS, type OperatorStore } from '../operators/store.ts';
import { ApiError } from '../process/errors.ts';
import { type Handled, handled, operation } from './operation.ts';
import { time, uuid } from './wire.ts';

const tag = 'Operators';
const audience = 'owners';

const OperatorView = z
  .object({
    operatorId: uuid,
    email: z.string(),
    role: RoleName,
    disabled: z.boolean(),
    assistantIds: AssistantIds,
    invited: z.boolean().meta({ description: 'True: no password set yet.' }),
    createdAt: time,
    lastSignInAt: time.nullable(),
  })
  .meta({ id: 'Operator' });

const LinkView = z
  .object({
    operator: OperatorView,
    token: z.string(),
    path: z.string().meta({ description: 'The page to send to the person; the token follows the #.' }),
    expiresAt: time,
  })
  .meta({ id: 'OperatorLink', description: `Shown only once; works once within ${LINK_DAYS} days.` });

export const operatorOperations = {
  list: operation({
    method: 'get',
    path: '/operators',
    id: 'listOperators',
    tag,
    summary: 'List operators',
    audience,
    resource: null,
    answer: z.object({ operators: z.array(OperatorView) }),
  }),
  invite: operation({
    method: 'post',
    path: '/operators',
    id: 'inviteOperator',
    tag,
    summary: 'Invite an operator; returns a link to send them',
    audience,
    resource: null,
    peopleOnly: true,
    body: z.object({ email: Email, role: RoleName.default('agent'), assistantIds: AssistantIds.default(null) }),
    status: 201,
    answer: LinkView,
    audit: 'operator.invite',
  }),
  update: operation({
    method: 'patch',
    path: '/operators/:id',
    id: 'updateOperator',
    tag,
    summary: 'Change a role or an agent’s assistants; disable (ends all sessions) or enable',
    audience,
    resource: null,
    body: z.object({
      role: RoleName.optional(),
      disabled: z.boolean().optional(),
      assistantIds: AssistantIds.optional(),
    }),
    answer: OperatorView,
    audit: 'operator.update',
    errors: ['not_found'],
  }),
  resetLink: operation({
    method: 'post',
    path: '/operators/:id/link',
    id: 'makeOperatorLink',
    tag,
    summary: 'Create a link for setting a new password',
    audience,
    resource: null,
    peopleOnly: true,
    status: 201,
    answer: LinkView,
    audit: 'operator.make_link',
    errors: ['not_found'],
  }),
  endSessions: operation({
    method: 'delete',
    path: '/operators/:id/sessions',
    id: 'endOperatorSessions',
    tag,
    summary: 'Sign an operator out everywhere',
    audience,
    resource: null,
    audit: 'operator.end_sessions',
    errors: ['not_found'],
  }),
};

const toView = ({ generation: _generation, hasPassword, ...operator }: Operator): z.input<typeof OperatorView> => ({
  ...operator,
  invited: !hasPassword,
});

const namedIn = ({ assistantIds }: Operator): string => assistantIds?.join(', ') ?? 'all';

const toLinkView = ({ operator, token, expiresAt }: Link): z.input<typeof LinkView> => ({
  operator: toView(operator),
  token,
  path: `/operator/welcome#${token}`,
  expiresAt,
});

export const operatorRoutes = ({ operators }: { operators: OperatorStore }): Handled[] => [
  handled(operatorOperations.list, async () => ({ operators: (await operators.listOperators()).map(toView) })),

  handled(operatorOperations.invite, async ({ body, note }) => {
    const link = await operators.invite(body);
    const { operatorId, email, role } = link.operator;
    note({ target: operatorId, details: { email, role, assistants: namedIn(link.operator) } });
    return toLinkView(link);
  }),

  handled(operatorOperations.update, async ({ params: { id = '' }, body, operator, note }) => {
    if (operator.token && body.role !== undefined) {
      throw new ApiError('forbidden', { message: 'Operator tokens cannot change a role. Sign in instead.' });
    }
    const changed = await operators.updateOperator(id, body);
    const { role, disabled } = changed;
    note({ target: id, details: { role, disabled, assistants: namedIn(changed) } });
    return toView(changed);
  }),

  handled(operatorOperations.resetLink, async ({ params: { id = '' } }) => toLinkView(await operators.makeLink(id))),

  handled(operatorOperations.endSessions, async ({ params: { id = '' } }) => {
    await operators.endSessions(id);
  }),
];
