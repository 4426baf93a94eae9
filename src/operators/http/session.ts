import * as z from 'zod';
import type { Request, Response } from 'express';
import type { AssistantStore } from '../../assistants/store.ts';
import { blockOf } from '../../platform/http/shares.ts';
import { ApiError, invalid, notFound } from '../../platform/process/errors.ts';
import type { OperatorAccess } from '../access.ts';
import { beginSession, type Devices, endSession, type SignInLimits } from '../session.ts';
import type { OrUnavailable } from '../../platform/mongo/silence.ts';
import { assistantIdsOf, Email, type Operator, Password, PASSWORD_MAX, RoleName } from '../operator.ts';
import type { OperatorStore } from '../store.ts';
import type { OperatorCaller } from '../token.ts';
import { type Handled, handled, operation, uuid } from '../operation.ts';

const person = { audience: 'operators', resource: null, peopleOnly: true } as const;
const token = z.string().min(1).max(100);
/** A password of any possible length, so that a wrong password gives 401 and never 422. */
const anyPassword = z.string().min(1).max(PASSWORD_MAX);

const Me = z
  .object({
    operatorId: uuid,
    email: z.string(),
    role: RoleName,
    assistants: z
      .array(z.object({ assistantId: uuid, name: z.string() }))
      .meta({ description: 'This operator’s assistants, by name.' }),
  })
  .meta({ id: 'Me' });

export const sessionOperations = {
  signIn: operation({
    method: 'post',
    path: '/session',
    id: 'signIn',
    summary: 'Sign in with email and password',
    audience: 'anyone',
    body: z.object({ email: Email, password: anyPassword }),
    answer: Me,
    audit: 'session.begin',
    errors: ['not_signed_in', 'rate_limited'],
  }),
  me: operation({
    ...person,
    method: 'get',
    path: '/session',
    id: 'getSession',
    summary: 'Read the session',
    answer: Me,
  }),
  current: operation({
    method: 'get',
    path: '/session/current',
    id: 'lookForSession',
    summary: 'Read the session, or null if nobody is signed in',
    audience: 'anyone',
    answer: z.object({ session: Me.nullable() }),
  }),
  signOut: operation({
    ...person,
    method: 'delete',
    path: '/session',
    id: 'signOut',
    summary: 'Sign out of this browser',
    audit: 'session.end',
  }),
  signOutEverywhere: operation({
    ...person,
    method: 'delete',
    path: '/sessions',
    id: 'signOutEverywhere',
    summary: 'Sign out of all browsers',
    audit: 'session.end_all',
  }),
  changePassword: operation({
    ...person,
    method: 'put',
    path: '/session/password',
    id: 'changePassword',
    summary: 'Change your password; your other sessions end',
    body: z.object({ current: anyPassword, next: Password }),
    audit: 'operator.change_password',
    errors: ['rate_limited'],
  }),
  readLink: operation({
    method: 'post',
    path: '/links/read',
    id: 'readLink',
    summary: 'Read whose invitation or reset link this is',
    audience: 'anyone',
    body: z.object({ token }),
    answer: z.object({ email: z.string(), invited: z.boolean().meta({ description: 'True: no password yet.' }) }),
    errors: ['not_found', 'rate_limited'],
  }),
  useLink: operation({
    method: 'post',
    path: '/links/use',
    id: 'useLink',
    summary: 'Set a password with the link, once, and sign in',
    audience: 'anyone',
    body: z.object({ token, password: Password }),
    answer: Me,
    audit: 'operator.use_link',
    errors: ['not_found', 'rate_limited'],
  }),
};

type Dependencies = {
  access: Pick<OperatorAccess, 'findSignedIn'>;
  operators: OperatorStore;
  assistants: Pick<AssistantStore, 'listNames'>;
  devices: Devices;
  limits: SignInLimits;
  orUnavailable: OrUnavailable;
};

const wrongCredentials = (): ApiError =>
  new ApiError('not_signed_in', { message: 'The email or the password is wrong.' });
const addressOf = (req: Request): string => req.ip ?? 'unknown';

export const sessionRoutes = (dependencies: Dependencies): Handled[] => {
  const { access, operators, assistants, devices, limits, orUnavailable } = dependencies;
  const toMe = async (operator: Operator): Promise<z.input<typeof Me>> => {
    const { operatorId, email, role } = operator;
    return { operatorId, email, role, assistants: await assistants.listNames(assistantIdsOf(operator)) };
  };

  /** Starts a session and remembers the device. */
  const startSession = async (operator: Operator, { req, res }: { req: Request; res: Response }) => {
    await beginSession(req, operator);
    const account = await operators.findAccount(operator.email);
    if (account) devices.remember(req, res, account);
  };

  const completeSignIn = async (operator: Operator, { req, res }: { req: Request; res: Response }) => {
    await startSession(operator, { req, res });
    res.locals.operator = { ...operator, token: null } satisfies OperatorCaller;
    return toMe(operator);
  };

  const subjectsOf = async (email: string, req: Request) => {
    // The account is looked up only for requests with a device cookie. So nobody without such a cookie learns from the
    // response time whether the account exists.
    const account = devices.hasAny(req) ? await operators.findAccount(email) : null;
    const deviceId = account && devices.idFor(req, account);
    return deviceId ? limits.byDevice(deviceId) : limits.byStranger(addressOf(req), email);
  };

  return [
    handled(sessionOperations.signIn, async ({ body: { email, password }, req, res }) => {
      const subjects = await orUnavailable(subjectsOf(email, req));
      const check = () => orUnavailable(operators.checkSignIn(email, password, blockOf(addressOf(req))));
      const operator = await limits.limited(subjects, check);
      if (!operator) throw wrongCredentials();
      return completeSignIn(operator, { req, res });
    }),

    handled(sessionOperations.me, ({ operator }) => toMe(operator)),

    handled(sessionOperations.current, async ({ req, res }) => {
      const operator = await access.findSignedIn(req, res);
      return { session: operator && (await toMe(operator)) };
    }),

    handled(sessionOperations.signOut, ({ req }) => endSession(req)),

    handled(sessionOperations.signOutEverywhere, async ({ operator, req }) => {
      await operators.endSessions(operator.operatorId);
      await endSession(req);
    }),

    handled(sessionOperations.changePassword, async ({ operator, body: { current, next }, req, res, note }) => {
      const { operatorId } = operator;
      const change = () => operators.changePassword(operatorId, current, next);
      const changed = await limits.limited(limits.bySession(req.sessionID), change);
      if (!changed) throw invalid('current', 'wrong', 'is not your password');
      await startSession(changed, { req, res });
      note({ target: operatorId });
    }),

    handled(sessionOperations.readLink, async ({ body, req }) => {
      const operator = await limits.limited(limits.byAddress(addressOf(req)), () =>
        orUnavailable(operators.findByLink(body.token)),
      );
      if (!operator) throw notFound();
      return { email: operator.email, invited: !operator.hasPassword };
    }),

    handled(sessionOperations.useLink, async ({ body: { token: one, password }, req, res, note }) => {
      const ip = addressOf(req);
      const use = () => operators.useLink(one, password, blockOf(ip));
      const operator = await limits.limited(limits.byAddress(ip), use);
      if (!operator) throw notFound();
      note({ target: operator.operatorId });
      return completeSignIn(operator, { req, res });
    }),
  ];
};
