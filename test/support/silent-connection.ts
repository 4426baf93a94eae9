import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';

/** A TCP connection that has sent nothing yet. */
export const openSilentConnection = async (url: string): Promise<Socket> => {
  const socket = connect(Number(new URL(url).port), '127.0.0.1');
  socket.on('error', () => undefined); // the server may reset it
  onTestFinished(() => void socket.destroy());
  await once(socket, 'connect');
  return socket;
};
