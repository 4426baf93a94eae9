import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { startMongod } from '../../scripts/services.ts';
import type { StoredConversation } from '../../src/conversations/conversation.ts';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { withFailPoint } from '../support/fail-point.ts';
import { type Profiled, profileStatements } from '../support/profile.ts';
import { useOpened, useStack } from '../support/stack.ts';

/** Shorter than the time after which the service takes MongoDB for silent. */
const SLOW_READ_MS = 500;
/** Both clocks count whole milliseconds. */
const NEARLY = 0.95;
const ASYNC = { Prefer: 'respond-async' };

const mongod = useOpened(
  () => startMongod({ failPoints: true }),
  (opened) => opened.dispose(),
);
/** Turns wait until a test starts a worker. Meanwhile the store is looked at for them far more often than a read takes. */
const stack = useStack(() => ({
  env: { MONGODB_URL: mongod.url },
  replyWorkers: 0,
  deliveryWorkers: 0,
  timing: { checkStoreAfterMs: 50, checkStoreEveryMs: 20 },
}));

/** Every read of conversations takes this long, as of large ones that are only on the disk. */
const withSlowReads = (during: () => Promise<void>, blockTimeMS = SLOW_READ_MS): Promise<void> => {
  const namespace = `${stack.service.mongo.name}.conversations`;
  return withFailPoint(mongod.url, { failCommands: ['find'], namespace, blockConnection: true, blockTimeMS }, during);
};

type Read = { ids: string[]; endedAt: number };

/** The reads of such a field of several conversations, in the order in which they ended. */
const readsOf = (field: string, statements: Pick<Profiled, 'command' | 'ts'>[]): Read[] =>
  statements
    .flatMap(({ command, ts }) => {
      const { filter, projection } = command as { filter?: { _id?: { $in?: string[] } }; projection?: object };
      const ids = command['find'] === 'conversations' ? filter?._id?.$in : undefined;
      return ids && field in (projection ?? {}) ? [{ ids, endedAt: +ts }] : [];
    })
    .toSorted((one, other) => one.endedAt - other.endedAt);

/** The reads so far, while statements are profiled. */
const readsSoFar = async (field: string): Promise<Read[]> =>
  readsOf(field, await stack.service.mongo.collection<Profiled>('system.profile').find().toArray());

const leastGap = (reads: Read[]): number =>
  Math.min(...reads.slice(1).map(({ endedAt }, nth) => endedAt - (reads[nth]?.endedAt ?? 0)));

const keyOf = async (sessionId: string): Promise<string> => {
  const conversations = stack.service.mongo.collection<StoredConversation>('conversations');
  return eventually(async () => {
    const found = await conversations.findOne({ sessionId });
    if (!found) throw new Error('no conversation yet');
    return found._id;
  });
};

test('a turn that is refused does not read the language of its conversation', async () => {
  const assistant = await anAssistant(stack, { input: { languages: ['en', 'fr'] } });
  const headers = { ...ASYNC, 'Idempotency-Key': randomUUID() };
  expect((await assistant.chat({ session_id: randomUUID(), message: 'hello' }, { headers })).status).toBe(202);
  const refused = () => assistant.chat({ session_id: randomUUID(), message: '👍' }, { headers });
  const last = randomUUID();

  const statements = await profileStatements(stack, () =>
    withSlowReads(async () => {
      const answers = await Promise.all(Array.from({ length: 24 }, refused));
      expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 422));
      // What is left in the line would go before or with this read.
      await stack.service.conversations.findLanguage(last, 'another');
    }),
  );

  const reads = readsOf('language', statements);
  expect(reads.map(({ ids }) => ids)).toEqual([[last]]);
});

test('who reads many conversations delays the reads of another assistant by few', async () => {
  const { conversations } = stack.service;
  const [many, one] = [Array.from({ length: 200 }, () => randomUUID()), randomUUID()];
  const bothOf = (read: (key: string, assistantId: string) => Promise<unknown>) => () =>
    Promise.all([...many.map((key) => read(key, 'many')), read(one, 'one')]);
  const readLanguages = bothOf(conversations.findLanguage);
  const look = bothOf((key, assistantId) => conversations.findSeq({ key, assistantId, conversationId: key }));

  const statements = await profileStatements(stack, () => Promise.all([readLanguages(), look()]));

  for (const field of ['language', 'seq']) {
    const reads = readsOf(field, statements);
    expect(reads.flatMap(({ ids }) => ids)).toHaveLength(201);
    expect(Math.max(...reads.map(({ ids }) => ids.length))).toBeLessThan(33);
    const upTo = reads.findIndex(({ ids }) => ids.includes(one));
    expect(reads.slice(0, upTo + 1).flatMap(({ ids }) => ids).length).toBeLessThan(50);
  }
});

test('long polls look one after the other, and MongoDB has as much time for others', async () => {
  const { chat, history } = await anAssistant(stack);
  const body = { session_id: randomUUID(), message: 'hello' };
  const { conversationId } = (await chat(body, { headers: ASYNC })).body;
  const blockMs = 100;

  let looks: Read[] = [];
  await profileStatements(stack, async () => {
    const polls = Array.from({ length: 30 }, () => history(conversationId, '?after_seq=0&wait=25'));
    await eventually(async () => expect((await readsSoFar('seq')).length).toBeGreaterThan(5)); // they wait
    await withSlowReads(async () => {
      const before = (await readsSoFar('seq')).length;
      looks = await eventually(async () => {
        const slow = (await readsSoFar('seq')).slice(before + 2);
        expect(slow.length).toBeGreaterThan(8);
        return slow;
      });
    }, blockMs);
    const worker = await stack.startReplyWorker();
    for (const { body: news } of await Promise.all(polls)) expect(news.messages).toHaveLength(2);
    await worker.close();
  });

  expect(leastGap(looks)).toBeGreaterThan(NEARLY * 2 * blockMs);
});

test('turns that wait are looked up a few at once, and MongoDB has as much time for others', async () => {
  const { isPending } = stack.service.conversations;
  const keys: string[] = Array.from({ length: 100 }, () => randomUUID());
  const blockMs = 100;

  const statements = await profileStatements(stack, () =>
    withSlowReads(async () => {
      await Promise.all(keys.map((key) => isPending({ key, turnId: key })));
    }, blockMs),
  );

  const looks = readsOf('waiting.turnId', statements).filter(({ ids }) => ids.some((id) => keys.includes(id)));
  expect(looks.flatMap(({ ids }) => ids)).toHaveLength(100);
  expect(Math.max(...looks.map(({ ids }) => ids.length))).toBeLessThan(33);
  expect(leastGap(looks)).toBeGreaterThan(NEARLY * 2 * blockMs);
});

test('no turn that waits is looked up twice at once', async () => {
  const { chat } = await anAssistant(stack);
  const session = randomUUID();
  const answer = chat({ session_id: session, message: 'hello' });
  const key = await keyOf(session);

  let looks: Read[] = [];
  await profileStatements(stack, () =>
    withSlowReads(async () => {
      const own = async () => (await readsSoFar('waiting.turnId')).filter(({ ids }) => ids.includes(key));
      const before = (await own()).length;
      looks = await eventually(async () => {
        const slow = (await own()).slice(before + 2);
        expect(slow.length).toBeGreaterThan(2);
        return slow;
      });
    }),
  );

  expect(leastGap(looks)).toBeGreaterThan(NEARLY * SLOW_READ_MS);
  const worker = await stack.startReplyWorker();
  expect((await answer).status).toBe(200);
  await worker.close();
});
