import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { adminJson, runAdmin, useAdmin } from '../support/admin.ts';
import { anAssistant, aTurn } from '../support/builders.ts';
import { anOperator, openOperatorClient, PASSWORD } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ env: { TRUST_PROXY: '1' }, deliveryWorkers: 0 });
const command = useAdmin(stack);

/** A client with its own address, so that tests do not share a rate limit. */
const aBrowser = () => openOperatorClient(stack.url, { 'X-Forwarded-For': `2001:db8:${randomUUID().slice(0, 4)}::1` });

type Line = { action: string; target: string | null; email: string; details: Record<string, unknown> };
type Link = { token: string; path: string; expiresAt: string; operator: { operatorId: string; invited: boolean } };

test('the session cookie works after signing in and not after signing out', async () => {
  const { email, operatorId } = await anOperator(stack);
  const browser = aBrowser();

  const stranger = await browser.get('/session');
  const signedIn = await browser.signIn(`  ${email.toUpperCase()} `);
  const flags = browser.lastSet();
  const me = await browser.get('/session');
  const cookie = browser.cookie();
  const out = await browser.call('DELETE', '/session');
  browser.setCookie(cookie);
  const after = await browser.get('/session');

  expect(problemOf(stranger)).toBe('401 not_signed_in');
  expect(signedIn.body).toMatchObject({ operatorId, email, role: 'owner' });
  expect(flags).toMatch(/^parley=[^;]+; Path=\/; Expires=[^;]+; HttpOnly; SameSite=Strict$/);
  expect(me.body).toEqual(signedIn.body);
  expect(me.headers.get('cache-control')).toBe('no-store');
  expect(out.status).toBe(204);
  expect(problemOf(after)).toBe('401 not_signed_in');
});

test('a session id planted before the sign-in is not signed in afterwards', async () => {
  const victim = await anOperator(stack, 'agent');
  const planted = victim.cookie();

  const again = await victim.signIn(victim.email);
  const own = victim.cookie();
  victim.setCookie(planted);
  const byPlanted = await victim.get('/session');
  victim.setCookie('parley=s%3Amade-up.signature');
  const byInvented = await victim.get('/session');

  expect(again.status).toBe(200);
  expect(own).not.toBe(planted);
  expect([problemOf(byPlanted), problemOf(byInvented)]).toEqual(['401 not_signed_in', '401 not_signed_in']);
});

test.each([
  ['another origin', { Origin: 'https://evil.example', 'Sec-Fetch-Site': 'cross-site' }],
  ['another origin, from an old browser', { Origin: 'https://evil.example', 'Sec-Fetch-Site': 'same-origin' }],
  ['a sibling of ours', { 'Sec-Fetch-Site': 'same-site' }],
  ['a page without an origin', { Origin: 'null' }],
])('a change from %s is refused, and nothing changes', async (_name, headers) => {
  const owner = await anOperator(stack);
  const email = `${randomUUID()}@example.com`;

  const refused = await owner.call('POST', '/operators', { email }, headers);
  const signIn = await aBrowser().call('POST', '/session', { email: owner.email, password: PASSWORD }, headers);

  expect([problemOf(refused), problemOf(signIn)]).toEqual(['403 forbidden', '403 forbidden']);
  expect(await stack.service.operators.findByEmail(email)).toBeNull();
});

test('a session ends 12 hours after its last use and 7 days after its sign-in', async () => {
  const [idle, old] = [await anOperator(stack), await anOperator(stack)];
  const sessions = stack.service.mongo.collection('operatorSessions');
  const before = await sessions.findOne<{ expires: Date }>({ 'session.operatorId': idle.operatorId });
  const lasts = Number(before?.expires) - Date.now();

  await sessions.updateOne({ 'session.operatorId': idle.operatorId }, { $set: { expires: new Date(Date.now() - 1) } });
  await sessions.updateOne(
    { 'session.operatorId': old.operatorId },
    { $set: { 'session.signedInAt': Date.now() - 7 * 86_400_000 - 1 } },
  );

  expect(lasts).toBeGreaterThan(11.9 * 3_600_000);
  expect(lasts).toBeLessThan(12.1 * 3_600_000);
  expect(problemOf(await idle.get('/session'))).toBe('401 not_signed_in');
  expect(problemOf(await old.get('/session'))).toBe('401 not_signed_in');
});

test('polling does not prolong the session, and a person’s requests do', async () => {
  const operator = await anOperator(stack);
  const sessions = stack.service.mongo.collection('operatorSessions');
  const mine = { 'session.operatorId': operator.operatorId };
  const soon = new Date(Date.now() + 60_000);
  await sessions.updateOne(mine, { $set: { expires: soon, lastModified: new Date(1) } });
  const expires = async () => (await sessions.findOne<{ expires: Date }>(mine))?.expires.getTime();

  const polled = await operator.call('GET', '/session', undefined, { 'X-Parley-Unattended': '1' });
  const afterPoll = [await expires(), operator.lastSet()];
  const board = await fetch(`${stack.url}/operator/queues/api/queues`, {
    headers: { Cookie: operator.cookie() ?? '' },
  });
  const afterBoard = [await expires(), board.headers.get('set-cookie')];
  const acted = await operator.get('/session');

  expect([polled.status, board.status, acted.status]).toEqual([200, 200, 200]);
  expect([afterPoll, afterBoard]).toEqual([
    [soon.getTime(), null],
    [soon.getTime(), null],
  ]);
  expect(Number(await expires()) - Date.now()).toBeGreaterThan(11.9 * 3_600_000);
  expect(operator.lastSet()).toContain('Expires=');
});

test('without a session the current session is null, and every other operation gives 401', async () => {
  const operator = await anOperator(stack);
  const stranger = aBrowser();
  await stack.service.operators.endSessions((await anOperator(stack)).operatorId);

  const answers = [await stranger.get('/session/current'), await operator.get('/session/current')];
  const me = await operator.get('/session');
  await stack.service.operators.endSessions(operator.operatorId);
  const ended = await operator.get('/session/current');

  expect(answers.map(({ status, body }) => [status, body])).toEqual([
    [200, { session: null }],
    [200, { session: me.body }],
  ]);
  expect([ended.status, ended.body]).toEqual([200, { session: null }]);
  expect(problemOf(await stranger.get('/session'))).toBe('401 not_signed_in');
});

test('an unknown email gets the same answer as a wrong password, in the same time', async () => {
  const { email } = await anOperator(stack);
  const timed = async (who: string) => {
    const since = performance.now();
    const { body } = await aBrowser().signIn(who, 'wrong');
    return { ms: performance.now() - since, message: (body as { error: { message: string } }).error.message };
  };

  const known: Awaited<ReturnType<typeof timed>>[] = [];
  const unknown: Awaited<ReturnType<typeof timed>>[] = [];
  // The two kinds of requests alternate, so that load on the machine affects both equally.
  for (const letter of sized({ everyday: 'abc', long: 'abcdefgh' })) {
    known.push(await timed(email));
    unknown.push(await timed(`${letter}@example.com`));
  }

  const fastest = (all: { ms: number }[]) => Math.min(...all.map(({ ms }) => ms));
  // Without a dummy hash, a request with an unknown email would take less than a tenth of the time.
  expect(fastest(unknown)).toBeGreaterThan(fastest(known) / 4);
  expect(new Set([...known, ...unknown].map(({ message }) => message)).size).toBe(1);
});

test('an invitation works once, and a disabled operator is refused at once', async () => {
  const owner = await anOperator(stack);
  const email = `${randomUUID()}@example.com`;

  const { status, body: link } = await owner.post<Link>('/operators', { email });
  const early = await aBrowser().signIn(email);
  const read = await aBrowser().post('/links/read', { token: link.token });
  const weak = await aBrowser().post('/links/use', { token: link.token, password: 'short' });
  const invited = aBrowser();
  const used = await invited.post('/links/use', { token: link.token, password: PASSWORD });
  const twice = await aBrowser().post('/links/use', { token: link.token, password: PASSWORD });
  const me = await invited.get('/session');
  await owner.call('PATCH', `/operators/${link.operator.operatorId}`, { disabled: true });
  const out = await invited.get('/session');
  const again = await aBrowser().signIn(email);

  expect([status, link.operator.invited, link.path]).toEqual([201, true, `/operator/welcome#${link.token}`]);
  expect(Date.parse(link.expiresAt) - Date.now()).toBeGreaterThan(6.9 * 86_400_000);
  expect(problemOf(early)).toBe('401 not_signed_in');
  expect(read.body).toEqual({ email, invited: true });
  expect(problemOf(weak)).toBe('422 validation_failed password');
  expect(used.body).toMatchObject({ email, role: 'agent' });
  expect(problemOf(twice)).toBe('404 not_found');
  expect(me.status).toBe(200);
  expect([problemOf(out), problemOf(again)]).toEqual(['401 not_signed_in', '401 not_signed_in']);
});

test('a new password or a reset link ends all other sessions', async () => {
  const owner = await anOperator(stack);
  const agent = await anOperator(stack, 'agent');
  const elsewhere = aBrowser();
  await elsewhere.signIn(agent.email);

  const wrong = await agent.call('PUT', '/session/password', { current: 'not mine at all', next: 'a new password' });
  const changed = await agent.call('PUT', '/session/password', { current: PASSWORD, next: 'a new password' });
  const [here, there] = [await agent.get('/session'), await elsewhere.get('/session')];
  const { body: link } = await owner.post<Link>(`/operators/${agent.operatorId}/link`);
  const reset = await elsewhere.post('/links/use', { token: link.token, password: 'one more password' });
  const after = await agent.get('/session');
  const everywhere = await elsewhere.call('DELETE', '/sessions');

  expect(problemOf(wrong)).toBe('422 validation_failed current');
  expect([changed.status, here.status]).toEqual([204, 200]);
  expect(problemOf(there)).toBe('401 not_signed_in');
  expect(reset.status).toBe(200);
  expect(problemOf(after)).toBe('401 not_signed_in');
  expect(everywhere.status).toBe(204);
  expect(problemOf(await elsewhere.get('/session'))).toBe('401 not_signed_in');
});

test('agents cannot read operators or the audit log, and the last owner cannot be removed', async () => {
  const agent = await anOperator(stack, 'agent');
  const { operators } = stack.service;
  const owner = await anOperator(stack);
  for (const { operatorId, role } of await operators.listOperators()) {
    if (role === 'owner' && operatorId !== owner.operatorId)
      await operators.updateOperator(operatorId, { disabled: true });
  }

  const seen = [
    await agent.get('/operators'),
    await agent.get('/audit'),
    await agent.post('/operators', { email: 'x' }),
  ];
  const own = `/operators/${owner.operatorId}`;
  const left = [await owner.call('PATCH', own, { disabled: true }), await owner.call('PATCH', own, { role: 'agent' })];

  expect(seen.map(problemOf)).toEqual(['403 forbidden', '403 forbidden', '403 forbidden']);
  expect(left.map(problemOf)).toEqual(Array.from({ length: 2 }, () => '422 validation_failed operatorId'));
  expect(problemOf(await owner.call('PATCH', '/operators/unknown', { disabled: false }))).toBe('404 not_found');
  expect(problemOf(await owner.call('PUT', '/operators', {}))).toBe('405 method_not_allowed');
});

test('every change has an audit line, and no secret is in the audit log, lists or logs', async () => {
  const owner = await anOperator(stack);
  const email = `${randomUUID()}@example.com`;
  const { body: link } = await owner.post<Link>('/operators', { email, role: 'owner' });
  const target = link.operator.operatorId;
  await owner.call('PATCH', `/operators/${target}`, { role: 'agent' });

  const { body: all } = await owner.get<{ lines: Line[] }>(`/audit?operatorId=${owner.operatorId}`);
  const { body: first } = await owner.get<{ lines: Line[]; nextCursor: string }>(`/audit?target=${target}&limit=1`);
  const { body: rest } = await owner.get<{ lines: Line[]; nextCursor: null }>(
    `/audit?target=${target}&limit=1&cursor=${first.nextCursor}`,
  );
  const lists = JSON.stringify([all, (await owner.get('/operators')).body]);

  expect(all.lines.map(({ action, email: who }) => [action, who])).toEqual([
    ['operator.update', owner.email],
    ['operator.invite', owner.email],
    ['session.begin', owner.email],
  ]);
  expect([first.lines[0], rest.lines[0]]).toMatchObject([
    { action: 'operator.update', target, details: { role: 'agent', disabled: false } },
    { action: 'operator.invite', target, details: { email, role: 'owner' } },
  ]);
  expect(rest.nextCursor).toBeNull();
  for (const secret of [link.token, PASSWORD, 'argon2', owner.cookie()?.slice(10, 40) ?? '?']) {
    expect(lists + JSON.stringify(stack.logs)).not.toContain(secret);
  }
  const stored = JSON.stringify(await stack.service.mongo.collection('operatorSessions').find().toArray());
  expect(stored).not.toContain(decodeURIComponent(owner.cookie() ?? '').slice(9, 41));
});

test('with TLS the cookie is Secure and __Host-, whatever headers the proxy sends', async () => {
  const { email } = await anOperator(stack);
  const { openApi } = await import('../../src/api.ts');
  const { readConfig } = await import('../../src/platform/process/config.ts');
  const { createLifecycle } = await import('../../src/platform/process/lifecycle.ts');
  const { createLogger } = await import('../../src/platform/process/logger.ts');
  const logger = createLogger({ name: 'test', level: 'silent' });
  const lifecycle = createLifecycle(logger, { deadlineMs: 5_000 });
  const config = readConfig({ ...stack.env, TLS_TERMINATED_UPSTREAM: 'true', PUBLIC_URL: 'https://chat.example' });
  const { port } = await openApi({ config, logger, lifecycle });
  const browser = openOperatorClient(`http://127.0.0.1:${port}`, { Origin: 'https://chat.example' });

  const { status } = await browser.signIn(email);

  expect(status).toBe(200);
  expect(browser.lastSet()).toMatch(/^__Host-parley=[^;]+; Path=\/; Expires=[^;]+; HttpOnly; Secure; SameSite=Strict$/);
  expect(browser.device()).toMatch(/^__Host-parley-device=[\w-]{22}\.[\w-]{43}$/);
  expect((await browser.get('/session')).status).toBe(200);
  await lifecycle.close();
});

test('the admin command creates, lists and disables operators, and resolves as the first owner', async () => {
  const email = `${randomUUID()}@example.com`;
  const made = await adminJson<{ operatorId: string; email: string; password: string }>(
    command,
    'operator',
    'create',
    '--email',
    email.toUpperCase(),
    '--role',
    'agent',
  );
  const browser = aBrowser();
  const signedIn = await browser.signIn(email, made.password);
  const taken = await runAdmin(command, ['operator', 'create', '--email', email, '--json']);
  const listed = await adminJson<{ email: string }[]>(command, 'operator', 'list');
  await adminJson(command, 'operator', 'disable', email);
  const out = await browser.get('/session');

  const { chat } = await anAssistant(stack);
  const { body } = await chat(aTurn());
  const resolved = await adminJson<{ resolvedBy: string }>(command, 'conversation', 'resolve', body.conversationId);

  expect(made).toEqual({ operatorId: expect.any(String), email, password: expect.stringMatching(/^[\w-]{20}$/) });
  expect(signedIn.body).toMatchObject({ operatorId: made.operatorId, role: 'agent' });
  expect([taken.status, taken.stderr]).toEqual([1, expect.stringContaining('already belongs to an operator')]);
  expect(listed).toContainEqual(expect.objectContaining({ email, role: 'agent', disabled: false, invited: false }));
  expect(JSON.stringify(listed)).not.toMatch(/argon2|passwordHash|link/);
  expect(problemOf(out)).toBe('401 not_signed_in');
  expect(resolved.resolvedBy).toBe((await stack.service.operators.findFirstOwner())?.operatorId);
});

test('the admin command changes an agent’s assistants, and sessions continue', async () => {
  const [first, second] = [await anAssistant(stack), await anAssistant(stack)];
  const ids = [first.assistantId, second.assistantId];
  const agent = ['--email', `${randomUUID()}@example.com`, '--role', 'agent'];
  type Shown = { operatorId: string; email: string; assistantIds: string[] | null };
  const create = (...more: string[]) => runAdmin(command, ['operator', 'create', ...agent, ...more, '--json']);

  const unknown = await create('--assistants', `${first.assistantId},${randomUUID()}`);
  const malformed = await create('--assistants', 'shop');
  const forOwner = await create('--role', 'owner', '--assistants', first.assistantId);
  const made = JSON.parse((await create('--assistants', ids.join(','))).stdout) as Link['operator'] & {
    password: string;
    email: string;
  };
  const browser = aBrowser();
  await browser.signIn(made.email, made.password);
  const seen = async () =>
    (await browser.get<{ assistants: { assistantId: string }[] }>('/session')).body.assistants.map(
      ({ assistantId }) => assistantId,
    );
  const two = await seen();
  const one = await adminJson<Shown>(command, 'operator', 'update', made.email, '--assistants', first.assistantId);
  const sawOne = await seen();
  const none = await adminJson<Shown>(command, 'operator', 'update', made.operatorId, '--assistants', '');
  const sawNone = await seen();
  const all = await adminJson<Shown>(command, 'operator', 'update', made.email, '--assistants', 'all');
  const listed = await runAdmin(command, ['operator', 'list']);

  for (const { status, stderr } of [unknown, forOwner]) {
    expect([status, stderr]).toEqual([1, expect.stringContaining('assistantIds')]);
  }
  expect([malformed.status, malformed.stderr]).toEqual([2, expect.stringContaining('--assistants')]);
  expect([two, sawOne, sawNone]).toEqual([ids, [first.assistantId], []]);
  expect([one.assistantIds, none.assistantIds, all.assistantIds]).toEqual([[first.assistantId], [], null]);
  expect(await seen()).toEqual(expect.arrayContaining(ids));
  expect(listed.stdout).toMatch(new RegExp(`${made.email} +agent +all +active`));
});

test('the session cookie comes before the device cookie', async () => {
  const { email } = await anOperator(stack);
  const { headers } = await openOperatorClient(stack.url).signIn(email);
  expect(headers.getSetCookie().map((cookie) => cookie.split('=')[0])).toEqual(['parley', 'parley-device']);
});

test('an agent can be disabled while no owner has a password, and the last owner cannot', async () => {
  const owner = await anOperator(stack);
  const agent = await anOperator(stack, 'agent');
  await stack.service.mongo
    .collection('operators')
    .updateMany({ role: 'owner', _id: { $ne: owner.operatorId as never } }, { $set: { disabled: true } });

  const own = await owner.call('PATCH', `/operators/${owner.operatorId}`, { disabled: true });
  await stack.service.mongo.collection('operators').updateMany({ role: 'owner' }, { $set: { passwordHash: null } });
  const disabled = await owner.call('PATCH', `/operators/${agent.operatorId}`, { disabled: true });

  expect(problemOf(own)).toBe('422 validation_failed operatorId');
  expect([disabled.status, disabled.body['disabled']]).toEqual([200, true]);
  expect(problemOf(await agent.get('/session'))).toBe('401 not_signed_in');
});
