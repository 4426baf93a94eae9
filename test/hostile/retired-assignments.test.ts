import { randomUUID } from 'node:crypto';
import { expect, onTestFinished, test } from 'vitest';
import { anAssistant, aTurn } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { openStack } from '../support/stack.ts';

const start = async () => {
  const stack = await openStack({ replyWorkers: 0, deliveryWorkers: 0 });
  onTestFinished(() => stack.close());
  const owner = await anOperator(stack);
  const assistant = await anAssistant(stack);
  const conversations = stack.service.mongo.collection('conversations');

  /** A conversation after these changes. Earlier releases stored the assignee also after a hand-back. */
  const aConversation = async (changes: string[]) => {
    const { body } = await assistant.chat(aTurn({ session_id: randomUUID() }), {
      headers: { Prefer: 'respond-async' },
    });
    const { conversationId } = body;
    for (const change of changes) {
      const sent = change === 'assign' ? { operatorId: owner.operatorId } : {};
      expect((await owner.post(`/conversations/${conversationId}/${change}`, sent)).status).toBe(200);
    }
    await conversations.updateOne({ conversationId }, { $set: { assigneeId: owner.operatorId } });
    return conversationId;
  };
  const mine = async () => {
    const { body } = await owner.get<{ conversations: { conversationId: string }[] }>('/inbox?assignee=me');
    return body.conversations.map(({ conversationId }) => conversationId);
  };
  return { stack, aConversation, mine };
};

test('an assignment that an earlier release kept after a hand-back, a resolve or a reopening ends', async () => {
  const { stack, aConversation, mine } = await start();
  const handedBack = ['escalate', 'assign', 'hand-back'];
  const reopened = ['escalate', 'assign', 'resolve', 'reopen'];
  await aConversation(handedBack);
  await aConversation(reopened);
  await aConversation([...handedBack, 'escalate']);
  await aConversation(['escalate', 'assign', 'resolve']);
  const kept = [
    await aConversation(['assign']),
    await aConversation(['escalate', 'assign']),
    await aConversation([...handedBack, 'assign']),
    await aConversation([...reopened, 'escalate', 'assign']),
    await aConversation(['escalate', 'resolve', 'assign']),
  ];
  expect(await mine()).toHaveLength(9);

  const worker = await stack.startReplyWorker();

  await eventually(async () => expect((await mine()).toSorted()).toEqual(kept.toSorted()));
  await eventually(async () => expect(await stack.service.mongo.collection('upgrades').countDocuments()).toBe(1));
  await worker.close();
  expect(stack.logs).toContainEqual(expect.objectContaining({ ended: 4 }));
});
