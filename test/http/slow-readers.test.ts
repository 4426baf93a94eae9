import { connect } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { aLongConversation, anAssistant, request, type TestAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0 });
/** Together they take all places for large answers: eight, four, two and one. */
const TENANTS = 4;
/** More than a page of history holds. */
const MESSAGES = 48;

/** Asks for the history on some connections, and does not read it. */
const askWithoutReading = async (assistant: TestAssistant): Promise<void> => {
  const path = `/api/v1/conversations/${await aLongConversation(stack, assistant, MESSAGES)}`;
  const head = `GET ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${assistant.apiKey}\r\n\r\n`;
  for (let count = 0; count < 8; count += 1) {
    let answered = false;
    const socket = connect(Number(new URL(stack.url).port), '127.0.0.1').on('error', () => undefined);
    onTestFinished(() => void socket.destroy());
    socket.once('data', () => {
      answered = true;
      socket.pause();
    });
    socket.write(head.repeat(20));
    if (count === 0) await eventually(() => expect(answered).toBe(true));
  }
};

test('some tenants who do not read their answers lose their places to one who has none', async () => {
  for (let nth = 0; nth < TENANTS; nth += 1) await askWithoutReading(await anAssistant(stack, { knowledge: [] }));
  const neighbour = await anAssistant(stack, { knowledge: [] });
  const asked = performance.now();

  const { status } = await request(`${stack.url}/api/v1/conversations`, { bearer: neighbour.apiKey });

  expect(status).toBe(200);
  // Without this, the neighbour waits until the others are cut because they read nothing, or gets 503.
  expect(performance.now() - asked).toBeLessThan(5_000);
});
