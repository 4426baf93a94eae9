import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import { expect, inject, test } from 'vitest';
import { createLogger } from '../../src/platform/process/logger.ts';
import { openMongo } from '../../src/platform/mongo/mongo.ts';
import { openRelay, through } from '../kit/relay.ts';

const COMMANDS = 3;

test('a command that is sent at the moment the server ends its connection fails, and the pool loses no connection', async () => {
  const address = inject('mongodbUrl');
  const relay = await openRelay(address);
  const sockets = new Set<Socket>();
  const note = (message: unknown): void => void sockets.add((message as { socket: Socket }).socket);
  subscribe('net.client.socket', note);
  const logger = createLogger({ name: 'test', level: 'silent' });
  const mongo = await openMongo({ url: through(address, relay), maxPoolSize: COMMANDS }, logger);
  const command = (): Promise<unknown> => mongo.collection('ended').insertOne({ at: new Date() });
  await Promise.all(Array.from({ length: COMMANDS }, command));
  unsubscribe('net.client.socket', note);

  // The socket has ended, and its `close` event comes after this phase of the event loop.
  const ended = [...sockets].filter(({ remotePort }) => remotePort === relay.port);
  const outcomes = ended.map(
    (socket) =>
      new Promise((resolve) => {
        socket.once('end', () => setImmediate(() => void command().then(resolve, resolve)));
        // A connection that was just sending is reset instead: it closes and has no end.
        socket.once('close', () => socket.readableEnded || resolve(null));
      }),
  );
  expect(outcomes.length).toBeGreaterThan(COMMANDS);
  await relay.cut();
  const sent = (await Promise.all(outcomes)).filter((outcome) => outcome !== null);
  expect(sent).not.toEqual([]);
  for (const outcome of sent) expect(outcome).toBeInstanceOf(Error);
  await relay.mend();

  await Promise.all(Array.from({ length: COMMANDS }, command));
  await mongo.collection('ended').drop();
  await mongo.close();
  await relay.cut();
});
