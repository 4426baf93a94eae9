import { randomUUID } from 'node:crypto';
import { beforeAll, expect, test } from 'vitest';
import { assistantModels, type StoredAssistant } from '../../src/assistants/assistant.ts';
import { collectionOf } from '../../src/platform/mongo/mongo.ts';
import { eventually } from '../support/eventually.ts';
import { watchLoop } from '../support/loop.ts';
import { anOperator, openOperatorClient, PASSWORD } from '../support/operator-client.ts';
import { atPace } from '../support/pace.ts';
import { collectionIn, type Profiled, profileStatements } from '../support/profile.ts';
import { longTest, sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';
import { memoryOfUnread } from '../support/unread.ts';

const stack = useStack({ deliveryWorkers: 0 });
const MANY = sized({ everyday: 200, long: 2_000 });
const INSTRUCTIONS = 'x'.repeat(8_000);
let bearer: string;

beforeAll(async () => {
  const { assistants, mongo, tokens } = stack.service;
  const { assistantId } = await assistants.createAssistant({ name: 'assistant', takeWithinMinutes: 5 });
  const collection = collectionOf<StoredAssistant>(assistantModels(mongo).assistants);
  const stored = (await collection.findOne({ _id: assistantId })) as StoredAssistant;
  const allowedLinks = Array.from({ length: 50 }, (_, nth) => `${'l'.repeat(240)}${nth}.org`);
  const rows = Array.from({ length: MANY - 1 }, (_, nth) => ({
    ...stored,
    _id: randomUUID(),
    name: `assistant ${nth}`,
    instructions: INSTRUCTIONS,
    allowedLinks,
    createdAt: new Date(stored.createdAt.getTime() + 1 + nth),
  }));
  await collection.insertMany(rows);
  const made = { name: 'a program', scope: 'read' as const, assistantIds: null, createdBy: null };
  bearer = (await tokens.createToken(made)).secret;
});

/** The bytes that MongoDB has sent of assistants. */
const bytesOfAssistants = (sent: Profiled[]): number =>
  sent
    .filter((one) => collectionIn(one) === 'assistants')
    .reduce((sum, { responseLength = 0 }) => sum + responseLength, 0);

longTest('a list of 2,000 large assistants holds up nobody', async () => {
  const stop = watchLoop();

  const answer = await fetch(`${stack.url}/operator/v1/assistants`, { headers: { Authorization: `Bearer ${bearer}` } });
  const pieces: Uint8Array[] = [];
  for await (const piece of answer.body ?? []) pieces.push(piece);

  const { ms, name } = stop();
  expect(ms, name).toBeLessThan(atPace(25));
  const { assistants } = JSON.parse(Buffer.concat(pieces).toString()) as { assistants: Record<string, string>[] };
  expect(assistants.map((one) => one['name'])).toEqual([
    'assistant',
    ...Array.from({ length: MANY - 1 }, (_, nth) => `assistant ${nth}`),
  ]);
  expect(assistants.filter(({ instructions }) => instructions === INSTRUCTIONS)).toHaveLength(MANY - 1);
});

longTest('lists of assistants that nobody reads take little memory', async () => {
  expect(await memoryOfUnread(stack.env, '/assistants', bearer)).toBeLessThan(150);
});

test('signing in and reading the session read the names of assistants only', async () => {
  const email = `${randomUUID()}@example.com`;
  await stack.service.operators.createOperator({ email, role: 'owner', password: PASSWORD });
  const client = openOperatorClient(stack.url);
  let statuses: number[] = [];
  let names: string[] = [];

  const sent = await profileStatements(stack, async () => {
    const signedIn = await client.signIn(email);
    const read = await client.get<{ assistants: { name: string }[] }>('/session');
    statuses = [signedIn.status, read.status];
    names = read.body.assistants.map(({ name }) => name);
  });

  expect(statuses).toEqual([200, 200]);
  expect(names.slice(0, 3)).toEqual(['assistant', 'assistant 0', 'assistant 1']);
  expect(names).toHaveLength(MANY);
  expect(bytesOfAssistants(sent)).toBeLessThan(MANY * 500);
});

test('a worker reads only ids of assistants after an operator’s access has changed', async () => {
  const operators = stack.service.mongo.collection<{ _id: string; released?: boolean }>('operators');

  const sent = await profileStatements(stack, async () => {
    const { operatorId } = await anOperator(stack, 'agent');
    await eventually(async () => expect((await operators.findOne({ _id: operatorId }))?.released).toBe(true));
  });

  // Several sweeps may read all ids. Each document has 20 kB.
  expect(bytesOfAssistants(sent)).toBeLessThan(MANY * 5_000);
});
