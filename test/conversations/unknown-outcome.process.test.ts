import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { openApi } from '../../src/api.ts';
import { readConfig } from '../../src/platform/process/config.ts';
import { createLifecycle } from '../../src/platform/process/lifecycle.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { anAssistant, type ChatBody, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { problemOf } from '../support/problem.ts';
import { type Command, openRelay, type Relay, through } from '../kit/relay.ts';
import { longTest, sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0 });
const lifecycle = createLifecycle(createLogger({ name: 'test', level: 'silent' }), { deadlineMs: 5_000 });
let relay: Relay;
let url: string;
/** The relay loses the response to the next command of this kind, only once, and then calls `onLost`. */
let trap: { of: (command: Command) => boolean; onLost: () => void } | null = null;
/** The next `times` commands of this kind get no answer, and neither do later commands on the same connection. */
let silent: { of: (command: Command) => boolean; times: number } | null = null;

beforeAll(async () => {
  const loses = (command: Command): (() => void) | null => {
    if (!trap?.of(command)) return null;
    const { onLost } = trap;
    trap = null;
    return onLost;
  };
  const swallows = (command: Command): boolean => {
    if (!silent?.of(command) || silent.times === 0) return false;
    silent.times -= 1;
    return true;
  };
  relay = await openRelay(inject('mongodbUrl'), { loses, swallows });
  const config = readConfig({ ...stack.env, MONGODB_URL: through(stack.env['MONGODB_URL'] ?? '', relay) });
  const api = await openApi({ config, logger: createLogger({ name: 'test', level: 'silent' }), lifecycle });
  url = `http://127.0.0.1:${api.port}`;
  // A message may be refused while a busy machine holds the loop, and the first one takes long.
  await eventually(async () => {
    const { status } = await (await aSession()).say('hello');
    if (status !== 200) throw new Error(`answered with ${status}`);
  });
});
afterAll(async () => {
  await lifecycle.close();
  await relay.cut();
});

const on = (name: string) => (command: Command) => command.name === name && command.collection === 'conversations';
const nothingMore = () => undefined;
/** Makes the server unavailable for `ms`, which must be longer than one look-up takes. */
const awayFor = (ms: number) => () => {
  void relay.cut().then(() => setTimeout(() => void relay.mend(), ms));
};

const aSession = async () => {
  const { apiKey, call, history } = await anAssistant(stack, { input: { dedupeWindowSeconds: 600 } });
  const session_id = randomUUID();
  const say = (message: string, headers: Record<string, string> = {}) =>
    request<ChatBody>(`${url}/api/v1/chat`, { body: { session_id, message }, bearer: apiKey, headers });
  /** The visitor messages and the number of replies that are stored. */
  const stored = async () => {
    const { body } = await call<{ conversations: { conversationId: string }[] }>('/api/v1/conversations');
    const [conversation] = body.conversations;
    if (!conversation) return { said: [], replies: 0 };
    const { messages } = (await history(conversation.conversationId)).body;
    return {
      said: messages.filter(({ role }) => role === 'user').map(({ content }) => content),
      replies: messages.filter(({ role }) => role === 'assistant').length,
    };
  };
  return { say, stored };
};

type Loss = [name: string, command: 'update' | 'find', onLost: () => void];
const LOST: Loss[] = [['the reading back is lost and the server away for a while', 'find', awayFor(1_500)]];
const LOST_OTHERWISE: Loss[] = [
  ['the answer to the accepting write is lost', 'update', nothingMore],
  ['the answer is lost and the server is unavailable for a while', 'update', awayFor(1_500)],
  ['the read-back of the accepted turn is lost', 'find', nothingMore],
];

test.each(sized({ everyday: LOST, long: [...LOST, ...LOST_OTHERWISE] }))(
  '%s: one turn, answered, under a first message',
  async (_name, command, onLost) => {
    const { say, stored } = await aSession();
    trap = { of: on(command), onLost };
    // An idempotency key makes the API send the `find`: the key needs the conversation's id immediately, so the API reads
    // the accepted turn back.
    const headers: Record<string, string> = command === 'find' ? { 'Idempotency-Key': randomUUID() } : {};

    const answer = await say('hello there, what are your opening hours please?', headers);

    expect(trap).toBeNull();
    expect(answer.status).toBe(200);
    expect(await stored()).toMatchObject({ said: [expect.any(String)], replies: 1 });
  },
);

longTest('an unknown outcome is resolved also for a write that reopens a resolved conversation', async () => {
  const { say, stored } = await aSession();
  const first = await say('hello there, what are your opening hours please?');
  const { conversations } = stack.service;
  const where = { conversationId: first.body.conversationId };
  await conversations.transitions.resolve(where, randomUUID());
  let updates = 0;
  // The first update is an upsert, which does not match a resolved conversation. The second update reopens the
  // conversation, and the relay loses its response.
  trap = { of: (command) => on('update')(command) && ++updates === 2, onLost: awayFor(1_500) };

  const answer = await say('and what about the weekend, are you open then?');

  expect(trap).toBeNull();
  expect(answer.status).toBe(200);
  expect(await stored()).toMatchObject({ replies: 2 });
});

// Every day, an escalation below is 500 too, and a retry of it finds it done.
longTest('an outcome that stays unknown is 500, never 503, and a retry gets the one turn', async () => {
  const { say, stored } = await aSession();
  const message = 'hello there, what are your opening hours please?';
  trap = { of: on('update'), onLost: () => void relay.cut() };

  expect(problemOf(await say(message))).toBe('500 internal_error');
  await relay.mend();
  const retried = await eventually(async () => {
    const again = await say(message);
    expect(again.status).toBe(200);
    return again;
  });

  expect(retried.headers.get('idempotent-replayed')).toBe('true');
  expect(await stored()).toEqual({ said: [message], replies: 1 });
});

test('a lost answer leaves one turn, also under an Idempotency-Key', async () => {
  const { say, stored } = await aSession();
  trap = { of: on('update'), onLost: nothingMore };
  const key = { 'Idempotency-Key': randomUUID() };

  const answers = await Promise.all([say('hello there', key), say('hello there', key)]);

  expect(answers.map(({ status }) => status)).toEqual([200, 200]);
  expect(answers[0]?.body).toEqual(answers[1]?.body);
  expect(await stored()).toEqual({ said: ['hello there'], replies: 1 });
});

test('a conversation that was erased before its accept is repeated comes back under another id', async () => {
  const { apiKey, assistantId, call } = await anAssistant(stack);
  const rows = stack.service.mongo.collection<{ assistantId: string; conversationId: string }>('conversations');
  const erasing = Promise.withResolvers<string>();
  const erase = async (): Promise<string> => {
    const { conversationId } = await eventually(async () => {
      const row = await rows.findOne({ assistantId });
      if (!row) throw new Error('the message is not stored yet');
      return row;
    });
    const { status } = await call(`/api/v1/conversations/${conversationId}`, { method: 'DELETE' });
    expect(status).toBe(204);
    await relay.mend();
    return conversationId;
  };
  trap = { of: on('update'), onLost: () => void relay.cut().then(erase).then(erasing.resolve, erasing.reject) };

  const body = { session_id: randomUUID(), message: 'hello there, what are your opening hours please?' };
  const { status } = await request<ChatBody>(`${url}/api/v1/chat`, { body, bearer: apiKey });

  expect(status).toBe(404); // what the caller waited for was erased
  const erased = await erasing.promise;
  await eventually(async () => {
    const row = await rows.findOne({ assistantId });
    expect(row?.conversationId).toEqual(expect.any(String));
    expect(row?.conversationId).not.toBe(erased); // which is purged again
  });
});

test('an escalation whose outcome is unknown is 500, never 503, and a retry finds it done', async () => {
  const { apiKey, chat, history } = await anAssistant(stack);
  const { conversationId } = (await chat({ session_id: randomUUID(), message: 'hello there' })).body;
  const escalate = () =>
    request(`${url}/api/v1/conversations/${conversationId}/escalate`, { method: 'POST', bearer: apiKey });
  trap = { of: on('findAndModify'), onLost: awayFor(1_500) };

  expect(problemOf(await escalate())).toBe('500 internal_error');
  await eventually(async () => expect((await escalate()).status).toBe(200));

  expect((await history(conversationId)).body.messages.filter(({ role }) => role === 'system')).toHaveLength(1);
});

test('silent connections delay callers only briefly, and each turn on them is stored once', async () => {
  const { say, stored } = await aSession();
  const other = await aSession();
  // At most two accepting writes can be in flight at the same time, so all later writes wait behind these two.
  silent = { of: on('update'), times: 2 };
  const message = 'hello there, what are your opening hours please?';

  const first = say(message);
  await eventually(() => expect(silent?.times).toBe(1));
  const second = other.say(message);
  await eventually(() => expect(silent?.times).toBe(0));
  const [one, two] = await Promise.all([first, second]);

  expect([one.status, two.status]).toEqual([200, 200]);
  for (const session of [{ say, stored }, other]) {
    expect((await session.say(message)).body).toEqual((session === other ? two : one).body);
    expect(await session.stored()).toEqual({ said: [message], replies: 1 });
  }
});
