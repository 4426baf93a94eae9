import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { anAssistant, type ChatBody, type ErrorBody, type TestAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { aScriptedEngine } from '../support/scripted-engine.ts';
import { useStack } from '../support/stack.ts';

const { engine, hold } = aScriptedEngine(() => ({
  suggestedActions: [{ label: 'More', type: 'reply', payload: 'more' }],
  why: { secret: 1 },
}));

const aHeld = () => {
  const message = `hold ${randomUUID()}`;
  return { message, release: hold(message) };
};

const stack = useStack({ engine });

type AcceptedBody = { conversationId: string; turnId: string; status: string };
type TurnBody = AcceptedBody & Partial<ChatBody>;

const ASYNC = { Prefer: 'respond-async' };
const send = ({ call }: TestAssistant, body: Record<string, unknown>, headers: Record<string, string> = ASYNC) =>
  call<AcceptedBody>('/api/v1/chat', { body, headers });
const look = ({ call }: TestAssistant, turnId: string) => call<TurnBody>(`/api/v1/turns/${turnId}`);

const answered = (assistant: TestAssistant, turnId: string): Promise<TurnBody> =>
  eventually(async () => {
    const { body } = await look(assistant, turnId);
    expect(body.status).toBe('answered');
    return body;
  });

test('a turn is accepted with 202 at once and can be read until it is answered', async () => {
  const assistant = await anAssistant(stack);
  const session_id = randomUUID();
  const { message, release } = aHeld();

  const accepted = await send(assistant, { session_id, message });
  const behind = await send(assistant, { session_id, message: 'next' });

  const { turnId, conversationId } = accepted.body;
  expect(accepted.status).toBe(202);
  expect(accepted.body).toEqual({ conversationId, turnId, status: 'accepted' });
  expect(accepted.headers.get('location')).toBe(`/api/v1/turns/${turnId}`);
  expect(accepted.headers.get('preference-applied')).toBe('respond-async');
  expect(accepted.headers.get('idempotent-replayed')).toBeNull();
  await eventually(async () =>
    expect((await look(assistant, turnId)).body).toEqual({ turnId, conversationId, status: 'answering' }),
  );
  expect((await look(assistant, behind.body.turnId)).body.status).toBe('accepted');

  release();
  const turn = await answered(assistant, turnId);
  const { messages } = (await assistant.history(conversationId)).body;
  expect(turn).toEqual({
    turnId,
    conversationId,
    status: 'answered',
    reply: `echo: ${message}`,
    suggestedActions: [{ label: 'More', type: 'reply', payload: 'more' }],
    messageId: messages[1]?.messageId,
  });
  await answered(assistant, behind.body.turnId);
});

test.each(['respond-async, wait=10', 'wait=10, Respond-Async', 'respond-async; x=1'])(
  'the preference is understood as "%s"',
  async (Prefer) => {
    const assistant = await anAssistant(stack);

    expect((await send(assistant, { session_id: randomUUID(), message: 'hi' }, { Prefer })).status).toBe(202);
  },
);

test('other preferences change nothing, and neither does the preference on the channel', async () => {
  const assistant = await anAssistant(stack);
  await stack.service.assistants.setChannel(assistant.assistantId, { connected: true, token: null });
  const body = { session_id: randomUUID(), message: 'hi' };

  const other = await send(assistant, body, { Prefer: 'wait=10, not-respond-async' });
  const channel = await assistant.call(`/api/v1/channels/webhook/${assistant.assistantId}`, { body, headers: ASYNC });

  expect([other.status, channel.status]).toEqual([200, 200]);
  expect(other.headers.get('preference-applied')).toBeNull();
});

test('a wrong request gets its error at once and is not accepted', async () => {
  const assistant = await anAssistant(stack);

  const blank = await send(assistant, { session_id: randomUUID(), message: ' ' });
  const stranger = await assistant.call('/api/v1/chat', { body: {}, headers: ASYNC, bearer: null });

  expect([blank.status, stranger.status]).toEqual([422, 401]);
});

test('a repeated message joins the turn in flight, and later gets the known turn', async () => {
  const assistant = await anAssistant(stack);
  const session_id = randomUUID();
  const { message, release } = aHeld();
  const first = await send(assistant, { session_id, message });

  const joined = await send(assistant, { session_id, message });
  release();
  await answered(assistant, first.body.turnId);
  const replayed = await send(assistant, { session_id, message });
  const blocking = await assistant.chat({ session_id, message });

  for (const one of [joined, replayed]) {
    expect(one).toMatchObject({ status: 202, body: first.body });
    expect(one.headers.get('idempotent-replayed')).toBe('true');
    expect(one.headers.get('location')).toBe(`/api/v1/turns/${first.body.turnId}`);
  }
  expect(blocking.headers.get('idempotent-replayed')).toBe('true');
  expect(blocking.body.messageId).toBe((await look(assistant, first.body.turnId)).body.messageId);
  expect((await assistant.history(first.body.conversationId)).body.messages).toHaveLength(2);
});

test('a waiting caller joins an asynchronous turn, and the other way round', async () => {
  const assistant = await anAssistant(stack);
  const session_id = randomUUID();
  const [one, other] = [aHeld(), aHeld()];

  const accepted = await send(assistant, { session_id, message: one.message });
  const waiting = assistant.chat({ session_id, message: one.message });
  const alsoWaiting = assistant.chat({ session_id, message: other.message });
  await eventually(async () =>
    expect((await assistant.history(accepted.body.conversationId)).body.messages).toHaveLength(2),
  );
  const joined = await send(assistant, { session_id, message: other.message });
  // When this request has read the pending turns, the join that was sent before it is stored.
  await look(assistant, accepted.body.turnId);
  one.release();
  other.release();
  const [first, second] = await Promise.all([waiting, alsoWaiting]);

  expect([first.status, second.status, joined.status]).toEqual([200, 200, 202]);
  expect(first.body.messageId).toBe((await answered(assistant, accepted.body.turnId)).messageId);
  expect(second.body.messageId).toBe((await answered(assistant, joined.body.turnId)).messageId);
});

test('a 202 counts as delivered when answered: later the same message is a new turn, even if nobody read the reply', async () => {
  const assistant = await anAssistant(stack, { input: { dedupeWindowSeconds: 0 } });
  const session_id = randomUUID();
  const { message, release } = aHeld();
  const waits = assistant.chat({ session_id, message });
  await eventually(async () => {
    const { conversations } = await stack.service.conversations.list({ assistantId: assistant.assistantId });
    expect(conversations).toHaveLength(1);
  });
  release();
  await waits;

  const first = await send(assistant, { session_id, message: 'yes' });
  await answered(assistant, first.body.turnId);
  const second = await send(assistant, { session_id, message: 'yes' });

  expect(second.headers.get('idempotent-replayed')).toBeNull();
  expect(second.body.turnId).not.toBe(first.body.turnId);
});

test('an Idempotency-Key also works for asynchronous turns', async () => {
  const assistant = await anAssistant(stack);
  const body = { session_id: randomUUID(), message: 'hello' };
  const headers = { ...ASYNC, 'Idempotency-Key': randomUUID() };

  const first = await send(assistant, body, headers);
  await answered(assistant, first.body.turnId);
  await assistant.chat({ ...body, message: 'something else' });
  const again = await send(assistant, body, headers);
  const reused = await send(assistant, { ...body, message: 'another' }, headers);

  expect(again).toMatchObject({ status: 202, body: { turnId: first.body.turnId } });
  expect(again.headers.get('idempotent-replayed')).toBe('true');
  expect(reused.status).toBe(422);
});

test('a failed turn is shown as failed, and sending it again resumes it under its id', async () => {
  const assistant = await anAssistant(stack);
  const session_id = randomUUID();
  const { message, release } = aHeld();
  const head = await send(assistant, { session_id, message });
  const { turnId } = (await send(assistant, { session_id, message: 'poison' })).body;
  // Sets the state after three workers have died while they answered the turn.
  await stack.service.redis.set(`{${stack.env.REDIS_PREFIX}-0}:tries:${turnId}`, '3');

  release();
  await eventually(async () => expect((await look(assistant, turnId)).body.status).toBe('failed'));
  const again = await send(assistant, { session_id, message: 'poison' });

  expect((await look(assistant, head.body.turnId)).body.status).toBe('answered');
  expect(again.body.turnId).toBe(turnId);
  expect((await answered(assistant, turnId)).reply).toBe('echo: poison');
});

test('a handoff answers a turn in flight with the holding text', async () => {
  const assistant = await anAssistant(stack);
  const { message, release } = aHeld();
  const { body } = await send(assistant, { session_id: randomUUID(), message });

  await assistant.call(`/api/v1/conversations/${body.conversationId}/escalate`, { method: 'POST' });
  release();

  expect((await answered(assistant, body.turnId)).reply).not.toContain('echo');
});

test("a malformed id, an unknown one, another assistant's, an erased and an old one look the same", async () => {
  const [assistant, other] = await Promise.all([anAssistant(stack), anAssistant(stack)]);
  const turn = async () => {
    const { body } = await send(assistant, { session_id: randomUUID(), message: 'hello' });
    await answered(assistant, body.turnId);
    return body;
  };
  const [kept, erased, old] = [await turn(), await turn(), await turn()];
  await assistant.call(`/api/v1/conversations/${erased.conversationId}`, { method: 'DELETE' });
  await stack.service.mongo
    .collection('conversations')
    .updateOne(
      { conversationId: old.conversationId },
      { $set: { 'recent.0.finishedAt': new Date(Date.now() - 86_500_000) } },
    );

  const gone = await Promise.all([
    look(other, kept.turnId),
    ...['nonsense', '%00', randomUUID(), erased.turnId, old.turnId].map((id) => look(assistant, id)),
  ]);

  for (const { status, body } of gone as unknown as { status: number; body: ErrorBody }[]) {
    expect([status, body.error.code]).toEqual([404, 'not_found']);
  }
  expect((await look(assistant, kept.turnId)).headers.get('x-ratelimit-limit')).toBe('1000000');
});
