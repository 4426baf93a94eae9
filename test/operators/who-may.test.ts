import { randomUUID } from 'node:crypto';
import { beforeAll, expect, test } from 'vitest';
import type { Operation } from '../../src/operators/operation.ts';
import { OPERATIONS } from '../../src/api/operator-routes.ts';
import { request } from '../support/builders.ts';
import { anInhabited, type Inhabited, pathIn } from '../support/inhabited.ts';
import { anOperator } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

// Every operation, every kind of caller, every kind of object. What is expected follows from the operation's declaration
// alone, so a new operation is tried too.

const stack = useStack({ deliveryWorkers: 0, env: { TRUST_PROXY: '1' } });

type Call = (method: string, path: string, body?: unknown) => ReturnType<typeof request>;
type Caller = {
  name: string;
  call: Call;
  /** What it is told of an operation on an object of an assistant that is not its own. */
  refusal: (one: Operation) => string;
  /** Whether it may read the objects of its own assistant with this operation. */
  mayRead: (one: Operation) => boolean;
};

let owner: Awaited<ReturnType<typeof anOperator>>;
let mine: Inhabited;
let theirs: Inhabited;
let callers: Caller[];

/** Each call comes from a network of its own, because calls without access are limited by network. */
let network = 0;
const fromElsewhere = (): Record<string, string> => {
  network += 1;
  return { 'X-Forwarded-For': `10.${network >> 16}.${(network >> 8) & 255}.${network & 255}` };
};

const byBearer =
  (bearer?: string): Call =>
  (method, path, body) =>
    request(`${stack.url}/operator/v1${path}`, {
      method,
      headers: fromElsewhere(),
      ...(bearer && { bearer }),
      ...(body !== undefined && { body }),
    });

const aToken = async (scope: 'read' | 'manage'): Promise<string> => {
  const body = { name: 'a program', scope, assistantIds: [mine.assistantId] };
  return (await owner.post<{ secret: string }>('/tokens', body)).body.secret;
};

const NOBODY = '401 not_signed_in';
const FORBIDDEN = '403 forbidden';
const UNKNOWN = '404 not_found';
const notForTokens = ({ peopleOnly, resource }: Operation): boolean => peopleOnly === true || resource === null;

const OPERATED = OPERATIONS.filter(({ audience }) => audience !== 'anyone');
/** Those whose path names an object of an assistant. */
const OF_OBJECTS = OPERATED.filter(({ resource }) => resource !== null && resource !== 'filtered');
const nameOf = ({ method, path }: Operation): string => `${method.toUpperCase()} ${path}`;
const withBody = (one: Operation): unknown => (one.body === undefined ? undefined : {});

beforeAll(async () => {
  owner = await anOperator(stack);
  [mine, theirs] = [await anInhabited(stack, owner), await anInhabited(stack, owner)];
  const agent = await anOperator(stack, 'agent');
  await owner.call('PATCH', `/operators/${agent.operatorId}`, { assistantIds: [mine.assistantId] });
  const disabled = await anOperator(stack);
  await owner.call('PATCH', `/operators/${disabled.operatorId}`, { disabled: true });
  const nobody = { refusal: () => NOBODY, mayRead: () => false };
  callers = [
    { name: 'nobody', call: byBearer(), ...nobody },
    { name: 'an API key', call: byBearer(theirs.apiKey), ...nobody },
    {
      name: 'a disabled operator',
      call: (...given) => disabled.call(given[0], given[1], given[2], fromElsewhere()),
      ...nobody,
    },
    {
      name: 'an agent',
      call: agent.call,
      refusal: ({ audience }) => (audience === 'owners' ? FORBIDDEN : UNKNOWN),
      mayRead: ({ audience }) => audience === 'operators',
    },
    {
      name: 'a token that reads',
      call: byBearer(await aToken('read')),
      refusal: (one) => (one.method !== 'get' || notForTokens(one) ? FORBIDDEN : UNKNOWN),
      mayRead: (one) => !notForTokens(one),
    },
    {
      name: 'a token that manages',
      call: byBearer(await aToken('manage')),
      refusal: (one) => (notForTokens(one) ? FORBIDDEN : UNKNOWN),
      mayRead: (one) => !notForTokens(one),
    },
  ];
});

/** The operations that a caller tries: all of them in the long suite, and every day each one by one kind of caller. */
const triedBy = (caller: Caller, operations: Operation[]): Operation[] =>
  sized({
    everyday: operations.filter((_, nth) => nth % callers.length === callers.indexOf(caller)),
    long: operations,
  });

/** The same kinds of objects, of which none exists. */
const noObjects = (): Inhabited => {
  const unknown = (one: Inhabited): Inhabited => ({
    ...one,
    ids: Object.fromEntries(Object.keys(one.ids).map((kind) => [kind, randomUUID()])) as Inhabited['ids'],
  });
  return unknown(theirs);
};

/** An answer without what differs in each. */
const saidIn = ({ status, body, headers }: Awaited<ReturnType<Call>>): unknown => {
  const { requestId: _requestId, ...said } = (body ?? {}) as Record<string, unknown>;
  return {
    status,
    said: JSON.stringify(said).replaceAll(/"requestId":"[^"]*"/g, ''),
    type: headers.get('content-type'),
  };
};

test('an object of another assistant is refused as one that does not exist, to every kind of caller', async () => {
  let tries = 0;
  for (const caller of callers) {
    const { name, call, refusal } = caller;
    const tried = triedBy(caller, OF_OBJECTS);
    const told: Record<string, string> = {};
    for (const one of tried) {
      const [method, body] = [one.method.toUpperCase(), withBody(one)];
      const foreign = await call(method, pathIn(one, theirs, owner.operatorId), body);
      const unknown = await call(method, pathIn(one, noObjects(), owner.operatorId), body);
      told[nameOf(one)] = problemOf(foreign);
      expect(saidIn(foreign), `${name}: ${nameOf(one)}`).toEqual(saidIn(unknown));
      tries += 2;
    }
    expect(told, name).toEqual(Object.fromEntries(tried.map((one) => [nameOf(one), refusal(one)])));
  }
  expect(tries).toBeGreaterThan(sized({ everyday: 150, long: 1_000 }));
});

test('what a caller may read of its own assistant follows from the declaration', async () => {
  const reads = OF_OBJECTS.filter(
    ({ method, stream, lasts, contentType }) => method === 'get' && !stream && !lasts && !contentType,
  );
  for (const caller of callers) {
    const { name, call, mayRead } = caller;
    const tried = triedBy(caller, reads);
    const told: Record<string, boolean> = {};
    for (const one of tried) {
      const { status } = await call('GET', pathIn(one, mine, owner.operatorId));
      told[nameOf(one)] = ![401, 403, 404].includes(status);
    }
    expect(told, name).toEqual(Object.fromEntries(tried.map((one) => [nameOf(one), mayRead(one)])));
  }
});

test('operations on the whole service are for signed-in people of their audience', async () => {
  const ofService = OPERATED.filter(({ resource, audience }) => resource === null && audience === 'owners');
  for (const { name, call, refusal } of callers) {
    const told: Record<string, string> = {};
    for (const one of ofService)
      told[nameOf(one)] = problemOf(
        await call(one.method.toUpperCase(), pathIn(one, theirs, owner.operatorId), withBody(one)),
      );
    expect(told, name).toEqual(Object.fromEntries(ofService.map((one) => [nameOf(one), refusal(one)])));
  }
});
