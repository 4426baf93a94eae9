import { randomUUID } from 'node:crypto';
import { verify } from '@node-rs/argon2';
import { expect, test } from 'vitest';
import { networkOf } from '../../src/platform/http/shares.ts';
import { createSignInLimits } from '../../src/operators/session.ts';
import { limiterOf } from '../support/limits.ts';
import { openOperatorClient, PASSWORD } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ env: { TRUST_PROXY: '1' }, apis: 2, replyWorkers: 0, deliveryWorkers: 0 });

const OWN = 5;
const SHARED = 20;
const BLOCK = 100;

let networks = 0;
/** An address that no other test uses. */
const newAddress = (): string => {
  networks += 1;
  return `10.${(networks >> 16) & 255}.${(networks >> 8) & 255}.${networks & 255}`;
};
const aBrowser = (address = newAddress()) =>
  openOperatorClient(stack.urls[networks % 2] ?? '', { 'X-Forwarded-For': address });

const anAccount = async () => {
  const email = `${randomUUID()}@example.com`;
  const { operatorId } = await stack.service.operators.createOperator({ email, role: 'agent', password: PASSWORD });
  return { email, operatorId };
};

const times = (count: number) => Array.from({ length: count });
const tries = async (count: number, attempt: () => Promise<Parameters<typeof problemOf>[0]>): Promise<string[]> => {
  const answers: string[] = [];
  for (const _ of times(count)) answers.push(problemOf(await attempt()));
  return answers;
};
/** Each wrong password costs a hash, so every day only the last of many are sent, and the others are only counted. */
const SENT = sized({ everyday: 2, long: Number.POSITIVE_INFINITY });
type Guess = { email: string; address?: string };
/** Signs in with wrong passwords from unknown devices. */
const guesses = async (count: number, next: () => Guess): Promise<string[]> => {
  const { limited, byStranger } = createSignInLimits(limiterOf(stack));
  const counted = Math.max(0, count - SENT);
  for (const _ of times(counted)) {
    const { email, address = newAddress() } = next();
    await limited(byStranger(address, email), async () => null);
  }
  const sent = await tries(count - counted, () => {
    const { email, address } = next();
    return aBrowser(address).signIn(email, 'wrong');
  });
  return [...wrongThenRefused(counted, 0), ...sent];
};
const anyEmail = (): string => `${randomUUID()}@example.com`;

const wrongThenRefused = (wrong: number, refused: number) => [
  ...times(wrong).map(() => '401 not_signed_in'),
  ...times(refused).map(() => '429 rate_limited'),
];

/** Signs in with wrong passwords until unknown devices are blocked from this account. */
const lockOut = async (email: string): Promise<void> => {
  const answers = await guesses(SHARED + 1, () => ({ email }));
  expect(answers).toEqual(wrongThenRefused(SHARED, 1));
};

test('wrong passwords a minute: five for an account from one address, twenty from an address, twenty for an account', async () => {
  const { email } = await anAccount();
  const [one, address] = [aBrowser(), newAddress()];

  const onOne = await tries(OWN + 2, () => one.signIn(email, 'wrong'));
  const right = await one.signIn(email);
  const atAddress = await guesses(SHARED + 2, () => ({ email: anyEmail(), address }));
  const { email: another } = await anAccount();
  const fromAnywhere = await guesses(SHARED + 2, () => ({ email: another }));

  expect(onOne).toEqual(wrongThenRefused(OWN, 2));
  expect(problemOf(right)).toBe('429 rate_limited');
  expect(atAddress).toEqual(wrongThenRefused(SHARED, 2));
  expect(fromAnywhere).toEqual(wrongThenRefused(SHARED, 2));
});

test('one address blocks only itself, however long and with however many accounts it tries', async () => {
  const accounts = await Promise.all(times(sized({ everyday: 2, long: 4 })).map(anAccount));
  const attacker = aBrowser();

  for (const { email } of accounts) await Promise.all(times(40).map(() => attacker.signIn(email, 'wrong')));
  const byAttacker = await attacker.signIn(accounts.at(-1)?.email ?? '');
  const elsewhere = await Promise.all(accounts.map(({ email }) => aBrowser().signIn(email)));

  expect(problemOf(byAttacker)).toBe('429 rate_limited');
  expect(elsewhere.map(({ status }) => status)).toEqual(accounts.map(() => 200));
});

test('a refusal by the address limit does not count for the account, and the reverse', async () => {
  const [first, second] = [await anAccount(), await anAccount()];
  const address = newAddress();
  const attacker = aBrowser(address);

  // Five of these tries count for the account and for the address. The rest are refused by the limit for this account
  // from this address, so they count for neither.
  await tries(30, () => attacker.signIn(first.email, 'wrong'));
  const others = await guesses(SHARED - OWN + 1, () => first);
  const rest = await guesses(SHARED - OWN + 1, () => ({ email: anyEmail(), address }));
  // The address has reached its limit, so none of these tries may count for the second account.
  await tries(10, () => attacker.signIn(second.email, 'wrong'));
  const onSecond = await guesses(SHARED + 1, () => second);

  expect(others).toEqual(wrongThenRefused(SHARED - OWN, 1));
  expect(rest).toEqual(wrongThenRefused(SHARED - OWN, 1));
  expect(onSecond).toEqual(wrongThenRefused(SHARED, 1));
});

test('a known device signs in with the right password while all unknown devices are refused', async () => {
  const { email } = await anAccount();
  const address = newAddress();
  const known = aBrowser(address);
  await known.signIn(email);
  await known.call('DELETE', '/session');

  await lockOut(email);
  await guesses(SHARED, () => ({ email: anyEmail(), address }));
  const stranger = await aBrowser().signIn(email);
  const neighbour = await aBrowser(address).signIn(email);
  const byKnown = await known.signIn(email);
  const moved = aBrowser();
  moved.setDevice(known.device());
  const byMoved = await moved.signIn(email);

  expect([stranger, neighbour].map(problemOf)).toEqual(['429 rate_limited', '429 rate_limited']);
  expect([byKnown.status, byMoved.status]).toEqual([200, 200]);
});

test('a known device has its own five wrong passwords, and signing in does not reset them', async () => {
  const { email } = await anAccount();
  const [known, other] = [aBrowser(), aBrowser()];
  await known.signIn(email);
  await other.signIn(email);

  const before = await tries(3, () => known.signIn(email, 'wrong'));
  const right = await known.signIn(email);
  const after = await tries(4, () => known.signIn(email, 'wrong'));
  const byOther = await other.signIn(email);

  expect([...before, ...after]).toEqual(wrongThenRefused(OWN, 2));
  expect([right.status, byOther.status]).toEqual([200, 200]);
});

test('only the account’s device is known, not an invented one, one of another account or one of an older password', async () => {
  const { email } = await anAccount();
  const stranger = await anAccount();
  const [mine, theirs] = [aBrowser(), aBrowser()];
  await mine.signIn(email);
  await theirs.signIn(stranger.email);
  const old = mine.device() ?? '';
  await mine.call('PUT', '/session/password', { current: PASSWORD, next: 'another password' });
  const renewed = mine.device() ?? '';
  await lockOut(email);

  const tried: Record<string, string | null> = {
    none: null,
    old,
    theirs: theirs.device(),
    garbage: 'parley-device=x',
    altered: renewed.replace(/\.[\w-]{4}/, '.AAAA'),
    moved: renewed.replace(/=[\w-]{22}/, `=${'A'.repeat(22)}`),
  };
  const answers: Record<string, number> = {};
  for (const [name, device] of Object.entries(tried)) {
    const browser = aBrowser();
    browser.setDevice(device);
    answers[name] = (await browser.signIn(email, 'another password')).status;
  }
  const known = await mine.signIn(email, 'another password');

  expect(answers).toEqual({ none: 429, old: 429, theirs: 429, garbage: 429, altered: 429, moved: 429 });
  expect(known.status).toBe(200);
  expect(old.split('.')[0]).not.toBe(renewed.split('.')[0]);
});

test('one browser can be a known device of several accounts', async () => {
  const [first, second] = [await anAccount(), await anAccount()];
  const shared = aBrowser();
  await shared.signIn(first.email);
  await shared.signIn(second.email);
  await lockOut(first.email);
  await lockOut(second.email);

  const answers = [await shared.signIn(first.email), await shared.signIn(second.email)];

  expect(answers.map(({ status }) => status)).toEqual([200, 200]);
});

test('the device cookie is permanent, and no script and no other site can read it', async () => {
  const { email } = await anAccount();
  const response = await fetch(`${stack.url}/operator/v1/session`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', 'X-Forwarded-For': newAddress() },
    body: JSON.stringify({ email, password: PASSWORD }),
  });

  const device = response.headers.getSetCookie().find((one) => one.startsWith('parley-device='));

  expect(device).toMatch(
    /^parley-device=[\w-]{22}\.[\w-]{43}; Max-Age=15552000; Path=\/; Expires=[^;]+; HttpOnly; SameSite=Strict$/,
  );
});

test('of fifty guesses at once, five are tried', async () => {
  const { email } = await anAccount();
  const address = newAddress();

  const answers = await Promise.all(times(50).map(() => aBrowser(address).signIn(email, 'wrong')));

  const count = (status: number) => answers.filter((one) => one.status === status).length;
  expect([count(401), count(429)]).toEqual([OWN, 45]);
});

test('an account that does not exist is counted and refused like one that does', async () => {
  const known = await anAccount();
  const told = async (email: string) => {
    const [here, seen] = [aBrowser(), [] as unknown[]];
    for (const _ of times(OWN + 1)) {
      const { status, headers, body } = await here.signIn(email, 'wrong');
      const { requestId: _id, ...error } = (body as { error: { requestId: string } }).error;
      const names = [...headers.keys()].filter((name) => !['date', 'x-request-id'].includes(name)).toSorted();
      seen.push({ status, error, names, limit: headers.get('x-ratelimit-limit') });
    }
    return [...seen, ...(await guesses(SHARED - OWN + 1, () => ({ email })))];
  };

  expect(await told(known.email)).toEqual(await told(`${randomUUID()}@example.com`));
});

test('wrong passwords from unknown devices or another session do not stop a signed-in person from changing the password', async () => {
  const { email } = await anAccount();
  const [stolen, own] = [aBrowser(), aBrowser()];
  await stolen.signIn(email);
  await own.signIn(email);
  await lockOut(email);

  const refused = await tries(OWN + 1, () =>
    stolen.call('PUT', '/session/password', { current: 'a wrong guess', next: 'a password of mine' }),
  );
  const changed = await own.call('PUT', '/session/password', { current: PASSWORD, next: 'a password of mine' });

  expect(refused).toEqual([...times(OWN).map(() => '422 validation_failed current'), '429 rate_limited']);
  expect(changed.status).toBe(204);
});

test('all addresses of an IPv6 subscriber count as one', async () => {
  const { email } = await anAccount();
  const answers: string[] = [];
  for (const [index] of times(OWN + 1).entries()) {
    answers.push(problemOf(await aBrowser(`2001:db8:7:7:${index + 1}::${index}`).signIn(email, 'wrong')));
  }

  expect(answers).toEqual(wrongThenRefused(OWN, 1));
  expect(
    ['2001:db8:7:7::1', '2001:DB8:7:7:ffff:1:2:3', '::1', '2001:db8::', '::ffff:192.0.2.7', '192.0.2.7', 'unknown'].map(
      networkOf,
    ),
  ).toEqual([
    '2001:db8:7:7::/64',
    '2001:db8:7:7::/64',
    '0:0:0:0::/64',
    '2001:db8:0:0::/64',
    '192.0.2.7',
    '192.0.2.7',
    'unknown',
  ]);
});

test('the networks of an IPv6 customer have a limit together, and another customer does not notice', async () => {
  const { limited, byAddress } = createSignInLimits(limiterOf(stack));
  const read = (address: string) => aBrowser(address).call('POST', '/links/read', { token: 'x'.repeat(43) });
  for (const [index] of times(BLOCK - 1).entries()) {
    await limited(byAddress(`2001:db8:8:${index.toString(16)}::1`), async () => null);
  }

  expect([problemOf(await read('2001:db8:8:fffe::1')), problemOf(await read('2001:db8:8:ffff::1'))]).toEqual([
    '404 not_found',
    '429 rate_limited',
  ]);
  expect(problemOf(await read('2001:db8:9:ffff::1'))).toBe('404 not_found');
  expect(problemOf(await read('192.0.2.8'))).toBe('404 not_found');
});

test('callers take turns with the passwords that are compared', async () => {
  const address = newAddress();
  const order: string[] = [];
  const signIn = async (name: string, from: string): Promise<void> => {
    const { status } = await openOperatorClient(stack.url, { 'X-Forwarded-For': from }).signIn(anyEmail(), 'wrong');
    order.push(`${name} ${status}`);
  };

  const others = times(SHARED).map(() => signIn('other', address));
  await Promise.race(others); // the neighbour now finds an open connection, and does not wait in line to be accepted
  await Promise.all([...others, signIn('neighbour', newAddress())]);

  expect(order.indexOf('neighbour 401')).toBeLessThan(SHARED / 2);
  expect(order).toHaveLength(SHARED + 1);
});

test('after each password that is compared, its caller rests as long as that took', async () => {
  const { email } = await anAccount();
  const { passwordHash } = (await stack.service.operators.findAccount(email)) ?? {};
  const compared: number[] = [];
  for (const _ of times(OWN)) {
    const since = performance.now();
    await verify(passwordHash ?? '', 'wrong');
    compared.push(performance.now() - since);
  }
  const one = aBrowser();

  const begun = performance.now();
  const answers = await Promise.all(times(OWN).map(() => one.signIn(email, 'wrong')));

  const rests = OWN - 1;
  expect(performance.now() - begun).toBeGreaterThan((OWN + rests) * Math.min(...compared));
  expect(answers.map(problemOf)).toEqual(wrongThenRefused(OWN, 0));
});
