import { connect } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { anAssistant, aTurn } from '../support/builders.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0 });
/** How many bytes of all bodies may be arriving, and the length of the largest body. */
const [ARRIVING, BODY] = [64 * 1024 * 1024, 65_536];

/** How many tenants try each size. The first of them finds room, if there is some. */
const TRIES = sized({ everyday: 2, long: 6 });

/** Sends a part of a body, and never the rest. */
const sendPart = (apiKey: string, bytes: number): Promise<void> => {
  const socket = connect(Number(new URL(stack.url).port), '127.0.0.1').on('error', () => undefined);
  onTestFinished(() => void socket.destroy());
  const head = `POST /api/v1/chat HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${apiKey}\r\n`;
  socket.resume().write(`${head}Content-Type: application/json\r\nContent-Length: ${BODY}\r\n\r\n`);
  return new Promise((resolve) => socket.write(Buffer.alloc(bytes, ' '), () => resolve()));
};

test('many tenants who do not end their bodies leave room for those of a neighbour', async () => {
  const neighbour = await anAssistant(stack);
  const send = async (bytes: number, count: number): Promise<void> => {
    const { apiKey } = await anAssistant(stack, { knowledge: [] });
    await Promise.all(Array.from({ length: count }, () => sendPart(apiKey, bytes)));
    await neighbour.chat(aTurn()); // meanwhile the service has read them
  };
  // Each takes half of what is left. Then others take less and less, until a message finds no room.
  for (let left = ARRIVING / 2; left > BODY; left /= 2) await send(BODY - 1, left / BODY);
  for (let bytes = BODY - 1; bytes > 60; bytes /= 2)
    for (let nth = 0; nth < TRIES; nth += 1) await send(Math.floor(bytes), 1);

  const statuses: number[] = [];
  for (let nth = 0; nth < 20; nth += 1) statuses.push((await neighbour.chat(aTurn())).status);

  expect([...new Set(statuses)]).toEqual([200]);
});
