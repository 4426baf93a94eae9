import { once } from 'node:events';
import { connect } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { anAssistant, aTurn, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { watchNeighbour } from '../support/neighbour.ts';
import { anOperator } from '../support/operator-client.ts';
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
    received: () => received,
    answers: () => received.match(/HTTP\/1\.1 (401|429) /g)?.length ?? 0,
    closed: new Promise((resolve) => socket.once('close', resolve)),
  };
};

/** The path of an import, and a token for it. */
const anImporter = async () => {
  const { assistantId } = await anAssistant(stack, { knowledge: [] });
  const made = { name: 'x', scope: 'manage' as const, assistantIds: [assistantId], createdBy: null };
  const { secret } = await stack.service.tokens.createToken(made);
  return { path: `/operator/v1/assistants/${assistantId}/knowledge-import`, secret };
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

test('bodies that are sent before the answers to earlier requests are read, one after the other', async () => {
  const { apiKey } = await anAssistant(stack);
  const { path, secret } = await anImporter();
  const post = (to: string, bearer: string, body: object): string => {
    const text = JSON.stringify(body);
    const head = `POST ${to} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${bearer}\r\nContent-Type: application/json`;
    return `${head}\r\nContent-Length: ${text.length}\r\n\r\n${text}`;
  };
  const large = { format: 'csv', text: `question,answer\na,b${'\n'.repeat(200_000)}` };
  const turn = post('/api/v1/chat', apiKey, aTurn());

  const { received } = await send(`${turn}${post(path, secret, large)}${turn}`);

  await eventually(() => expect(received().match(/HTTP\/1\.1 \d+/g)).toEqual(Array(3).fill('HTTP/1.1 200')));
});

test('requests behind a stream take no place from others', async () => {
  const follow = `GET /operator/v1/live HTTP/1.1\r\nHost: x\r\nCookie: ${(await anOperator(stack, 'agent')).cookie()}\r\n\r\n`;
  const JSON_TYPE = 'Content-Type: application/json\r\nTransfer-Encoding: chunked';
  // Three assistants could take all places for large bodies.
  for (let nth = 0; nth < 3; nth += 1) {
    const { path, secret } = await anImporter();
    const body = `POST ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${secret}\r\n${JSON_TYPE}\r\n\r\na\r\n{"text":1}\r\n0\r\n\r\n`;
    for (let count = 0; count < 3; count += 1) {
      const { received } = await send(`${follow}${body}`);
      await eventually(() => expect(received()).toContain('text/event-stream'));
    }
  }
  const neighbour = await anImporter();
  const asked = performance.now();

  const { status } = await request(`${stack.url}${neighbour.path}`, {
    bearer: neighbour.secret,
    body: { format: 'csv', text: `question,answer\na,b${'\n'.repeat(70_000)}` },
  });

  expect(status).toBe(200);
  expect(performance.now() - asked).toBeLessThan(10_000);
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
