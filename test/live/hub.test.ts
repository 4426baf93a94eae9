import mongoose from 'mongoose';
import { expect, onTestFinished, test } from 'vitest';
import type { StoredConversation } from '../../src/conversations/conversation.ts';
import type { InboxRow } from '../../src/inbox/row.ts';
import { createHub } from '../../src/live/hub.ts';
import { createReadRows } from '../../src/live/rows.ts';
import { type Access, createSubscriber } from '../../src/live/subscriber.ts';
import { createLogger } from '../../src/platform/logger.ts';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { createFeed } from '../support/feed.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const OWNER: Access = { role: 'owner', assistantIds: null };

type GetMore = { cursor?: { nextBatch?: { id?: string }[] } };

/** A hub with a connection of its own, which shows what the hub has read. */
const aHub = async () => {
  const connection = mongoose.createConnection(stack.env['MONGODB_URL'] ?? '', { monitorCommands: true });
  await connection.asPromise();
  const changed = new Set<string>();
  let rounds = 0;
  const client = connection.getClient();
  client.on('commandStarted', ({ commandName }) => (rounds += commandName === 'getMore' ? 1 : 0));
  client.on('commandSucceeded', ({ commandName, reply }) => {
    if (commandName !== 'getMore') return;
    for (const { id } of (reply as GetMore).cursor?.nextBatch ?? []) if (id) changed.add(id);
  });
  const read: string[] = [];
  const toRows = async (some: StoredConversation[]): Promise<InboxRow[]> => {
    read.push(...some.map(({ _id }) => _id));
    return some as unknown as InboxRow[];
  };
  const hub = createHub({
    connection,
    readRows: createReadRows(connection, { toRows }),
    logger: createLogger({ name: 'test', level: 'silent' }),
  });
  onTestFinished(async () => {
    await hub.close();
    await connection.close();
  });

  const join = async (access: Access, from: string | null = null) => {
    let written = '';
    const write = (text: string): void => void (written += text);
    const sink = { write, end: () => undefined, destroy: () => undefined, writableLength: 0 };
    const leave = await hub.add(createSubscriber({ access, sink }), from);
    return { leave, written: () => written, position: () => written.match(/^id: (\w+)$/m)?.[1] ?? null };
  };
  /** Waits until the round of these changes is over. */
  const roundOf = async (keys: string[]): Promise<void> => {
    await eventually(() => expect([...changed]).toEqual(expect.arrayContaining(keys)));
    const after = rounds;
    await eventually(() => expect(rounds).toBeGreaterThan(after));
  };
  return { join, roundOf, read };
};

const conversationsOf = (assistantId: string, count: number) =>
  createFeed(stack.service).openConversations(assistantId, count);

test('no row is read while no browser is connected, and a browser that comes back gets what it missed', async () => {
  const { assistantId } = await anAssistant(stack);
  const { join, roundOf, read } = await aHub();
  const before = await join(OWNER);
  const from = before.position();
  before.leave();

  const keys = await conversationsOf(assistantId, 20);
  await roundOf(keys);
  const readAlone = [...read];
  const back = await join(OWNER, from);

  expect(from).not.toBeNull();
  expect(readAlone).toEqual([]);
  expect(read.toSorted()).toEqual(keys.toSorted());
  for (const key of keys) expect(back.written()).toContain(key);
  expect(back.written()).not.toContain('event: reset');
});

test('only rows of assistants are read that a connected operator may use', async () => {
  const [mine, others] = [await anAssistant(stack), await anAssistant(stack)];
  const { join, roundOf, read } = await aHub();
  const agent = await join({ role: 'agent', assistantIds: [mine.assistantId] });

  const theirs = await conversationsOf(others.assistantId, 5);
  const own = await conversationsOf(mine.assistantId, 5);
  await roundOf([...theirs, ...own]);
  const readForAgent = [...read];
  await join(OWNER);
  const later = await conversationsOf(others.assistantId, 5);
  await roundOf(later);

  expect(readForAgent.toSorted()).toEqual(own.toSorted());
  expect(read).toEqual(expect.arrayContaining(later));
  for (const key of [...theirs, ...later]) expect(agent.written()).not.toContain(key);
});
