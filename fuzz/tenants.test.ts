import { randomUUID } from 'node:crypto';
import { beforeAll, expect, test } from 'vitest';
import * as z from 'zod';
import { createRandom, type Random } from '../test/kit/random.ts';
import type { Declaration } from '../src/platform/http/operation.ts';
import { PUBLIC_OPERATIONS, WEB_OPERATIONS } from '../src/api/document.ts';
import { OPERATIONS } from '../src/api/operator-routes.ts';
import { request } from '../test/support/builders.ts';
import { eventually } from '../test/support/eventually.ts';
import { anInhabited, type Inhabited } from '../test/support/inhabited.ts';
import { addressOf } from '../test/kit/operations.ts';
import { anOperator } from '../test/support/operator-client.ts';
import { collectionIn, profileStatements } from '../test/support/profile.ts';
import { useStack } from '../test/support/stack.ts';
import { aVisitor, SITE } from '../test/support/visitor.ts';
import { often, record, seed } from '../test/kit/fuzz-part.ts';

// test/operators/who-may.test.ts tries each operation with an object of another assistant. Here any id stands anywhere:
// in paths, queries and bodies, of another kind, and beside ids of one's own.

const stack = useStack({ deliveryWorkers: 0, env: { TRUST_PROXY: '1' } });

type Answer = { status: number; said: string };
type Send = (one: Declaration, path: string, body: unknown) => Promise<Answer>;
type Caller = { name: string; operations: readonly Declaration[]; send: Send };

/** Calls without access are limited by network, so each comes from another. */
let network = 0;
const elsewhere = (): Record<string, string> => {
  network += 1;
  return { 'X-Forwarded-For': `10.${(network >> 16) & 255}.${(network >> 8) & 255}.${network & 255}` };
};
const sendAs =
  (prefix: string, headers: Record<string, string>): Send =>
  async ({ method }, path, body) => {
    const url = `${stack.url}${prefix}${path}`;
    const sent = { ...headers, ...elsewhere() };
    const answer = await request(url, {
      method: method.toUpperCase(),
      headers: sent,
      ...(body !== undefined && { body }),
    });
    return { status: answer.status, said: JSON.stringify(answer.body).replaceAll(/"requestId":"[^"]*"/g, '') };
  };

let mine: Inhabited;
let theirs: Inhabited;
let callers: Caller[];
/** Ids of every kind by which another assistant’s objects could be reached. */
let idsOf: (one: Inhabited) => Record<string, string>;

beforeAll(async () => {
  const owner = await anOperator(stack);
  [mine, theirs] = [await anInhabited(stack, owner), await anInhabited(stack, owner)];
  for (const { assistantId } of [mine, theirs])
    await stack.service.assistants.setWeb(assistantId, { enabled: true, origins: [SITE] });
  const visitor = await eventually(() => aVisitor(stack, mine.assistantId)); // a process remembers an assistant for a moment
  const agent = await anOperator(stack, 'agent');
  await owner.call('PATCH', `/operators/${agent.operatorId}`, { assistantIds: [mine.assistantId] });
  const aToken = async (scope: string) =>
    (await owner.post<{ secret: string }>('/tokens', { name: 'x', scope, assistantIds: [mine.assistantId] })).body
      .secret;
  const bearer = (secret: string) => ({ Authorization: `Bearer ${secret}` });
  const operated = OPERATIONS.filter(
    (one) => one.audience !== 'anyone' && one.lasts !== true && !one.stream && !one.upload && !one.contentType,
  );
  const signedIn = { Cookie: String(agent.cookie()), Origin: stack.url, 'Sec-Fetch-Site': 'same-origin' };
  callers = [
    {
      name: 'an API key',
      operations: PUBLIC_OPERATIONS.filter(({ path }) => path.startsWith('/api/')),
      send: sendAs('', bearer(mine.apiKey)),
    },
    {
      name: 'a visitor',
      operations: WEB_OPERATIONS.filter(({ auth }) => auth === 'visitor'),
      send: sendAs('', { ...bearer(visitor.token), Origin: SITE }),
    },
    { name: 'an agent', operations: operated, send: sendAs('/operator/v1', signedIn) },
    { name: 'a token that reads', operations: operated, send: sendAs('/operator/v1', bearer(await aToken('read'))) },
    {
      name: 'a token that manages',
      operations: operated,
      send: sendAs('/operator/v1', bearer(await aToken('manage'))),
    },
  ];
  idsOf = ({ ids, entryId, noteId, missId, sourceId, setId, caseId, evaluationId }) => ({
    ...ids,
    entryId,
    noteId,
    missId,
    sourceId,
    setId,
    caseId,
    evaluationId,
  });
});

type Shape = {
  type?: string;
  format?: string;
  enum?: unknown[];
  const?: unknown;
  properties?: Record<string, Shape>;
  required?: string[];
  items?: Shape;
  anyOf?: Shape[];
  oneOf?: Shape[];
  allOf?: Shape[];
  minimum?: number;
  minItems?: number;
};

/** A value that probably fits, in which every id is `id`. */
const fit = (shape: Shape, id: () => string, { below, next }: Random): unknown => {
  const random = { below, next };
  if (shape.const !== undefined) return shape.const;
  if (shape.enum) return shape.enum[below(shape.enum.length)];
  const ways = shape.anyOf ?? shape.oneOf ?? shape.allOf;
  if (ways) return fit(ways[below(ways.length)] as Shape, id, random);
  if (shape.type === 'object') {
    const given = Object.entries(shape.properties ?? {}).filter(
      ([name]) => shape.required?.includes(name) || next() < 0.5,
    );
    return Object.fromEntries(
      given.map(([name, inner]) => [
        name,
        /Ids?$|^from|cursor|^after$|^before$/i.test(name) && inner.type === 'string' ? id() : fit(inner, id, random),
      ]),
    );
  }
  if (shape.type === 'array') return [fit(shape.items ?? {}, id, random)];
  if (shape.format === 'uuid') return id();
  if (shape.format === 'date-time') return '2026-11-25T12:00:00.000Z';
  if (shape.type === 'string') return 'words';
  if (shape.type === 'integer' || shape.type === 'number') return shape.minimum ?? 1;
  return shape.type === 'boolean' ? next() < 0.5 : null;
};
const shapeOf = (schema: z.ZodType): Shape => z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }) as Shape;

type Try = { one: Declaration; path: string; body: unknown };

/** A request in which at least one id is not one’s own, twice: with an id of theirs, and with one that nobody has. */
const drawTry = ({ operations }: Caller, random: Random): [Try, Try, string] => {
  const one = operations[random.below(operations.length)] as Declaration;
  const pick = <Value>(all: Value[]): Value => all[random.below(all.length)] as Value;
  const [foreign, own] = [idsOf(theirs), idsOf(mine)];
  const kind = pick(Object.keys(foreign));
  const [bad, unknown] = [foreign[kind] ?? '', foreign[kind]?.replaceAll(/[0-9a-f-]{36}/g, () => randomUUID()) ?? ''];
  const names = [...one.path.matchAll(/:(\w+)/g)].map(([, name = '']) => name);
  const at = pick([...names, 'elsewhere']);
  const drawn = random.below(2 ** 31);
  const made = (id: string): Try => {
    const again = createRandom(drawn);
    const resource = 'resource' in one ? String(one.resource) : 'conversation';
    const rightful = (name: string): string =>
      name === 'id'
        ? (own[resource] ?? own['conversation'] ?? '')
        : name === 'assistant_id'
          ? (own['assistant'] ?? '')
          : (own[name] ?? (name === 'version' ? '1' : 'vip'));
    const params = Object.fromEntries(names.map((name) => [name, name === at ? id : rightful(name)]));
    const query = one.query ? (fit(shapeOf(one.query), () => id, again) as object) : {};
    const pairs = Object.entries(query)
      .filter(([, value]) => value !== null)
      .map(([name, value]): [string, string] => [name, String(value)]);
    const search = String(new URLSearchParams(pairs));
    return {
      one,
      path: addressOf(one, params, search && `?${search}`),
      body: one.body ? fit(shapeOf(one.body), () => id, again) : undefined,
    };
  };
  return [made(bad), made(unknown), `${one.method} ${one.path} with a ${kind} as ${at}`];
};

/** Everything that is stored of an assistant. */
const storedOf = async ({ assistantId, ids }: Inhabited): Promise<Record<string, string>> => {
  const { db } = stack.service.mongo;
  const names = (await db?.listCollections().toArray())?.map(({ name }) => name) ?? [];
  const ownIds = { $or: [{ assistantId }, { _id: assistantId }, { conversationId: ids.conversation }] };
  const all = names.map(async (name) => [
    name,
    JSON.stringify(
      await db
        ?.collection(name)
        .find(ownIds as never)
        .sort({ _id: 1 })
        .toArray(),
    ),
  ]);
  return Object.fromEntries(await Promise.all(all)) as Record<string, string>;
};

test('an id of another assistant does nothing and tells nothing, wherever it stands', async () => {
  const random = createRandom(seed);
  const tries = often({ short: 100, whole: 10_000 });
  // The turn of the set-up is counted, and its evaluation ends, some time later.
  await eventually(async () => {
    const { figures, evaluations } = await storedOf(theirs);
    expect(figures).toContain('turns');
    expect(evaluations).toContain('"state":"done"');
  });
  const before = await storedOf(theirs);
  const wrong = new Set<string>();
  let tried = 0;
  for (let nth = 0; tried < tries; nth += 1) {
    const caller = callers[nth % callers.length] as Caller;
    const [bad, unknown, what] = drawTry(caller, random);
    if (JSON.stringify(bad) === JSON.stringify(unknown)) continue; // it takes no other id
    tried += 2;
    const told = await caller.send(bad.one, bad.path, bad.body);
    const control = await caller.send(unknown.one, unknown.path, unknown.body);
    const name = `${caller.name}: ${what}`;
    // Everyone may know which assistants have a widget.
    if (caller.name === 'a visitor' && bad.path !== unknown.path) {
      if (told.status < 400) wrong.add(`${name}: ${told.status}`);
      continue;
    }
    if (told.status !== control.status)
      wrong.add(
        `${name}: ${told.status} ${told.said} and ${control.status} ${control.said} ${bad.path} ${JSON.stringify(bad.body)}`,
      );
    if (told.status >= 500 || told.said.includes(theirs.apiKey)) wrong.add(`${name}: ${told.status} ${told.said}`);
    if (told.status >= 400 && told.said !== control.said) wrong.add(`${name}: ${told.said} ${control.said}`);
  }

  expect([...wrong]).toEqual([]);
  const after = await storedOf(theirs);
  for (const [name, stored] of Object.entries(before)) expect([name, after[name]]).toEqual([name, stored]);
  record('tenants', { tries: tried, callers: callers.length });
});

test('whether an id is another assistant’s or nobody’s costs the same statements', async () => {
  const [, , , , manager] = callers as [Caller, Caller, Caller, Caller, Caller];
  const [keyed] = callers as [Caller];
  const told: Record<string, string[][]> = {};
  const ofKinds = new Map(
    OPERATIONS.flatMap((one) =>
      one.method === 'get' && one.path.includes(':id') && manager.operations.includes(one) && one.resource
        ? [[one.resource, one]]
        : [],
    ),
  );
  const read = PUBLIC_OPERATIONS.filter(({ method, path }) => method === 'get' && path.includes(':id'));
  for (const [{ send }, all] of [
    [manager, [...ofKinds.values()]],
    [keyed, read],
  ] as const)
    for (const one of all) {
      const kind = 'resource' in one ? String(one.resource) : one.path.includes('turns') ? 'turn' : 'conversation';
      const foreign = idsOf(theirs)[kind] ?? '';
      const ids = [foreign, foreign.replaceAll(/[0-9a-f-]{36}/g, () => randomUUID())];
      const statementsOf = async (id: string): Promise<string[]> => {
        const names = Object.fromEntries(
          [...one.path.matchAll(/:(\w+)/g)].map(([, name = '']) => [name, name === 'id' ? id : '1']),
        );
        const sent = await profileStatements(stack, () => send(one, addressOf(one, names), undefined));
        const about = sent.filter(({ command }) =>
          id.split(':').some((part) => JSON.stringify(command).includes(part)),
        );
        return about.map((statement) => `${statement.op} ${collectionIn(statement)}`);
      };
      // Work in the background, such as the projection, may meet the same id once.
      told[one.id] = await eventually(async () => {
        const [known, unknown] = [await statementsOf(ids[0] ?? ''), await statementsOf(ids[1] ?? '')];
        expect([one.id, known]).toEqual([one.id, unknown]);
        return [known, unknown];
      });
    }

  expect(Object.keys(told).length).toBeGreaterThan(8);
});
