import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { anAssistant, aTurn, request } from '../support/builders.ts';
import { collectionIn, type Profiled, profileStatements } from '../support/profile.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0 });
const TRACES = 40;
const AGAIN = 500;

/** The result of some work, and the statements that it sent. */
const profiled = async <Result>(work: () => Promise<Result>): Promise<[Result, Profiled[]]> => {
  const results: Result[] = [];
  const sent = await profileStatements(stack, async () => results.push(await work()));
  return [results[0] as Result, sent];
};

/** A program that reads the trace of a turn of its assistant. The turn's job is looked for among all jobs. */
const aProgram = async () => {
  const assistant = await anAssistant(stack, { knowledge: [] });
  const { assistantId } = assistant;
  await assistant.chat(aTurn());
  const stored = await stack.service.mongo.collection('conversations').findOne({ assistantId });
  const made = { name: 'a program', scope: 'read' as const, assistantIds: [assistantId], createdBy: null };
  const { secret: bearer } = await stack.service.tokens.createToken(made);
  return async () => (await request(`${stack.url}/operator/v1/turns/${stored?.recent[0].turnId}`, { bearer })).status;
};

test('a program that reads many traces at once takes turns with others', async () => {
  const [many, one] = [await aProgram(), await aProgram()];
  let answered = 0;
  const traces = Array.from({ length: TRACES }, async () => {
    const status = await many();
    answered += 1;
    return status;
  });
  await Promise.race(traces);

  expect(await one()).toBe(200);

  expect(answered).toBeLessThan(TRACES / 2);
  expect([...new Set(await Promise.all(traces))]).toEqual([200]);
});

test('the trace of a turn whose events were sent again and again has the newest, and reads no texts', async () => {
  const assistant = await anAssistant(stack, { knowledge: [] });
  const { assistantId } = assistant;
  const { conversationId } = (await assistant.chat(aTurn())).body;
  const [asked, replied] = (await assistant.history(conversationId)).body.messages;
  const at = new Date(String(replied?.createdAt));
  const rows = Array.from({ length: AGAIN }, (_, nth) => ({
    _id: `again-${nth}`,
    eventId: randomUUID(),
    event: 'message.received',
    endpointId: randomUUID(),
    assistantId,
    conversationId,
    outcome: 'delivered',
    redelivery: true,
    happenedAt: at,
    createdAt: new Date(at.getTime() + nth),
    endedAt: at,
    url: 'http://127.0.0.1:9/',
    responseBody: 'r'.repeat(16_000),
  }));
  await stack.service.mongo.collection('deliveries').insertMany(rows as never);
  const made = { name: 'a program', scope: 'read' as const, assistantIds: [assistantId], createdBy: null };
  const { secret: bearer } = await stack.service.tokens.createToken(made);
  type Trace = { events: { deliveries: { deliveryId: string }[] }[] };
  const read = () => request<Trace>(`${stack.url}/operator/v1/turns/${asked?.turnId}`, { bearer });

  const [{ status, body }, sent] = await profiled(read);

  const shown = body.events.flatMap(({ deliveries }) => deliveries);
  expect([status, shown.length, shown.at(-1)?.deliveryId]).toEqual([200, 200, `again-${AGAIN - 1}`]);
  const bytes = sent.map((one) => (collectionIn(one) === 'deliveries' ? (one.responseLength ?? 0) : 0));
  expect(Math.max(...bytes)).toBeLessThan(200_000);
});
