import { randomUUID } from 'node:crypto';
import type { Operation, Resource } from '../../src/operators/operation.ts';
import { anAssistant, aTurn } from './builders.ts';
import { addressOf } from '../kit/operations.ts';
import type { Stack } from './stack.ts';

/** An assistant with one object of each kind, and the ids of these objects. */
export const anInhabited = async (stack: Stack, { operatorId }: { operatorId: string }) => {
  const assistant = await anAssistant(stack);
  const { assistantId, keyId } = assistant;
  const { endpoint } = await stack.service.endpoints.addEndpoint(assistantId, { url: 'http://127.0.0.1:9/h' });
  const deliveryId = await stack.service.deliveries.queueTest(endpoint);
  const range = { assistantId, endpointId: endpoint.endpointId, from: new Date(0), to: new Date(), outcomes: [] };
  const recovery = await stack.service.recoveries.start(range, 'a test');
  const { conversationId } = (await assistant.chat(aTurn())).body;
  const turnId = String((await assistant.history(conversationId)).body.messages[0]?.turnId);
  const { cannedReplyId } = await stack.service.inboxRecords.cannedReplies.add(assistantId, {
    title: 'Hello',
    content: 'Hello!',
  });
  const { noteId } = await stack.service.inboxRecords.notes.add(conversationId, {
    operatorId,
    content: 'n',
  });
  const [entry] = await stack.service.assistants.listKnowledge(assistantId);
  const ids: Record<Resource, string> = {
    assistant: assistantId,
    conversation: conversationId,
    'conversation or own playground': conversationId,
    turn: turnId,
    'canned reply': cannedReplyId,
    key: keyId,
    endpoint: endpoint.endpointId,
    delivery: deliveryId,
    recovery: recovery._id,
  };
  const { sourceId } = await stack.service.sources.add(assistantId, { kind: 'page', url: 'http://127.0.0.1:9/p' });
  const missId = randomUUID();
  const miss = { _id: missId, assistantId, conversationId, question: 'Why?', state: 'open', count: 1, examples: [] };
  const at = new Date();
  await stack.service.mongo
    .collection('misses')
    .insertOne({ ...miss, language: null, firstAt: at, lastAt: at, answer: null } as never);
  const { questionSets, evaluations } = stack.service;
  const { setId } = await questionSets.create(assistantId, 'Release');
  const asked = { question: 'Why?', language: null, expected: { kind: 'none' as const } };
  const [{ caseId } = { caseId: '' }] = await questionSets.addCases({ assistantId, setId }, [asked]);
  const questions = [{ ...asked, caseId, conversationId: null, conversationIds: [], before: null }];
  const { evaluationId } = await evaluations.create({ assistantId, set: null, questions });
  const evaluated = { setId, caseId, evaluationId };
  return { ...assistant, ids, entryId: entry?.entryId ?? '', noteId, missId, sourceId, ...evaluated };
};
export type Inhabited = Awaited<ReturnType<typeof anInhabited>>;

/** Where an operation acts on these objects. `operatorId` is that of operations on an operator. */
export const pathIn = (one: Operation, { ids, ...others }: Inhabited, operatorId: string): string => {
  const id = one.resource && one.resource !== 'filtered' ? ids[one.resource] : operatorId;
  const { entryId, noteId, missId, sourceId, setId, caseId, evaluationId } = others;
  return addressOf(one, {
    id,
    entryId,
    noteId,
    missId,
    sourceId,
    setId,
    caseId,
    evaluationId,
    version: '1',
    tag: 'vip',
  });
};
