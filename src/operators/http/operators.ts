import * as z from 'zod';
import { cursor, wholeNumber } from '../../platform/process/validation.ts';
import { ACTORS, type Audit, AUDIT_DAYS } from '../audit.ts';
import { AssistantIds, Email, type Operator, RoleName } from '../operator.ts';
import { type Link, LINK_DAYS, type OperatorStore } from '../store.ts';
import { type OperatorToken, SCOPES, type TokenStore } from '../token.ts';
import { ApiError } from '../../platform/process/errors.ts';
import {
  definedFields,
  type Handled,
  handled,
  line,
  nextCursor,
  operation,
  time,
  timeCursor,
  uuid,
} from '../operation.ts';

/** Only people invite others and handle tokens, so that a stolen token cannot make its own replacement. */
const people = { audience: 'owners', resource: null, peopleOnly: true } as const;

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
    audience: 'owners',
    resource: null,
    method: 'get',
    path: '/operators',
    id: 'listOperators',
    summary: 'List operators',
    answer: z.object({ operators: z.array(OperatorView) }),
  }),
  invite: operation({
    ...people,
    method: 'post',
    path: '/operators',
    id: 'inviteOperator',
    summary: 'Invite an operator; returns a link to send them',
    body: z.object({ email: Email, role: RoleName.default('agent'), assistantIds: AssistantIds.default(null) }),
    status: 201,
    answer: LinkView,
    audit: 'operator.invite',
  }),
  update: operation({
    audience: 'owners',
    resource: null,
    method: 'patch',
    path: '/operators/:id',
    id: 'updateOperator',
    summary: 'Change a role or an agent’s assistants; disable (ends all sessions) or enable',
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
    ...people,
    method: 'post',
    path: '/operators/:id/link',
    id: 'makeOperatorLink',
    summary: 'Create a link for setting a new password',
    status: 201,
    answer: LinkView,
    audit: 'operator.make_link',
    errors: ['not_found'],
  }),
  endSessions: operation({
    audience: 'owners',
    resource: null,
    method: 'delete',
    path: '/operators/:id/sessions',
    id: 'endOperatorSessions',
    summary: 'Sign an operator out everywhere',
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

const TokenView = z
  .object({
    tokenId: uuid,
    name: z.string(),
    lastFour: z.string(),
    scope: z.enum(SCOPES),
    assistantIds: z.array(uuid).nullable().meta({ description: 'The assistants it is limited to. Null: everything.' }),
    createdBy: uuid.nullable().meta({ description: 'The owner who created it. Null: the admin command.' }),
    createdAt: time,
    lastUsedAt: time.nullable(),
    revokedAt: time.nullable(),
  })
  .meta({ id: 'OperatorToken' });

const NewTokenInput = z.object({
  name: line(100),
  scope: z.enum(SCOPES).default('read').meta({ description: '`read`: GET only. `manage`: changes too.' }),
  assistantIds: AssistantIds.default(null),
});

export const tokenOperations = {
  list: operation({
    ...people,
    method: 'get',
    path: '/tokens',
    id: 'listOperatorTokens',
    isLarge: true,
    summary: 'List operator tokens by their last four characters, newest first',
    answer: z.object({ tokens: z.array(TokenView) }),
  }),
  create: operation({
    ...people,
    method: 'post',
    path: '/tokens',
    id: 'createOperatorToken',
    summary: 'Create a token for a program; it is shown only once, and works while its creator is an owner',
    body: NewTokenInput,
    status: 201,
    answer: z
      .object({ token: TokenView, secret: z.string().meta({ description: 'The full token, shown only once.' }) })
      .meta({ id: 'NewOperatorToken' }),
    audit: 'token.create',
  }),
  revoke: operation({
    ...people,
    method: 'post',
    path: '/tokens/:id/revoke',
    id: 'revokeOperatorToken',
    summary: 'Revoke a token at once, for good',
    answer: TokenView,
    audit: 'token.revoke',
    errors: ['not_found'],
  }),
};

/** The audit line of a new token. The admin command writes the same line. */
export const noteOfToken = ({ tokenId, name, scope, lastFour, assistantIds }: OperatorToken) => ({
  target: tokenId,
  details: { name, scope, lastFour, assistants: assistantIds?.join(', ') ?? 'all' },
});

export const tokenRoutes = ({ tokens }: { tokens: TokenStore }): Handled[] => [
  handled(tokenOperations.list, async () => ({ tokens: await tokens.listTokens() })),

  handled(tokenOperations.create, async ({ body, operator, note }) => {
    const made = await tokens.createToken({ ...body, createdBy: operator.operatorId });
    note(noteOfToken(made.token));
    return made;
  }),

  handled(tokenOperations.revoke, async ({ params: { id = '' }, note }) => {
    const revoked = await tokens.revokeToken(id);
    note({ target: id, details: { name: revoked.name } });
    return revoked;
  }),
];

const LINES = 50;

const AuditLineView = z
  .object({
    auditId: uuid,
    at: time,
    actor: z.enum(ACTORS).meta({ description: 'An operator, an operator token, or the admin command.' }),
    operatorId: uuid.meta({ description: 'The id of the operator or token. Zeros for the admin command.' }),
    email: z.string().meta({ description: 'The email at that time, or the name of the token.' }),
    action: z.string(),
    target: z.string().nullable().meta({ description: 'The id of what was changed.' }),
    details: z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.null()])),
    requestId: z.string(),
  })
  .meta({ id: 'AuditLine' });

export const auditOperations = {
  list: operation({
    method: 'get',
    path: '/audit',
    id: 'listAudit',
    isLarge: true,
    summary: `List the audit trail, newest first; kept for ${AUDIT_DAYS} days`,
    audience: 'owners',
    resource: null,
    query: z.object({
      operatorId: uuid.optional(),
      action: z.string().max(100).optional(),
      target: z.string().max(200).optional(),
      limit: wholeNumber(1, 200).optional(),
      cursor: cursor.optional(),
    }),
    answer: z.object({ lines: z.array(AuditLineView), nextCursor }),
  }),
};

export const auditRoutes = ({ audit }: { audit: Audit }): Handled[] => [
  handled(auditOperations.list, async ({ query: { cursor: from, limit = LINES, ...exact } }) => {
    const { lines, next } = await audit.list({
      ...definedFields(exact),
      limit,
      ...(from !== undefined && { after: timeCursor.decode(from) }),
    });
    return { lines, nextCursor: next && timeCursor.encode(next) };
  }),
];
