import { once } from 'node:events';
import { connect } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { anAssistant, aTurn } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { watchNeighbour } from '../support/neighbour.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0 });
const REQUEST = 'GET /operator/v1/inbox HTTP/1.1\r\nHost: x\r\n\r\n';

const send = async (text: string) => {
  const socket = connect(Number(new URL(stack.url).port), '127.0.0.1', () => socket.write(text));
  onTestFinished(() => void socket.destroy());
  let received = '';
  socket.on('data', (chunk: Buffer) => {
    received += chunk.toString('latin1');
  });
  socket.on('error', () => undefined);
  return {
    answers: () => received.match(/HTTP\/1\.1 (401|429) /g)?.length ?? 0,
    closed: new Promise((resolve) => socket.once('close', resolve)),
  };
};

test('a connection that sends a few requests before it reads gets all answers', async () => {
  const { answers } = await send(REQUEST.repeat(10));

  await eventually(() => expect(answers()).toBe(10));
});

test('a connection that sends very many requests at once ends, and others are served meanwhile', async () => {
  const neighbour = await anAssistant(stack);
  let answered = 0;

  const { statuses } = await watchNeighbour(
    () => neighbour.chat(aTurn()),
    async () => {
      const { answers, closed } = await send(REQUEST.repeat(20_000));
      await closed;
      answered = answers();
    },
  );

  expect(statuses).toEqual([200]);
  expect(answered).toBeLessThan(100);
});

test('requests that wait behind others are limited in all, and a connection with one request at a time stays', async () => {
  const neighbour = await anAssistant(stack);
  const REFERENCE = 'GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n';
  const sockets = Array.from({ length: 300 }, () => {
    const socket = connect(Number(new URL(stack.url).port), '127.0.0.1');
    onTestFinished(() => void socket.destroy());
    return socket.on('error', () => undefined).pause();
  });
  const countEnded = () => sockets.filter(({ destroyed }) => destroyed).length;
  // Clients that read a little are not ended for that, however slow the machine is.
  const reading = setInterval(() => sockets.forEach((socket) => void socket.read()), 500);
  onTestFinished(() => clearInterval(reading));

  const { statuses } = await watchNeighbour(
    () => neighbour.chat(aTurn()),
    () =>
      Promise.all(
        sockets.map(async (socket) => {
          await once(socket, 'connect');
          socket.write(REFERENCE.repeat(15));
        }),
      ),
  );

  // 15 requests of each connection are more than one network may have in flight. A client that hardly reads notices the
  // end when it writes.
  await eventually(() => {
    for (const socket of sockets) socket.write('\r\n');
    expect(countEnded()).toBeGreaterThan(50);
  });
  expect(countEnded()).toBeLessThan(250);
  expect(statuses).toEqual([200]);
});
