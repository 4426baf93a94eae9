import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { openReplyWorker } from '../../workers/reply/worker.ts';
import type { AssistantEngine } from '../../src/replies/engines/engine.ts';
import { anAssistant, anEntry } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import type { RelayOptions } from '../kit/relay.ts';
import { openRelayed } from '../support/relayed.ts';
import { useStack } from '../support/stack.ts';

/** How many reads lose their response. Reads of a sweep count too, if it runs in the meantime. */
const LOST = 4;

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });

type Loses = NonNullable<RelayOptions['loses']>;

/** Returns a function that starts a reply worker. The worker does not receive some responses of MongoDB. */
const openUnluckyWorker = async (loses: Loses) => {
  const relayed = await openRelayed(stack, { loses }, { sweepEveryMs: 250, turnStaleMs: 500 });
  return (engine?: AssistantEngine) => openReplyWorker({ ...relayed, ...(engine && { engine }) });
};

test('the pending turns continue after the read of the next turn failed', async () => {
  const seen = { committed: false, lost: 0 };
  /** Loses reads after the first commit: the read of the session's next turn, and the driver's second try. */
  const startWorker = await openUnluckyWorker(({ name, collection }) => {
    if (collection !== 'conversations') return null;
    if (name === 'update') seen.committed = true;
    if (name !== 'find' || !seen.committed || seen.lost === LOST) return null;
    seen.lost += 1;
    return () => undefined;
  });
  const { chat } = await anAssistant(stack);
  const session_id = randomUUID();
  const answers = ['one', 'two', 'three'].map((message) => chat({ session_id, message }));
  await eventually(async () => {
    const [row] = await stack.service.mongo.collection('conversations').find({ sessionId: session_id }).toArray();
    expect(row?.waiting).toHaveLength(3);
  });

  await startWorker();
  const statuses = (await Promise.all(answers)).map(({ status }) => status);

  expect(seen.lost).toBe(LOST);
  expect(statuses).toEqual([200, 200, 200]);
});

/** An engine that answers even if it could not read the earlier messages. */
const forgetful: AssistantEngine = {
  name: 'forgetful',
  reply: async ({ message, language, history }) => {
    const known = await history(6).catch(() => null);
    const text = known ? `${message}, after ${known.length}` : 'what were we talking about?';
    return { text, suggestedActions: [], confidence: 1, low: false, language, why: {} };
  },
};

test.each([
  ['reports this', undefined, 'The answer to card.'],
  ['answers anyway', forgetful, 'yes, after 12'],
])('a history that cannot be read does not count as a try, whether the engine %s', async (_, engine, reply) => {
  const knowledge = ['card', 'cash'].map((how) =>
    anEntry({ question: `Can I pay by ${how} in the shop?`, answer: `The answer to ${how}.` }),
  );
  const { chat, history } = await anAssistant(stack, { knowledge });
  const session_id = randomUUID();
  const first = await stack.startReplyWorker();
  // After these turns, a page of history is stored, so the next turn reads from that page.
  for (let turn = 1; turn <= 8; turn += 1)
    await chat({ session_id, message: `Can I pay by cash in the shop? ${turn}` });
  const { conversationId } = (await chat({ session_id, message: 'pay in the shop', language: 'en' })).body;
  await first.close();
  let lost = 0;
  const startWorker = await openUnluckyWorker(({ name, collection }) => {
    if (name !== 'find' || collection !== 'messages' || lost === LOST) return null;
    lost += 1;
    return () => undefined;
  });
  const answers = ['yes', 'yes ', 'thanks'].map((message) => chat({ session_id, message, language: 'en' }));
  await eventually(async () => {
    const row = await stack.service.mongo.collection('conversations').findOne({ conversationId });
    expect(row?.['waiting']).toHaveLength(3);
  });

  await startWorker(engine);
  const [told] = await Promise.all(answers);

  expect(lost).toBe(LOST);
  expect(told?.body.reply).toBe(reply);
  expect((await history(conversationId)).body.status).toBe('open');
});
