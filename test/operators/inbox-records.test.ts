import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { anAssistant, aTurn } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { openReceiver } from '../kit/receiver.ts';
import { sized } from '../support/size.ts';
import { useOpened, useStack } from '../support/stack.ts';

const stack = useStack();
const owner = useOpened(() => anOperator(stack));

type Note = { noteId: string; operatorId: string; content: string };
type Read = { notes: Note[]; messages: { content: string; seq: number | null }[] };
type Events = {
  events: { event: string; seq: number | null; at: string; deliveries: { outcome: string; status: number | null }[] }[];
};
type Tags = { tags: { tag: string; color: string | null }[] };
type CannedReply = { cannedReplyId: string; title: string; content: string };

const aConversation = async () => {
  const { assistantId, apiKey, chat, history, call } = await anAssistant(stack);
  const session_id = `visitor-${randomUUID()}`;
  const say = (message: string) => chat(aTurn({ session_id, message }));
  const { conversationId: id } = (await say('What are your opening hours?')).body;
  return { assistantId, apiKey, owner, say, history, call, session_id, id, path: `/conversations/${id}` };
};

/** Where a conversation leaves something, and whether the export has it or why it has not. */
const LEFT_IN: Record<string, string> = {
  conversations: 'exported',
  notes: 'exported',
  readPositions: 'exported',
  deliveries: 'exported',
  misses: 'exported',
  search: 'made from the messages',
  idempotencyKeys: 'names a turn',
};

// First, because it reads all that is stored, again and again.
test('an export has everything that an erasure deletes, and nothing else is stored', async () => {
  const { owner, assistantId, id, path, say, call } = await aConversation();
  const receiver = await openReceiver();
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  await say('Xylophone quantum zebra?');
  await owner.post(`${path}/notes`, { content: 'A note' });
  await owner.post(`${path}/read`, { seq: 1 });
  const leftIn = async (): Promise<string[]> => {
    const all = await stack.service.mongo.listCollections();
    const found = await Promise.all(
      all.map(async ({ name }) => {
        const rows = await stack.service.mongo.collection(name).find().toArray();
        return rows.some((row) => JSON.stringify(row).includes(id)) ? name : null;
      }),
    );
    // The trail of who did what, and the mark of the erasure, have ids and no text.
    return found.filter((name) => name !== null && !['audit', 'tombstones', 'sessions'].includes(name)) as string[];
  };
  const expected = ['conversations', 'deliveries', 'misses', 'notes', 'readPositions', 'search'];
  await eventually(async () => expect(await leftIn()).toEqual(expect.arrayContaining(expected)));
  await eventually(async () => {
    const { body } = await owner.get<{ deliveries: object[] }>(`${path}/export`);
    expect(body.deliveries).toContainEqual(expect.objectContaining({ outcome: 'delivered', body: expect.any(String) }));
  });

  const { body } = await owner.get(`${path}/export`);
  const stored = await leftIn();
  await call(`/api/v1/conversations/${id}`, { method: 'DELETE' });

  expect(stored.filter((name) => LEFT_IN[name] === undefined)).toEqual([]);
  expect(body).toMatchObject({
    conversation: { leadBecause: expect.any(Array) },
    notes: [{ content: 'A note' }],
    readPositions: [{ operatorId: owner.operatorId, seq: 1 }],
    misses: [{ examples: [{ question: 'Xylophone quantum zebra?' }] }],
    messages: expect.arrayContaining([expect.objectContaining({ why: expect.any(Object) })]),
  });
  // A record stays without its texts, because without it the event could be claimed again.
  await eventually(async () => expect(await leftIn()).toEqual(['deliveries']));
});

test('a note is seen by operators, and never by callers or in events', async () => {
  const receiver = await openReceiver();
  const { assistantId, owner, history, call, id, path, say } = await aConversation();
  const agent = await anOperator(stack, 'agent');
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const content = 'Ask Bo first: <script>alert(1)</script>\nSecond line';

  const made = await agent.post<Note>(`${path}/notes`, { content });
  await eventually(async () => {
    await say('Thanks');
    expect(receiver.received.length).toBeGreaterThan(0);
  });
  const read = await owner.get<Read>(path);
  const trail = await owner.get(`/audit?target=${id}`);

  expect([made.status, made.body]).toMatchObject([201, { operatorId: agent.operatorId, content }]);
  expect(read.body.notes).toEqual([made.body]);
  const seen = [await history(id), await call('/api/v1/conversations'), receiver.received.map(({ json }) => json)];
  expect(JSON.stringify(seen)).not.toContain('Ask Bo');
  expect(JSON.stringify([trail.body, stack.logs])).not.toContain('Ask Bo');
  expect(trail.body).toMatchObject({ lines: [{ action: 'conversation.note', details: { noteId: made.body.noteId } }] });
});

test('a note is deleted by its author or an owner only', async () => {
  const { owner, path } = await aConversation();
  const [author, other] = [await anOperator(stack, 'agent'), await anOperator(stack, 'agent')];
  const add = async () => (await author.post<Note>(`${path}/notes`, { content: 'mine' })).body.noteId;
  const [first, second] = [await add(), await add()];

  const refused = await other.call('DELETE', `${path}/notes/${first}`);
  const own = await author.call('DELETE', `${path}/notes/${first}`);
  const twice = await author.call('DELETE', `${path}/notes/${first}`);
  const byOwner = await owner.call('DELETE', `${path}/notes/${second}`);

  expect([problemOf(refused), own.status, problemOf(twice), byOwner.status]).toEqual([
    '403 forbidden',
    204,
    '404 not_found',
    204,
  ]);
  expect((await owner.get<Read>(path)).body.notes).toEqual([]);
});

test.each([
  ['empty', ''],
  ['blank', ' \n '],
  ['too long', 'x'.repeat(4_001)],
  ['not well-formed', '\ud800'],
  ['with NUL', 'a\0b'],
  ['a number', 7],
])('a note that is %s is refused', async (_name, content) => {
  const { owner, path } = await aConversation();

  expect(problemOf(await owner.post(`${path}/notes`, { content }))).toBe('422 validation_failed content');
});

test('the longest note is kept, and a conversation has at most 500 notes', async () => {
  const { owner, id, path } = await aConversation();
  const content = '𝒳'.repeat(2_000);
  const { body } = await owner.post<Note>(`${path}/notes`, { content });
  await stack.service.mongo.collection<{ _id: string }>('notes').insertMany(
    Array.from({ length: 499 }, () => ({
      _id: `${id}:${randomUUID()}`,
      operatorId: owner.operatorId,
      content: 'n',
      createdAt: new Date(),
    })),
  );

  const refused = await owner.post(`${path}/notes`, { content });

  expect(body.content).toBe(content);
  expect(problemOf(refused)).toBe('422 validation_failed content');
});

test('an owner erases a conversation for good, with its notes; an agent may not', async () => {
  const { owner, say, id, path, call } = await aConversation();
  const agent = await anOperator(stack, 'agent');
  await owner.post(`${path}/notes`, { content: 'secret' });
  await owner.post(`${path}/read`, { seq: 1 });

  const refused = await agent.call('DELETE', path);
  const erased = await owner.call('DELETE', path);
  const again = await owner.call('DELETE', path);
  const anew = await say('Hello again');

  expect([problemOf(refused), erased.status, problemOf(again)]).toEqual(['403 forbidden', 204, '404 not_found']);
  expect(problemOf(await owner.post(`${path}/notes`, { content: 'late' }))).toBe('404 not_found');
  expect(anew.body.conversationId).not.toBe(id);
  expect((await call(`/api/v1/conversations/${id}`)).status).toBe(404);
  for (const name of ['notes', 'readPositions', 'messages'])
    expect(
      await stack.service.mongo.collection<{ _id: string }>(name).countDocuments({ _id: { $regex: `^${id}` } }),
    ).toBe(0);
  expect((await owner.get(`/audit?target=${id}`)).body).toMatchObject({
    lines: [{ action: 'conversation.erase' }, { action: 'conversation.note' }],
  });
});

test('a conversation never has more than 500 notes, however many are added at once', async () => {
  const { owner, id, path } = await aConversation();
  const notes = stack.service.mongo.collection<{ _id: string }>('notes');
  const old = { operatorId: owner.operatorId, content: 'old', createdAt: new Date() };
  await notes.insertMany(Array.from({ length: 495 }, () => ({ _id: `${id}:${randomUUID()}`, ...old })));

  const added = await Promise.all(
    Array.from({ length: 12 }, (_, nth) => owner.post(`${path}/notes`, { content: `${nth}` })),
  );
  const { body } = await owner.get<{ notes: { content: string }[] }>(path);

  const accepted = added.filter(({ status }) => status === 201).map(({ body: note }) => note['content']);
  expect(body.notes.length).toBeLessThanOrEqual(500);
  expect(
    body.notes
      .map(({ content }) => content)
      .filter((content) => content !== 'old')
      .toSorted(),
  ).toEqual(accepted.toSorted());
  const refused = added.filter(({ status }) => status !== 201).map(problemOf);
  expect(refused).toEqual(Array(12 - accepted.length).fill('422 validation_failed content'));
  expect(refused.length).toBeGreaterThanOrEqual(7);
});

test('notes that are added while a conversation is erased do not stay', async () => {
  const { owner, id, path } = await aConversation();
  const add = () => owner.post(`${path}/notes`, { content: 'meanwhile' });

  const [before, ...during] = await Promise.all([
    add(),
    add(),
    owner.call('DELETE', path),
    ...Array.from({ length: 8 }, add),
    owner.post(`${path}/read`, { seq: 1 }),
  ]);

  expect([201, 404]).toContain(before.status);
  expect(during.map(({ status }) => status)).toContain(204);
  const notes = stack.service.mongo.collection<{ _id: string }>('notes');
  expect(await notes.countDocuments({ _id: { $regex: `^${id}` } })).toBe(0);
});

test('a playground conversation cannot be erased, exported or noted as a conversation of a visitor', async () => {
  const { assistantId, owner } = await aConversation();
  const turn = { sessionId: 'try', message: 'What are your opening hours?' };
  const { body } = await owner.post<{ conversationId: string }>(`/assistants/${assistantId}/playground`, turn);
  const path = `/conversations/${body.conversationId}`;

  expect(problemOf(await owner.call('DELETE', path))).toBe('404 not_found');
  expect(problemOf(await owner.get(`${path}/export`))).toBe('404 not_found');
  expect((await owner.get(path)).status).toBe(200);
});

/** More than a page of history has. */
const REPLIES = sized({ everyday: 55, long: 210 });

test('an export has everything about the conversation, also beyond one page of history', async () => {
  const { owner, assistantId, id, path, session_id } = await aConversation();
  await owner.post(`${path}/notes`, { content: 'A note' });
  await owner.post(`${path}/tags`, { tag: 'vip' });
  for (let nth = 0; nth < REPLIES; nth += 1) await owner.post(`${path}/replies`, { content: `reply ${nth}` });

  const { status, body, headers } = await owner.get<Read & { conversation: object }>(`${path}/export`);

  expect(status).toBe(200);
  expect(headers.get('content-disposition')).toBe(`attachment; filename="conversation-${id}.json"`);
  expect(body).toMatchObject({
    conversation: { conversationId: id, assistantId, sessionId: session_id, tags: [{ tag: 'vip', color: null }] },
    attributes: {},
    notes: [{ content: 'A note' }],
  });
  expect(body.messages.map(({ seq }) => seq)).toEqual([1, 1, ...Array.from({ length: REPLIES }, (_, nth) => nth + 2)]);
  expect((await owner.get(`/audit?target=${id}&action=conversation.export`)).body).toMatchObject({ lines: [{}] });
});

test('events are listed newest first, with their message and the state of each delivery', async () => {
  const { assistantId, owner, say, path } = await aConversation();
  const receiver = await openReceiver({
    respond: ({ json }) => ({ status: JSON.stringify(json).includes('tag.added') ? 500 : 200 }),
  });
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const unreachable = await stack.service.endpoints.addEndpoint(assistantId, {
    url: receiver.url,
    events: ['tag.added'],
  });
  await owner.call('PATCH', `/endpoints/${unreachable.endpoint.endpointId}`, { enabled: true });
  await eventually(async () => {
    await say('Another question');
    expect(receiver.received.length).toBeGreaterThan(0);
  });
  await owner.post(`${path}/escalate`, {});
  await owner.post(`${path}/tags`, { tag: 'vip' });

  const listed = await eventually(async () => {
    const { body } = await owner.get<Events>(`${path}/events`);
    expect(body.events[0]).toMatchObject({ event: 'tag.added' });
    expect(
      body.events
        .flatMap(({ deliveries }) => deliveries)
        .every(({ outcome }) => !['queued', 'sending'].includes(outcome)),
    ).toBe(true);
    return body.events;
  });

  const read = await owner.get<Read>(path);
  const last = read.body.messages.at(-1)?.seq ?? 0;
  expect(listed.slice(0, 3)).toMatchObject([
    { event: 'tag.added', seq: null },
    { event: 'conversation.escalated', seq: last, deliveries: [{ outcome: 'delivered', status: 200 }] },
    { event: 'message.received', seq: last - 1, deliveries: [{ outcome: 'delivered' }] },
  ]);
  expect(listed[0]?.deliveries.map(({ outcome, status }) => [outcome, status])).toEqual([
    ['rejected', 500],
    ['rejected', 500],
  ]);
  expect(listed.map(({ at }) => at)).toEqual(
    listed
      .map(({ at }) => at)
      .toSorted()
      .toReversed(),
  );
});

test('managed tags are replaced as a whole, and give their colour to a conversation', async () => {
  const { assistantId, owner, id, path } = await aConversation();
  const agent = await anOperator(stack, 'agent');
  const list = `/assistants/${assistantId}/tags`;
  const tags = [
    { tag: 'vip', color: '#1e90ff' },
    { tag: 'plain', color: null },
  ];

  const empty = await agent.get<Tags>(list);
  const set = await owner.call<Tags>('PUT', list, { tags: [tags[0], { tag: 'plain' }] });
  const read = await agent.get<Tags>(list);
  const refused = await agent.call('PUT', list, { tags: [] });
  const coloured = await agent.post<Tags>(`${path}/tags`, { tag: 'vip' });
  const own = await agent.post<Tags>(`${path}/tags`, { tag: 'vip', color: '#ff0000' });
  const free = await agent.post<Tags>(`${path}/tags`, { tag: 'not managed' });
  await owner.call('PUT', list, { tags: [] });

  expect([empty.body, set.body, read.body]).toEqual([{ tags: [] }, { tags }, { tags }]);
  expect(problemOf(refused)).toBe('403 forbidden');
  expect(coloured.body.tags).toEqual([{ tag: 'vip', color: '#1e90ff' }]);
  expect(own.body.tags).toEqual([{ tag: 'vip', color: '#ff0000' }]);
  expect(free.body.tags).toEqual([
    { tag: 'vip', color: '#ff0000' },
    { tag: 'not managed', color: null },
  ]);
  expect((await agent.get<Tags>(list)).body.tags).toEqual([]);
  expect(JSON.stringify((await owner.get(`/audit?target=${assistantId}`)).body)).toContain('assistant.tags');
  expect((await owner.get(`/conversations/${id}`)).body).toMatchObject({ tags: free.body.tags });
});

test.each([
  ['101 tags', Array.from({ length: 101 }, (_, nth) => ({ tag: `t${nth}` })), 'tags'],
  ['a tag twice', [{ tag: 'a' }, { tag: 'a', color: '#000000' }], 'tags'],
  ['a wrong colour', [{ tag: 'a', color: 'red' }], 'tags.0.color'],
  ['a line break', [{ tag: 'a\nb' }], 'tags.0.tag'],
  ['no list', 'vip', 'tags'],
])('managed tags with %s are refused, and the old ones stay', async (_name, tags, field) => {
  const { assistantId, owner } = await aConversation();
  const list = `/assistants/${assistantId}/tags`;
  await owner.call('PUT', list, { tags: [{ tag: 'old' }] });

  expect(problemOf(await owner.call('PUT', list, { tags }))).toBe(`422 validation_failed ${field}`);
  expect((await owner.get<Tags>(list)).body).toEqual({ tags: [{ tag: 'old', color: null }] });
  expect(problemOf(await owner.call('PUT', `/assistants/${randomUUID()}/tags`, { tags: [] }))).toBe('404 not_found');
});

test('canned replies keep their placeholders, and are changed and removed once', async () => {
  const { assistantId, owner } = await aConversation();
  const agent = await anOperator(stack, 'agent');
  const list = `/assistants/${assistantId}/canned-replies`;
  const content = 'Hello {{session_id}},\n{{attribute.plan}} {{language}} {{nonsense}} {{$where}} — {{agent}}';

  const second = await agent.post<CannedReply>(list, { title: 'B', content });
  const first = await owner.post<CannedReply>(list, { title: 'A', content: 'Hi' });
  const one = `/canned-replies/${second.body.cannedReplyId}`;
  const changed = await agent.call<CannedReply>('PATCH', one, { title: '0' });
  const { body: listed } = await agent.get<{ cannedReplies: CannedReply[] }>(list);
  const removed = await Promise.all([agent.call('DELETE', one), owner.call('DELETE', one)]);
  const gone = await agent.call('PATCH', one, { title: 'x' });

  expect([first.status, second.body.content]).toEqual([201, content]);
  expect(changed.body).toMatchObject({ title: '0', content, assistantId });
  expect(listed.cannedReplies.map(({ title }) => title)).toEqual(['0', 'A']);
  expect(removed.map(({ status }) => status)).toContain(204);
  expect(problemOf(gone)).toBe('404 not_found');
  const trail = JSON.stringify((await owner.get(`/audit?target=${second.body.cannedReplyId}`)).body);
  for (const action of ['canned_reply.add', 'canned_reply.update', 'canned_reply.remove'])
    expect(trail).toContain(action);
  expect(trail).not.toContain('nonsense');
});

test.each([
  [{ title: '', content: 'x' }, 'title'],
  [{ title: 'x'.repeat(81), content: 'x' }, 'title'],
  [{ title: 'two\nlines', content: 'x' }, 'title'],
  [{ title: 'x', content: 'x'.repeat(4_001) }, 'content'],
  [{ title: 'x' }, 'content'],
])('the canned reply %o is refused', async (input, field) => {
  const { assistantId, owner } = await aConversation();

  const refused = await owner.post(`/assistants/${assistantId}/canned-replies`, input);

  expect(problemOf(refused)).toBe(`422 validation_failed ${field}`);
});

test('an assistant never has more than 500 canned replies, however many are added at once', async () => {
  const { owner, assistantId } = await aConversation();
  const replies = stack.service.mongo.collection<{ _id: string }>('cannedReplies');
  const [createdAt, updatedAt] = [new Date(), new Date()];
  const old = { assistantId, title: 'old', content: 'old', createdAt, updatedAt };
  await replies.insertMany(Array.from({ length: 495 }, () => ({ _id: randomUUID(), ...old })));
  const path = `/assistants/${assistantId}/canned-replies`;

  const added = await Promise.all(
    Array.from({ length: 12 }, (_, nth) => owner.post(path, { title: `new ${nth}`, content: 'x' })),
  );
  const { body } = await owner.get<{ cannedReplies: CannedReply[] }>(path);

  const accepted = added.filter(({ status }) => status === 201).map(({ body: reply }) => reply['title']);
  expect(body.cannedReplies.length).toBeLessThanOrEqual(500);
  expect(body.cannedReplies.map(({ title }) => title).filter((title) => title !== 'old')).toEqual(accepted.sort());
});
