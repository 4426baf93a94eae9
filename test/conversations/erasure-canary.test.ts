import { expect, test } from 'vitest';
import { aTurn, request } from '../support/builders.ts';
import { anEmbedderOfTokens } from '../support/embedder.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { openReceiver } from '../kit/receiver.ts';
import { useStack } from '../support/stack.ts';
import { placesOf, storedTexts } from '../support/stored-texts.ts';
import { aVisitor, aWebAssistant, signUser } from '../support/visitor.ts';

const stack = useStack({ embedder: () => anEmbedderOfTokens() });

/** A word for each way that text comes in, with some places where it is stored. */
const STORED: Record<string, string[]> = {
  zqsession: ['conversations', 'deliveries', 'search'],
  zqmessage: ['conversations', 'deliveries', 'evaluationResults', 'messages', 'misses', 'questionCases', 'search'],
  zqattribute: ['conversations'],
  zqreason: ['conversations', 'deliveries', 'messages'],
  zqtag: ['audit', 'conversations', 'deliveries'],
  zqnote: ['notes'],
  zqreply: ['conversations', 'deliveries', 'misses', 'search'],
  zqidempotency: ['idempotencyKeys'],
  zquser: ['conversations', 'deliveries', 'search'],
  zqchannelsession: ['conversations', 'deliveries', 'redis:channel-calls', 'search'],
  zqchannelmessage: ['conversations', 'deliveries', 'evaluationResults', 'misses', 'search'],
  zqwebmessage: ['conversations', 'deliveries', 'evaluationResults', 'misses', 'search'],
  zqreceived: ['deliveries'],
};
const nowhere = Object.fromEntries(Object.keys(STORED).map((word) => [word, []]));

const stored = async (words: string[]) => placesOf(words, await storedTexts(stack));

/** Waits until no event waits, so that erasures are announced at once. */
const everyEventEnded = () =>
  eventually(async () => {
    const { mongo: connection } = stack.service;
    expect(await connection.collection('conversations').countDocuments({ 'outbox.0': { $exists: true } })).toBe(0);
    expect(await connection.collection('deliveries').countDocuments({ endedAt: null })).toBe(0);
  });

/** Makes the purges of all erasures, which are otherwise due after a minute and after a day. */
const purge = (): Promise<void> =>
  eventually(async () => {
    const tombstones = stack.service.mongo.collection('tombstones');
    await tombstones.updateMany({}, { $set: { purgeAt: new Date(0) } });
    await stack.service.conversations.purgeAgain();
    expect(await tombstones.countDocuments()).toBe(0);
  });

test('an erasure leaves no text in any collection or key, whatever door it came through', async () => {
  const respond = ({ body }: { body: Buffer }) => ({ status: 500, body: `zqreceived ${body.toString()}` });
  const receiver = await openReceiver({ respond });
  const assistant = await aWebAssistant(stack);
  const { assistantId } = assistant;
  const events = ['conversation.created', 'message.received', 'message.sent', 'conversation.escalated', 'tag.added'];
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url, events });
  await stack.service.assistants.setChannel(assistantId, { connected: true, token: 'vt_canary' });
  const { secret } = await stack.service.assistants.rotateWebIdentity(assistantId);
  const owner = await anOperator(stack);
  const go = async <Body = Record<string, string>>(path: string, body?: unknown, method = body ? 'POST' : 'GET') => {
    const answer = await owner.call<Body>(method, path, body);
    expect([path, answer.status < 300 ? 'well' : answer]).toEqual([path, 'well']);
    return answer.body;
  };

  const say = (nth: number) =>
    assistant.chat(aTurn({ session_id: 'zqsession', message: `Does zqmessage fly? ${nth}` }), {
      headers: { 'Idempotency-Key': `zqidempotency-${nth}` },
    });
  const { conversationId } = (await say(0)).body;
  const path = `/conversations/${conversationId}`;
  await assistant.call(`/api/v1${path}/escalate`, { body: { reason: 'zqreason' } });
  // More than a page of eight messages.
  for (let nth = 1; nth <= 8; nth += 1) await say(nth);
  const overChannel = await request(`${stack.url}/api/v1/channels/webhook/${assistantId}`, {
    body: aTurn({ session_id: 'zqchannelsession', message: 'Does zqchannelmessage fly?' }),
    bearer: 'vt_canary',
  });
  const visitor = await aVisitor(stack, assistantId, signUser(secret, 'zquser'));
  const onSite = await visitor.say('Does zqwebmessage fly?');
  await assistant.call(`/api/v1${path}/attributes`, { body: { plan: 'zqattribute' } });
  await go(`${path}/assign`, { operatorId: owner.operatorId });
  await go(`${path}/read`, { seq: 1 });
  for (const state of ['reading', 'gone']) await owner.post(`${path}/presence`, { state });
  await go(`${path}/tags`, { tag: 'zqtag', color: null });
  await go(`${path}/notes`, { content: 'zqnote' });
  await go(`${path}/replies`, { content: 'zqreply' });
  const own = `/assistants/${assistantId}`;
  const missId = await eventually(async () => {
    type Miss = { missId: string; question: string; answer: object | null };
    const { misses } = await go<{ misses: Miss[] }>(`${own}/misses`);
    const found = misses.find(({ question, answer }) => question.includes('zqmessage') && answer !== null);
    expect(found).toBeDefined();
    return found?.missId;
  });
  const { setId } = await go(`${own}/question-sets`, { name: 'Release' });
  const expecting = { question: 'Does zqmessage fly?', expected: { kind: 'none' } };
  await go(`${own}/question-sets/${setId}/cases`, { ...expecting, from: { missId } });
  const { evaluationId } = await go(`${own}/evaluations`, { real: { limit: 20 } });
  await eventually(async () => expect(await go(`${own}/evaluations/${evaluationId}`)).toMatchObject({ state: 'done' }));
  await everyEventEnded();
  await eventually(async () => expect(await stored(Object.keys(STORED))).toEqual(STORED));

  for (const id of [conversationId, overChannel.body.conversationId, onSite.body.conversationId])
    expect((await assistant.call(`/api/v1/conversations/${id}`, { method: 'DELETE' })).status).toBe(204);
  await purge();

  expect(await stored(Object.keys(STORED))).toEqual(nowhere);
  // Who did what, and that something was sent, stays: by ids.
  expect(await stored([conversationId])).toEqual({ [conversationId]: ['audit', 'deliveries'] });
  const exported = await fetch(`${stack.url}/operator/v1${own}/export`, { headers: { Cookie: owner.cookie() ?? '' } });
  expect(await exported.text()).not.toMatch(/zq/);
  expect(JSON.stringify(stack.logs)).not.toMatch(/zq/);
});
