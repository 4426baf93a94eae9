import * as z from 'zod';
import { AssistantIds } from '../operators/operator.ts';
import { type OperatorToken, SCOPES, type TokenStore } from '../operators/token.ts';
import { type Handled, handled, operation } from './operation.ts';
import { line, time, uuid } from './wire.ts';

/**
 * Operations on tokens. Operator tokens cannot create, list or revoke tokens, so that a stolen token cannot make its
 * own replacement.
 */
const people = { tag: 'Operators', audience: 'owners', resource: null, peopleOnly: true } as const;

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
