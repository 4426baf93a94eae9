import { beforeAll, expect, onTestFinished, test } from 'vitest';
import { anAssistant, aTurn, type TestAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { followInbox, type LiveStream } from '../support/live-stream.ts';
import { anOperator } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { longTest } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ apis: 2, deliveryWorkers: 0 });

type Client = Awaited<ReturnType<typeof anOperator>>;
let [ann, ben]: Client[] = [];
let assistant: TestAssistant;
let conversationId: string;

beforeAll(async () => {
  ann = await anOperator(stack);
  ben = await anOperator(stack);
  assistant = await anAssistant(stack);
  ({ conversationId } = (await assistant.chat(aTurn())).body);
});

const follow = async (client: Client | undefined, at = 0): Promise<LiveStream> => {
  const stream = await followInbox(stack.urls[at] ?? '', client as Client);
  onTestFinished(stream.leave);
  return stream;
};
const announce = (client: Client | undefined, state: string) =>
  (client as Client).post(`/conversations/${conversationId}/presence`, { state });
const statesIn = ({ events }: LiveStream, client: Client | undefined) =>
  events
    .filter(({ event, data }) => event === 'presence' && data['operatorId'] === client?.operatorId)
    .map(({ data }) => data['state']);
const seen = (stream: LiveStream, client: Client | undefined, states: string[]) =>
  eventually(() => expect(statesIn(stream, client)).toEqual(states));

test('another operator sees who reads, writes and leaves, also at another process', async () => {
  const [near, far] = [await follow(ben, 0), await follow(ben, 1)];

  const told: string[] = [];
  for (const state of ['reading', 'writing', 'gone']) {
    for (const _again of [1, 2]) expect((await announce(ann, state)).status).toBe(204);
    told.push(state);
    for (const stream of [near, far]) await seen(stream, ann, told);
  }

  for (const stream of [near, far]) {
    expect(stream.events[0]).toEqual({
      event: 'presence',
      data: { conversationId, operatorId: ann?.operatorId, email: ann?.email, state: 'reading' },
    });
  }
});

test('an operator does not see their own presence', async () => {
  const [own, other] = [await follow(ann), await follow(ben)];

  await announce(ann, 'writing');
  await seen(other, ann, ['writing']);
  await announce(ann, 'gone');
  await seen(other, ann, ['writing', 'gone']);

  expect(statesIn(own, ann)).toEqual([]);
});

test('a browser that connects later learns who is present', async () => {
  await announce(ann, 'writing');

  const streams = [await follow(ben, 0), await follow(ben, 1)];

  for (const stream of streams) await seen(stream, ann, ['writing']);
  await announce(ann, 'gone');
  for (const stream of streams) await seen(stream, ann, ['writing', 'gone']);
  expect(streams.map((stream) => statesIn(stream, ben))).toEqual([[], []]);
});

longTest('a presence that is not repeated expires', async () => {
  await announce(ann, 'writing');

  const streams = [await follow(ben, 0), await follow(ben, 1)];

  for (const stream of streams) await seen(stream, ann, ['writing']);
  for (const stream of streams) await seen(stream, ann, ['writing', 'gone']);
  const { redis, partitions } = stack.service;
  expect(await redis.exists(`${partitions.tags[0]}:presence`)).toBe(0);
});

test('who is present, and until when, becomes known after Redis refused to tell it once', async () => {
  const own = await stack.startApi();
  onTestFinished(own.close);
  const { redis, partitions } = stack.service;
  const key = `${partitions.tags[0]}:presence`;
  await redis.set(key, 'not a sorted set'); // so that reading it fails
  const stream = await followInbox(own.url, ben as Client);
  onTestFinished(stream.leave);
  await eventually(() => expect(stack.logs).toContainEqual(expect.objectContaining({ msg: 'presence is not known' })));

  const { operatorId, email } = ann as Client;
  const present = { conversationId, assistantId: assistant.assistantId, operatorId, email, state: 'reading' };
  await redis
    .multi()
    .del(key)
    .zadd(key, Date.now() + 3_000, JSON.stringify(present))
    .exec();

  await seen(stream, ann, ['reading']);
  await seen(stream, ann, ['reading', 'gone']);
  await redis.del(key);
});

test('an agent learns nothing of the presence in another assistant', async () => {
  const own = await anAssistant(stack);
  const agent = await anOperator(stack, 'agent');
  await (ann as Client).call('PATCH', `/operators/${agent.operatorId}`, { assistantIds: [own.assistantId] });
  const [theirs, other] = [await follow(agent), await follow(ben)];

  await announce(ann, 'reading');
  await seen(other, ann, ['reading']);
  await announce(ann, 'gone');
  await seen(other, ann, ['reading', 'gone']);
  const late = await follow(agent, 1);
  const said = await own.chat(aTurn());
  await eventually(() => expect(late.rows().has(said.body.conversationId)).toBe(true));

  expect(statesIn(theirs, ann)).toEqual([]);
  expect(statesIn(late, ann)).toEqual([]);
});

test('a state that does not exist is refused, and replies still reach their callers', async () => {
  const refused = await announce(ann, 'sleeping');
  const said = await assistant.chat(aTurn());

  expect(problemOf(refused)).toBe('422 validation_failed state');
  expect(said.status).toBe(200);
  expect(stack.logs.filter(({ msg }) => msg === 'malformed replies were published')).toEqual([]);
});

test('an operator cannot be in thousands of conversations, and others still tell where they are', async () => {
  const [flooder, stream] = [await anOperator(stack), await follow(ann)];

  const answers = [];
  for (let round = 0; round < 10; round += 1)
    answers.push(...(await Promise.all(Array.from({ length: 25 }, () => announce(flooder, 'reading')))));
  const bens = await announce(ben, 'reading');

  expect(answers.filter(({ status }) => status === 204)).toHaveLength(240);
  expect(problemOf(answers.find(({ status }) => status !== 204)!)).toBe('429 rate_limited');
  expect(bens.status).toBe(204);
  await eventually(() => expect(statesIn(stream, ben)).toContain('reading'));
});
