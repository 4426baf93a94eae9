import { expect, test } from 'vitest';
import { createInboxStore, type InboxStore } from '../../src/conversations/inbox.ts';
import { createReadRows } from '../../src/live/live.ts';
import { createFeed } from '../kit/feed.ts';
import { anAssistant } from '../support/builders.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });

/** Several times as many as a round sends, so that they take many times as long as a slice on any machine. */
const COUNT = 2_000;

test('other work of the process runs while many rows are made for browsers', async () => {
  const { assistantId } = await anAssistant(stack);
  const keys = await createFeed(stack.service).openConversations(assistantId, COUNT);
  const inbox = createInboxStore(stack.service.mongo);
  let turn = 0;
  let next: NodeJS.Immediate;
  const count = (): void => {
    turn += 1;
    next = setImmediate(count);
  };
  const turns = new Set<number>();
  const readRows: InboxStore['readRows'] = async function* (...given) {
    for await (const row of inbox.readRows(...given)) {
      turns.add(turn);
      yield row;
    }
  };

  count();
  const rows = await createReadRows({ readRows }, async () => ({ find: () => null, of: () => [] }))(keys, null);
  clearImmediate(next!);

  expect(rows).toHaveLength(COUNT);
  expect(turns.size).toBeGreaterThan(3);
});
