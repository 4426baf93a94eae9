import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';

/** A TCP connection that has sent nothing yet. A concurrent test gives its own `onTestFinished`. */
export const openSilentConnection = async (url: string, atEnd = onTestFinished): Promise<Socket> => {
  const socket = connect(Number(new URL(url).port), '127.0.0.1');
  socket.on('error', () => undefined); // the server may reset it
  atEnd(() => void socket.destroy());
  await once(socket, 'connect');
  return socket;
};
