import { connect } from 'node:net';

export type Wire = {
  /** Sends one request. Call it again only after `onAnswer`. */
  send: (request: string) => void;
  close: () => void;
};

type Hooks = { onOpen: () => void; onAnswer: (ok: boolean, answer: string) => void; onLost: () => void };

const lengthOf = (head: string): number => Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0);

/**
 * Opens a raw socket and finds the end of each answer by counting bytes. A client library is not used, because it would
 * use CPU that the measured processes need.
 */
export const openWire = (port: number, { onOpen, onAnswer, onLost }: Hooks): Wire => {
  let received = '';
  let closed = false;
  const socket = connect(port, '127.0.0.1').setNoDelay(true);
  socket.on('connect', onOpen);
  socket.on('error', () => undefined); // 'close' follows
  socket.on('close', () => {
    if (!closed) onLost();
  });
  socket.on('data', (chunk) => {
    received += chunk.toString('latin1');
    const end = received.indexOf('\r\n\r\n');
    if (end === -1) return;
    const head = received.slice(0, end);
    if (received.length < end + 4 + lengthOf(head)) return;
    const answer = received;
    received = '';
    onAnswer(head.startsWith('HTTP/1.1 2'), answer);
  });
  return {
    send: (request) => socket.write(request),
    close: () => {
      closed = true;
      socket.destroy();
    },
  };
};

export const requestText = ({
  method,
  path,
  apiKey,
  body,
}: {
  method: 'GET' | 'POST';
  path: string;
  apiKey: string;
  body?: string;
}): string => {
  const content =
    body === undefined ? '' : `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n`;
  return `${method} ${path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer ${apiKey}\r\n${content}\r\n${body ?? ''}`;
};
