import { randomUUID } from 'node:crypto';
import { connect } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { startReplicaSet } from '../../scripts/services.ts';
import { openApi } from '../../src/api.ts';
import { inChunks } from '../../src/platform/mongo/batches.ts';
import { anAssistant, aTurn, type ChatBody, request, type TestAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { createFeed } from '../kit/feed.ts';
import { followInbox, type LiveStream } from '../support/live-stream.ts';
import { anOperator } from '../support/operator-client.ts';
import { openRelayed } from '../support/relayed.ts';
import { longTest, sized } from '../support/size.ts';
import { openStack, useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0 });

const say = async (assistant: TestAssistant): Promise<string> =>
  (await assistant.chat(aTurn({ session_id: randomUUID() }))).body.conversationId;

const hasRow = (stream: LiveStream, conversationId: string, withinMs?: number) =>
  eventually(() => expect(stream.rows().has(conversationId)).toBe(true), withinMs);

longTest('an election neither ends a connection nor loses a change', async () => {
  const set = await startReplicaSet(3);
  onTestFinished(set.dispose);
  const own = await openStack({ env: { MONGODB_URL: set.url }, deliveryWorkers: 0 });
  onTestFinished(own.close);
  const [owner, assistant] = [await anOperator(own), await anAssistant(own)];
  const stream = await followInbox(own.url, owner);
  onTestFinished(stream.leave);
  const said: string[] = [];
  let over = false;
  const talk = async (): Promise<void> => {
    while (!over) {
      const answer = await request<ChatBody>(`${own.url}/api/v1/chat`, {
        body: aTurn({ session_id: randomUUID() }),
        bearer: assistant.apiKey,
      });
      if (answer.status === 200) said.push(answer.body.conversationId);
    }
  };
  const talking = Promise.all([talk(), talk()]);
  await eventually(() => expect(said.length).toBeGreaterThan(10));

  const next = set.members[1];
  if (!next) throw new Error('the set has three members');
  await eventually(() => set.elect(next)); // fails while the member is behind
  const before = said.length;
  await eventually(() => expect(said.length).toBeGreaterThan(before + 10));
  over = true;
  await talking;

  await eventually(() => {
    const rows = stream.rows();
    expect(said.filter((id) => !rows.has(id))).toEqual([]);
  });
  expect(await set.findPrimary()).toBe(next);
});

// Every day, silent-checks.unit.test.ts ends connections, and live.process.test.ts resumes them.
longTest('a silent MongoDB ends the connection, which resumes without a gap', async () => {
  const [owner, assistant] = [await anOperator(stack), await anAssistant(stack)];
  const { relay, ...options } = await openRelayed(stack);
  const url = `http://127.0.0.1:${(await openApi(options)).port}`;
  const before = await followInbox(url, owner);
  await hasRow(before, await say(assistant));

  relay.freeze();
  const missed = await say(assistant);
  await before.ended;
  expect(before.rows().has(missed)).toBe(false);
  relay.thaw();

  const back = await eventually(async () => {
    const stream = await followInbox(url, owner, { from: before.position() });
    expect(stream.status).toBe(200);
    return stream;
  });
  onTestFinished(back.leave);
  await hasRow(back, missed);
  await hasRow(back, await say(assistant));
});

test('MongoDB that is unavailable for a moment does not end the connection', async () => {
  const [owner, assistant] = [await anOperator(stack), await anAssistant(stack)];
  const { relay, ...options } = await openRelayed(stack);
  const stream = await followInbox(`http://127.0.0.1:${(await openApi(options)).port}`, owner);
  onTestFinished(stream.leave);

  await relay.cut();
  const missed = await say(assistant);
  await relay.mend();

  await hasRow(stream, missed);
  expect(stream.events.map(({ event }) => event)).not.toContain('reset');
});

test('a browser that does not read is cut off, and others are not', async () => {
  const [owner, assistant] = [await anOperator(stack), await anAssistant(stack)];
  const { hostname, port } = new URL(stack.url);
  const lazy = connect(Number(port), hostname);
  const closed = new Promise<void>((resolve) => lazy.once('close', () => resolve()));
  lazy.on('error', () => undefined);
  lazy.write(`GET /operator/v1/live HTTP/1.1\r\nHost: x\r\nCookie: ${owner.cookie()}\r\n\r\n`);
  await new Promise((resolve) => lazy.once('data', resolve));
  lazy.pause();
  const stream = await followInbox(stack.url, owner);
  onTestFinished(stream.leave);
  const COUNT = 2_000;
  const keys = await createFeed(stack.service).openConversations(assistant.assistantId, COUNT);
  const conversations = stack.service.mongo.collection<{ _id: string }>('conversations');

  for (let round = 0; round < sized({ everyday: 2, long: 4 }); round += 1) {
    // Every day, one long tag has the bytes of many.
    const { count, chars } = sized({ everyday: { count: 1, chars: 5_000 }, long: { count: 50, chars: 50 } });
    const tagOf = (at: number) => ({ tag: `${round} ${at}`.padEnd(chars, 'x'), color: '#123456' });
    const tags = Array.from({ length: count }, (_, at) => tagOf(at));
    for (const some of inChunks(keys))
      await conversations.updateMany(
        { _id: { $in: some } },
        { $set: { tags }, $currentDate: { updatedAt: true } },
        { socketTimeoutMS: 0 } as object, // on a busy machine it takes longer than any command of the service may
      );
    await eventually(() => {
      const rows = [...stream.rows().values()].filter(({ tags: shown }) =>
        (shown as typeof tags)[0]?.tag.startsWith(`${round} 0x`),
      );
      expect(rows.length).toBe(COUNT);
    });
  }
  const said = await say(assistant);
  lazy.resume(); // a closed connection is noticed only by reading to its end
  await closed;

  await hasRow(stream, said);
});
