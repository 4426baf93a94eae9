import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { act } from '../../src/conversations/state.ts';
import { momentNow } from '../../src/conversations/transitions.ts';
import { anAssistant, type ErrorBody, type HistoryBody } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { collectionIn, profileStatements } from '../support/profile.ts';
import { openReceiver, type Received } from '../kit/receiver.ts';
import { aScriptedEngine } from '../support/scripted-engine.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';

/** The engine answers `low…` with low confidence, and throws on `boom…`. */
const { engine, hold } = aScriptedEngine(({ message }) => {
  if (message.startsWith('boom')) throw new Error('the engine is broken');
  return { low: message.startsWith('low'), ...(message === 'human' && { escalate: 'user_requested' }) };
});

const stack = useStack({ engine });
const OPERATOR = '3f0e8f0a-3c1c-4f0e-9d2b-6d6a0f6b7c11';

const kinds = (received: Received[]): string[] => received.map(({ json }) => (json as { event: string }).event);
const rolesOf = ({ messages }: HistoryBody) => messages.map(({ seq, role }) => [seq, role]);

const aConversation = async () => {
  const assistant = await anAssistant(stack);
  const receiver = await openReceiver();
  await stack.service.endpoints.addEndpoint(assistant.assistantId, { url: receiver.url });
  const session_id = randomUUID();
  const { body } = await assistant.chat({ session_id, message: 'hello there' });
  const { conversationId } = body;
  const where = { conversationId };
  return {
    ...assistant,
    receiver,
    session_id,
    conversationId,
    where,
    say: (message: string) => assistant.chat({ session_id, message }),
    record: async () => (await assistant.history(conversationId)).body,
    escalate: (body?: unknown) =>
      assistant.call<{
        status: string;
        reason: string;
        leadScore: number;
        language: string;
        escalatedAt: string;
        conversationId: string;
      }>(`/api/v1/conversations/${conversationId}/escalate`, { method: 'POST', ...(body !== undefined && { body }) }),
  };
};

test('a manual escalation is announced once, keeps its first reason and silences the engine', async () => {
  const { conversationId, escalate, say, record, receiver } = await aConversation();

  const first = await escalate({ reason: 'angry', lead_score: 40 });
  const second = await escalate({ reason: 'again' });
  const held = await say('anybody there?');
  const heldAgain = await say('hello?');

  expect(first).toMatchObject({
    status: 200,
    body: {
      conversationId,
      status: 'escalated',
      reason: 'angry',
      leadScore: 40,
      language: 'en',
      escalatedAt: expect.any(String),
    },
  });
  expect(second.body).toEqual(first.body);
  expect(held.body.reply).not.toContain('echo');
  expect(held.body.suggestedActions).toBeUndefined();
  expect(heldAgain.body).toEqual({ ...held.body });
  expect(rolesOf(await record())).toEqual([
    [1, 'user'],
    [1, 'assistant'],
    [2, 'system'],
    [3, 'user'],
    [3, 'assistant'],
    [4, 'user'],
  ]);
  const received = await receiver.waitFor((all) => all.length >= 5);
  expect(kinds(received)).toEqual([
    'conversation.created',
    'message.received',
    'conversation.escalated',
    'message.received',
    'message.received',
  ]);
  expect(received[2]?.json).toMatchObject({
    payload: { conversation_id: conversationId, reason: 'angry', lead_score: 40, language: 'en' },
  });
});

test('an escalation without a body has the reason manual', async () => {
  const { escalate } = await aConversation();

  expect((await escalate()).body.reason).toBe('manual');
});

test('a handoff while a reply is being made discards it and sends the holding text', async () => {
  const { say, escalate, record } = await aConversation();
  const message = `hold ${randomUUID()}`;
  const release = hold(message);
  const pending = say(message);
  await eventually(async () => expect((await record()).messages.at(-1)).toMatchObject({ content: message, seq: null }));

  await escalate();
  release();
  const { body } = await pending;

  expect(body.reply).not.toContain('echo');
  const { messages, status } = await record();
  expect(status).toBe('escalated');
  expect(messages.some(({ content }) => content === `echo: ${message}`)).toBe(false);
  expect(messages.at(-1)).toMatchObject({ role: 'assistant', messageId: body.messageId, seq: 3 });
});

test('resolving a conversation while a reply is being made keeps the reply and the state', async () => {
  const { say, where, record } = await aConversation();
  const message = `hold ${randomUUID()}`;
  const release = hold(message);
  const pending = say(message);
  await eventually(async () => expect((await record()).messages.at(-1)?.content).toBe(message));

  await stack.service.conversations.transitions.resolve(where, OPERATOR);
  release();

  expect((await pending).body.reply).toBe(`echo: ${message}`);
  expect((await record()).status).toBe('resolved');
});

test('resolving a conversation while the assistant hands off keeps the reply and the state', async () => {
  const { say, where, record } = await aConversation();
  const release = hold('human');
  const pending = say('human');
  await eventually(async () => expect((await record()).messages.at(-1)?.content).toBe('human'));

  await stack.service.conversations.transitions.resolve(where, OPERATOR);
  release();
  const { body } = await pending;

  expect(body.reply).toBe('echo: human');
  expect(await record()).toMatchObject({ status: 'resolved', escalatedAt: null, escalationReason: null });
});

test('a lead score set while a turn is being committed is kept', async () => {
  const { conversationId, escalate, record } = await aConversation();
  await escalate();
  const { conversations } = stack.service;
  const key = (await conversations.findById(conversationId))?._id ?? '';
  const waiting = { turnId: randomUUID(), messageId: randomUUID(), message: 'x', language: 'en', replyTo: [] };
  await stack.service.mongo
    .collection<{ _id: string }>('conversations')
    .updateOne({ _id: key }, { $set: { waiting: [{ ...waiting, acceptedAt: new Date() }] } });
  const read = await conversations.findForAnswer(key);
  await escalate({ lead_score: 77 });

  const held = { kind: 'held' as const, holdingText: 'soon', leadScore: 3, leadBecause: [] };
  const committed = read && (await conversations.commit(read, [act.endTurn(read, held, momentNow())], []));

  expect(committed).toBeNull();
  expect((await record()).leadScore).toBe(77);
});

test('a playground conversation announces nothing through any operation', async () => {
  const { where, conversationId, receiver } = await aConversation();
  const { mongo, conversations } = stack.service;
  await mongo.collection('conversations').updateOne({ conversationId }, { $set: { channel: 'playground' } });

  const escalated = await conversations.transitions.escalate(where, {});
  const resolved = await conversations.transitions.resolve(where, OPERATOR);
  const tagged = await conversations.transitions.addTag(where, { tag: 'vip', color: null });

  expect([escalated, resolved, tagged].map(({ announced }) => announced)).toEqual([false, false, false]);
  const stored = await mongo.collection('conversations').findOne({ conversationId });
  expect(kinds(receiver.received)).not.toContain('conversation.escalated');
  expect(JSON.stringify(stored?.outbox ?? [])).not.toMatch(/escalated|resolved|tag/);
});

test('resolving announces who did it, and the next message opens the conversation again', async () => {
  const { conversationId, say, escalate, where, record, receiver } = await aConversation();
  await escalate();

  await stack.service.conversations.transitions.resolve(where, OPERATOR);
  await stack.service.conversations.transitions.resolve(where, OPERATOR);
  const resolved = await record();
  const replayed = await say('hello again');
  const reopened = await record();

  expect(resolved).toMatchObject({ status: 'resolved', resolvedBy: OPERATOR, resolvedAt: expect.any(String) });
  expect(replayed.body).toMatchObject({ conversationId, reply: 'echo: hello again' });
  expect(reopened).toMatchObject({
    status: 'open',
    escalatedAt: null,
    escalationReason: null,
    resolvedAt: null,
    resolvedBy: null,
  });
  const received = await receiver.waitFor((all) => all.length >= 5);
  expect(kinds(received)).toEqual([
    'conversation.created',
    'message.received',
    'conversation.escalated',
    'conversation.resolved',
    'message.received',
  ]);
  expect(received[3]?.json).toMatchObject({ payload: { conversation_id: conversationId, resolved_by: OPERATOR } });
});

test('handing back leaves a system message and lets the assistant answer again', async () => {
  const { say, escalate, where, record } = await aConversation();
  await escalate();

  await stack.service.conversations.transitions.handBack(where);
  const answer = await say('and now?');

  expect(answer.body.reply).toBe('echo: and now?');
  expect(rolesOf(await record())).toEqual([
    [1, 'user'],
    [1, 'assistant'],
    [2, 'system'],
    [3, 'system'],
    [4, 'user'],
    [4, 'assistant'],
  ]);
});

test('a new tag is announced once, with its colour or null', async () => {
  const { conversationId, where, record, receiver } = await aConversation();

  await stack.service.conversations.transitions.addTag(where, { tag: 'vip', color: '#ff0000' });
  await stack.service.conversations.transitions.addTag(where, { tag: 'vip', color: '#ff0000' });
  await stack.service.conversations.transitions.addTag(where, { tag: 'plain', color: null });

  expect((await record()).tags).toEqual([
    { tag: 'vip', color: '#ff0000' },
    { tag: 'plain', color: null },
  ]);
  const received = await receiver.waitFor((all) => all.length >= 4);
  expect(received.slice(2).map(({ json }) => (json as { payload: unknown }).payload)).toEqual([
    { conversation_id: conversationId, tag: 'vip', color: '#ff0000' },
    { conversation_id: conversationId, tag: 'plain', color: null },
  ]);
});

test('the assistant hands off when asked for a human, after two replies of low confidence, and after two engine errors', async () => {
  const cases = [
    { messages: ['human'], reason: 'user_requested' },
    { messages: ['low one', 'low two'], reason: 'low_confidence' },
    { messages: ['boom one', 'boom two'], reason: 'engine_error' },
  ];
  for (const { messages, reason } of cases) {
    const { say, record, receiver } = await aConversation();
    for (const message of messages) expect((await say(message)).status).toBe(200);

    const { status, escalationReason, messages: stored } = await record();

    expect({ status, escalationReason }).toEqual({ status: 'escalated', escalationReason: reason });
    expect(stored.at(-1)?.role).toBe('system');
    const received = await receiver.waitFor((all) => kinds(all).includes('conversation.escalated'));
    expect(received.at(-1)?.json).toMatchObject({
      payload: { reason, language: 'en', lead_score: expect.any(Number) },
    });
    await receiver.close();
  }
});

test('contact details are answered and hand the conversation to a person, if the assistant is set so', async () => {
  const { assistantId, say, record, receiver } = await aConversation();
  const message = 'When are you open? Write to ada@example.com';

  const before = await say(message);
  const without = await record();
  await stack.service.assistants.updateAssistant(assistantId, { contactsEscalate: true });
  const answered = await eventually(async () => {
    const answer = await say(`${message}, ${randomUUID()}`);
    expect((await record()).status).toBe('escalated');
    return answer;
  });
  const { messages, escalationReason } = await record();
  const [system, assistant] = messages.toReversed();
  const held = await say('Hello?');
  const again = await say('Hello, hello?');
  const received = await receiver.waitFor((all) => kinds(all).includes('conversation.escalated'));

  expect([before.body.reply, without.status]).toEqual([`echo: ${message}`, 'open']);
  expect(answered.body.reply).toMatch(/^echo: When are you open/);
  expect(escalationReason).toBe('contact_details');
  expect(system).toMatchObject({ role: 'system', content: 'Handed off to a human: contact_details' });
  expect(assistant).toMatchObject({ messageId: answered.body.messageId, content: answered.body.reply });
  expect(held.body.messageId).not.toBe(answered.body.messageId);
  expect(held.body.reply).not.toContain('echo');
  expect(again.body).toMatchObject({ reply: held.body.reply, messageId: held.body.messageId });
  expect(received.map(({ json }) => json)).toContainEqual(
    expect.objectContaining({ payload: expect.objectContaining({ reason: 'contact_details' }) as object }),
  );
});

test('a poll right after an escalation returns the system message, and the two messages of a turn share a number', async () => {
  const { conversationId, escalate, history, say } = await aConversation();
  await escalate();

  const poll = await history(conversationId, '?after_seq=1&wait=25');
  await say('Are you there?');
  const newer = await history(conversationId, '?after_seq=2&wait=25');

  expect(poll.body).toMatchObject({ status: 'escalated', messages: [{ seq: 2, role: 'system' }] });
  expect(newer.body.messages).toMatchObject([
    { seq: 3, role: 'user' },
    { seq: 3, role: 'assistant' },
  ]);
});

test('a long poll returns an operator reply as soon as it is written, and no earlier message', async () => {
  const { conversationId, history, where } = await aConversation();

  const poll = history(conversationId, '?after_seq=1&wait=10');
  const startedAt = performance.now();
  await stack.service.conversations.transitions.replyAsOperator(where, 'I am a person');
  const { body } = await poll;

  expect(performance.now() - startedAt).toBeLessThan(atPace(2_000));
  expect(body.messages).toMatchObject([{ seq: 2, role: 'operator', content: 'I am a person' }]);
  const nothing = await history(conversationId, '?after_seq=2&wait=1');
  expect(nothing.body.messages).toEqual([]);
});

test('history comes in pages of at most the limit, each message once, pending ones last', async () => {
  const { conversationId, history, say } = await aConversation();
  for (let count = 0; count < 4; count += 1) await say(`turn ${count}`);
  const message = `hold ${randomUUID()}`;
  const release = hold(message);
  const pending = say(message);
  await eventually(async () => expect((await history(conversationId)).body.messages.at(-1)?.seq).toBeNull());
  const whole = (await history(conversationId)).body.messages;

  for (const limit of [1, 3, 1000]) {
    const paged: HistoryBody['messages'] = [];
    let query = `?limit=${limit}`;
    for (let hasMore = true; hasMore; ) {
      const { body } = await history(conversationId, query);
      expect(body.messages.length).toBeLessThanOrEqual(limit);
      paged.push(...body.messages);
      hasMore = body.hasMore;
      query = `?limit=${limit}&cursor=${body.nextCursor}`;
    }
    expect(paged).toEqual(whole);
  }
  release();
  await pending;
});

test('conversations are listed oldest change first, by session, and by what changed after a time', async () => {
  const { chat, call } = await anAssistant(stack);
  const ids: string[] = [];
  for (let count = 0; count < 5; count += 1)
    ids.push((await chat({ session_id: `list-${count}`, message: 'hello' })).body.conversationId);
  type List = {
    conversations: { conversationId: string; updatedAt: string }[];
    hasMore: boolean;
    nextCursor: string | null;
  };

  const first = (await call<List>('/api/v1/conversations?limit=3')).body;
  const rest = (await call<List>(`/api/v1/conversations?limit=3&cursor=${first.nextCursor}`)).body;
  const one = (await call<List>('/api/v1/conversations?session_id=list-2')).body;
  const after = (await call<List>(`/api/v1/conversations?updated_after=${first.conversations[2]?.updatedAt}`)).body;

  expect([...first.conversations, ...rest.conversations].map(({ conversationId }) => conversationId)).toEqual(ids);
  expect(first).toMatchObject({ hasMore: true });
  expect(rest).toMatchObject({ hasMore: false, nextCursor: null });
  expect(one.conversations.map(({ conversationId }) => conversationId)).toEqual([ids[2]]);
  expect(after.conversations.map(({ conversationId }) => conversationId)).toEqual(ids.slice(3));
});

test('an erased conversation leaves no trace, its waiting caller gets 404, and the session can start again', async () => {
  const { assistantId, conversationId, call, say, history } = await aConversation();
  const message = `hold ${randomUUID()}`;
  const release = hold(message);
  const pending = say(message);
  await eventually(async () => expect((await history(conversationId)).body.messages.at(-1)?.content).toBe(message));

  const erased = await call<null>(`/api/v1/conversations/${conversationId}`, { method: 'DELETE' });
  const waiting = await pending;
  release();
  const gone = await call<ErrorBody>(`/api/v1/conversations/${conversationId}`);
  const anew = await say('hello again');

  expect(erased.status).toBe(204);
  expect(waiting).toMatchObject({ status: 404, body: { error: { code: 'not_found' } } });
  expect(gone.status).toBe(404);
  expect(anew.status).toBe(200);
  expect(anew.body.conversationId).not.toBe(conversationId);
  const { body: record } = await history(anew.body.conversationId);
  expect(record.messages.map(({ content }) => content)).toEqual(['hello again', 'echo: hello again']);
  await eventually(async () => {
    const { deliveries } = await stack.service.deliveries.listRecords({ assistantId, conversationId });
    const whole = await stack.service.deliveries.readByIds(deliveries.map(({ _id }) => _id));
    expect(
      [...whole.values()].every(({ body, responseBody }) => body === undefined && responseBody === undefined),
    ).toBe(true);
    const left = await stack.service.mongo.collection('messages').countDocuments({ conversationId });
    expect(left).toBe(0);
  });
});

test('erasures of one conversation that arrive together do not all list and delete its messages', async () => {
  const PAGES = sized({ everyday: 1_500, long: 6_000 });
  const { conversationId, call } = await aConversation();
  const pages = stack.service.mongo.collection<{ _id: string }>('messages');
  const pageId = (page: number) => `${conversationId}:${String(page).padStart(12, '0')}`;
  await pages.insertMany(
    Array.from({ length: PAGES }, (_, page) => ({ _id: pageId(page), conversationId, entries: [] })),
  );
  const own = { _id: { $gte: pageId(0), $lte: pageId(PAGES) } };
  const erase = () => call(`/api/v1/conversations/${conversationId}`, { method: 'DELETE' });

  const statements = await profileStatements(stack, async () => {
    await Promise.all(Array.from({ length: sized({ everyday: 12, long: 40 }) }, erase));
    // A purge that takes longer than a second goes on after the answer.
    await eventually(async () => expect(await pages.countDocuments(own)).toBe(0));
  });

  const listed = statements.filter((one) => collectionIn(one) === 'messages' && one.op !== 'remove');
  expect(listed.reduce((sum, { nreturned = 0 }) => sum + nreturned, 0)).toBeLessThanOrEqual(4 * PAGES);
});

test('erasing a long conversation removes its pages of messages too', async () => {
  const { conversationId, call, say } = await aConversation();
  const pages = stack.service.mongo.collection('messages');
  for (let nth = 0; nth < 12; nth += 1) expect((await say(`message ${nth}`)).status).toBe(200);
  expect(await pages.countDocuments({ conversationId })).toBeGreaterThan(0);

  const erased = await call<null>(`/api/v1/conversations/${conversationId}`, { method: 'DELETE' });

  expect(erased.status).toBe(204);
  await eventually(async () => expect(await pages.countDocuments({ conversationId })).toBe(0), 5_000);
});

test("another assistant's conversation, an unknown one and a malformed id look the same", async () => {
  const { conversationId } = await aConversation();
  const stranger = await anAssistant(stack);

  for (const id of [conversationId, randomUUID(), 'not-an-id', '%00']) {
    for (const [method, path] of [
      ['GET', ''],
      ['DELETE', ''],
      ['POST', '/escalate'],
    ]) {
      const answer = await stranger.call<ErrorBody>(`/api/v1/conversations/${id}${path}`, { method: method as string });
      expect([answer.status, answer.body.error.code]).toEqual([404, 'not_found']);
    }
  }
});

test('a long poll returns the state at its end, also without a new message', async () => {
  const { conversationId, history, where } = await aConversation();

  const poll = history(conversationId, '?after_seq=1&wait=1');
  await stack.service.conversations.transitions.addTag(where, { tag: 'seen', color: null });
  const { body } = await poll;

  expect(body.messages).toEqual([]);
  expect(body.tags).toEqual([{ tag: 'seen', color: null }]);
});
