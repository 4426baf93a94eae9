import { createHash } from 'node:crypto';
import type { Request, Response } from 'express';
import * as z from 'zod';
import type { RateLimiter } from '../assistants/rate-limit.ts';
import type { AssistantStore } from '../assistants/store.ts';
import { ApiError, invalid, notFound } from '../platform/errors.ts';
import { Email, type Operator, Password, PASSWORD_MAX, RoleName } from '../operators/operator.ts';
import { beginSession, endSession } from '../operators/session.ts';
import type { OperatorStore } from '../operators/store.ts';
import { type Handled, handled, operation } from './operation.ts';
import { uuid } from './wire.ts';

const tag = 'Operators';
const token = z.string().min(1).max(100);
/** Any length that could have been chosen: a wrong password is wrong, not malformed. */
const typed = z.string().min(1).max(PASSWORD_MAX);

const Me = z
  .object({
    operatorId: uuid,
    email: z.string(),
    role: RoleName,
    assistants: z
      .array(z.object({ assistantId: uuid, name: z.string() }))
      .meta({ description: 'All there are, by name: what inbox and playground choose from.' }),
  })
  .meta({ id: 'Me' });

export const sessionOperations = {
  signIn: operation({
    method: 'post',
    path: '/session',
    id: 'signIn',
    tag,
    summary: 'Sign in by email and password',
    audience: 'anyone',
    body: z.object({ email: Email, password: typed }),
    answer: Me,
    audit: 'session.begin',
    errors: ['not_signed_in', 'rate_limited'],
  }),
  me: operation({
    method: 'get',
    path: '/session',
    id: 'getSession',
    tag,
    summary: 'Who is signed in',
    audience: 'operators',
    answer: Me,
  }),
  signOut: operation({
    method: 'delete',
    path: '/session',
    id: 'signOut',
    tag,
    summary: 'Sign out of this browser',
    audience: 'operators',
    audit: 'session.end',
  }),
  signOutEverywhere: operation({
    method: 'delete',
    path: '/sessions',
    id: 'signOutEverywhere',
    tag,
    summary: 'End every session of mine, this one too',
    audience: 'operators',
    audit: 'session.end_all',
  }),
  changePassword: operation({
    method: 'put',
    path: '/session/password',
    id: 'changePassword',
    tag,
    summary: 'Change my password; my other sessions end',
    audience: 'operators',
    body: z.object({ current: typed, next: Password }),
    audit: 'operator.change_password',
    errors: ['rate_limited'],
  }),
  readLink: operation({
    method: 'post',
    path: '/links/read',
    id: 'readLink',
    tag,
    summary: 'Whose invitation or reset link this is',
    audience: 'anyone',
    body: z.object({ token }),
    answer: z.object({ email: z.string(), invited: z.boolean().meta({ description: 'True: no password yet.' }) }),
    errors: ['not_found', 'rate_limited'],
  }),
  useLink: operation({
    method: 'post',
    path: '/links/use',
    id: 'useLink',
    tag,
    summary: 'Choose a password by the link, once, and be signed in',
    audience: 'anyone',
    body: z.object({ token, password: Password }),
    answer: Me,
    audit: 'operator.use_link',
    errors: ['not_found', 'rate_limited'],
  }),
};

type Dependencies = { operators: OperatorStore; assistants: AssistantStore; rateLimiter: RateLimiter };

const wrong = (): ApiError => new ApiError('not_signed_in', { message: 'The email or the password is wrong.' });
const account = (email: string): string => `account:${createHash('sha256').update(email).digest('base64url')}`;
const address = (req: Request): string => `address:${req.ip ?? 'unknown'}`;

export const sessionRoutes = ({ operators, assistants, rateLimiter }: Dependencies): Handled[] => {
  const toMe = async ({ operatorId, email, role }: Operator): Promise<z.input<typeof Me>> => {
    const all = await assistants.listAssistants();
    return { operatorId, email, role, assistants: all.map(({ assistantId, name }) => ({ assistantId, name })) };
  };

  const letIn = async (operator: Operator, { req, res }: { req: Request; res: Response }) => {
    await beginSession(req, operator);
    res.locals.operator = operator;
    return toMe(operator);
  };

  /** Of both, so that neither many accounts from one place nor one account from many can be tried quickly. */
  const limited = async <Found>(subjects: string[], look: () => Promise<Found | null>): Promise<Found | null> => {
    for (const subject of subjects) await rateLimiter.forSignIn(subject);
    const found = await look();
    if (found) await Promise.all(subjects.map(rateLimiter.returnSignIn));
    return found;
  };

  return [
    handled(sessionOperations.signIn, async ({ body: { email, password }, req, res }) => {
      const subjects = [account(email), address(req)];
      const operator = await limited(subjects, () => operators.checkSignIn(email, password));
      if (!operator) throw wrong();
      return letIn(operator, { req, res });
    }),

    handled(sessionOperations.me, ({ operator }) => toMe(operator)),

    handled(sessionOperations.signOut, ({ req }) => endSession(req)),

    handled(sessionOperations.signOutEverywhere, async ({ operator, req }) => {
      await operators.endSessions(operator.operatorId);
      await endSession(req);
    }),

    handled(sessionOperations.changePassword, async ({ operator, body: { current, next }, req, note }) => {
      const { operatorId, email } = operator;
      const changed = await limited([account(email)], () => operators.changePassword(operatorId, current, next));
      if (!changed) throw invalid('current', 'wrong', 'is not your password');
      await beginSession(req, changed);
      note({ target: operatorId });
    }),

    handled(sessionOperations.readLink, async ({ body, req }) => {
      const operator = await limited([address(req)], () => operators.findByLink(body.token));
      if (!operator) throw notFound();
      return { email: operator.email, invited: !operator.hasPassword };
    }),

    handled(sessionOperations.useLink, async ({ body: { token: one, password }, req, res, note }) => {
      const operator = await limited([address(req)], () => operators.useLink(one, password));
      if (!operator) throw notFound();
      note({ target: operator.operatorId });
      return letIn(operator, { req, res });
    }),
  ];
};
