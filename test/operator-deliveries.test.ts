import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { anAssistant, aTurn } from './support/builders.ts';
import { eventually } from './support/eventually.ts';
import { anOperator } from './support/operator-client.ts';
import { problemOf } from './support/problem.ts';
import { openReceiver } from './support/receiver.ts';
import { useStack } from './support/stack.ts';

const stack = useStack({ deliveryWorkers: 0 });

type Row = { deliveryId: string; event: string; outcome: string; url: string | null };

test('a delivery that still waits is shown with what is known, then as it was sent', async () => {
  const owner = await anOperator(stack);
  const receiver = await openReceiver();
  const { assistantId, chat } = await anAssistant(stack);
  const { endpoint } = await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const { body: said } = await chat(aTurn());
  const list = async () =>
    (await owner.get<{ deliveries: Row[] }>(`/assistants/${assistantId}/deliveries`)).body.deliveries;

  const waiting = await list();
  const read = await Promise.all(waiting.map(({ deliveryId }) => owner.get<Row>(`/deliveries/${deliveryId}`)));

  expect(waiting.map(({ event }) => event).toSorted()).toEqual(['conversation.created', 'message.received']);
  for (const [nth, { status, body }] of read.entries()) {
    expect(status).toBe(200);
    expect(body).toMatchObject({
      ...waiting[nth],
      outcome: 'queued',
      endpointId: endpoint.endpointId,
      conversationId: said.conversationId,
      body: null,
      resend: null,
      worker: null,
      expiresAt: null,
    });
  }
  const [eventId] = waiting[0]?.deliveryId.split(':') ?? [];
  expect(problemOf(await owner.get(`/deliveries/${eventId}:${randomUUID()}`))).toBe('404 not_found');
  expect(problemOf(await owner.get(`/deliveries/${randomUUID()}:${endpoint.endpointId}`))).toBe('404 not_found');

  await stack.startDeliveryWorker();
  await receiver.waitFor((all) => all.length === 2);
  await eventually(async () => {
    const after = await Promise.all(waiting.map(({ deliveryId }) => owner.get<Row>(`/deliveries/${deliveryId}`)));
    expect(after.map(({ body }) => body.outcome)).toEqual(['delivered', 'delivered']);
    expect(after.every(({ body }) => body.url === receiver.url)).toBe(true);
  });
  await receiver.close();
});
