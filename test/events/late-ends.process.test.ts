import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Service, startMongod } from '../../scripts/services.ts';
import { neverSent } from '../../src/events/delivery.ts';
import { anAssistant, request } from '../support/builders.ts';
import { type EventPage, followEvents } from '../kit/event-pages.ts';
import { eventually } from '../support/eventually.ts';
import { withFailPoint } from '../support/fail-point.ts';
import { createFeed } from '../kit/feed.ts';
import { openReceiver } from '../kit/receiver.ts';
import { openStack, type Stack } from '../support/stack.ts';

let mongod: Service;
let stack: Stack;
beforeAll(async () => {
  mongod = await startMongod({ failPoints: true });
  const timing = { endWrittenWithinMs: 2_000 };
  stack = await openStack({ replyWorkers: 0, env: { MONGODB_URL: mongod.url }, timing });
});
afterAll(async () => {
  await stack.close();
  await mongod.dispose();
});

test('an end that MongoDB still writes when a later one is visible already is not skipped', async () => {
  const { assistantId, apiKey: bearer } = await anAssistant(stack, { knowledge: [] });
  const answer = Promise.withResolvers<void>();
  const receiver = await openReceiver({ respond: () => answer.promise.then(() => ({})) });
  const { service } = stack;
  const { endpointId } = (await service.endpoints.addEndpoint(assistantId, { url: receiver.url })).endpoint;
  const feed = createFeed(service);
  const [key = ''] = await feed.openConversations(assistantId, 1);
  const [said] = await feed.say(assistantId, key, ['hello']);
  await receiver.waitFor((all) => all.length === 1);
  const admin = service.mongo.getClient().db('admin');
  const hold = (mode: string) =>
    admin.command({
      configureFailPoint: 'hangDuringBatchUpdate',
      mode,
      ...(mode !== 'off' && { data: { nss: `${service.mongo.name}.deliveries` } }),
    });
  const pages = followEvents({ url: stack.url, bearer, ask: request<EventPage> });
  const read = async () => (await pages.next()).value.events.map(({ eventId }) => eventId);

  await hold('alwaysOn');
  const found: string[] = [];
  const later = randomUUID();
  try {
    answer.resolve();
    await eventually(async () => {
      const { inprog } = await admin.command({ currentOp: 1, ns: `${service.mongo.name}.deliveries`, op: 'update' });
      expect(inprog).not.toEqual([]);
    });
    await service.deliveries.claimEnded(
      {
        eventId: later,
        endpointId,
        assistantId,
        conversationId: null,
        event: 'webhook.test',
        url: receiver.url,
        body: '{}',
        happenedAt: new Date(),
      },
      neverSent('backlog'),
    );
    found.push(...(await read()));
  } finally {
    await hold('off');
  }

  await eventually(async () => {
    await feed.openConversations(assistantId, 1); // the list goes on with the writes of anybody
    found.push(...(await read()));
    expect(found).toContain(later);
  });
  expect(found).toEqual([said?.eventId, later]);
  await receiver.close();
});

test('an event that a recovery claims while its conversation is erased is not sent', async () => {
  const { assistantId, call } = await anAssistant(stack, { knowledge: [] });
  const receiver = await openReceiver({ respond: () => ({ status: 500 }) });
  const { service } = stack;
  const events = ['message.received' as const, 'conversation.erased' as const];
  const { endpointId } = (await service.endpoints.addEndpoint(assistantId, { url: receiver.url, events })).endpoint;
  const feed = createFeed(service);
  const [key = ''] = await feed.openConversations(assistantId, 1);
  const { conversationId = '' } = (await service.conversations.outbox.read(key)) ?? {};
  await feed.say(assistantId, key, ['private']);
  const rows = () => service.mongo.collection('deliveries').find({ assistantId }).sort({ createdAt: 1 }).toArray();
  await eventually(async () => expect(await rows()).toMatchObject([{ outcome: 'rejected' }]));
  const namespace = `${service.mongo.name}.deliveries`;
  const held = { failCommands: ['insert'], namespace, blockConnection: true, blockTimeMS: 1_200 };

  await withFailPoint(
    mongod.url,
    held,
    async (reached) => {
      const range = { from: new Date(Date.now() - 60_000), to: new Date(Date.now() + 1_000) };
      await service.recoveries.start({ assistantId, endpointId, ...range, outcomes: ['rejected'] }, 'a test');
      await reached();
      expect((await call(`/api/v1/conversations/${conversationId}`, { method: 'DELETE' })).status).toBe(204);
    },
    { times: 1 },
  );
  await eventually(async () => {
    const ends = (await rows()).map(({ event, redelivery, outcome, errorKind }) => [
      event,
      redelivery,
      outcome,
      errorKind,
    ]);
    expect(ends).toHaveLength(3);
    expect(ends).toContainEqual(['message.received', true, 'not_sent', 'erased']);
    expect(ends).toContainEqual(['conversation.erased', false, 'rejected', null]);
  });

  expect(receiver.received.map(({ headers }) => headers['x-factory-event'])).toEqual(events);
  await receiver.close();
});
