import { connect } from 'node:net';
import { mapAtMost } from '../../src/platform/process/slots.ts';

const OPENED_AT_ONCE = 50;

export type Wire = {
  /** Sends one request. Call it again only after `onAnswer`. */
  send: (request: string) => void;
  close: () => void;
};

type Hooks = { onOpen: () => void; onAnswer: (ok: boolean, answer: string) => void; onLost: () => void };
/** The address that a wire comes from, if it matters. */
type From = { localAddress?: string };

const lengthOf = (head: string): number => Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0);

/**
 * Opens a raw socket and finds the end of each answer by counting bytes. A client library is not used, because it would
 * use CPU that the measured processes need.
 */
export const openWire = (port: number, { onOpen, onAnswer, onLost }: Hooks, from: From = {}): Wire => {
  let received = '';
  let closed = false;
  const socket = connect({ port, host: '127.0.0.1', ...from }).setNoDelay(true);
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

/** Sends requests over wires that stay open, each with one request in flight. Opens one where none is free. */
export const openAsker = (port: number, from?: From) => {
  type Answered = { ok: boolean; answer: string };
  type Line = { wire: Wire; waiting: PromiseWithResolvers<Answered> | null };
  const free: Line[] = [];
  const all: Line[] = [];

  const openLine = (): Promise<Line> =>
    new Promise((resolve, reject) => {
      const hooks: Hooks = {
        onOpen: () => resolve(line),
        onAnswer: (ok, answer) => {
          const { waiting } = line;
          line.waiting = null;
          free.push(line);
          waiting?.resolve({ ok, answer });
        },
        onLost: () => {
          // The API ends a connection that was not used for some time.
          const at = free.indexOf(line);
          if (at !== -1) free.splice(at, 1);
          line.waiting?.reject(new Error('a connection was lost'));
          reject(new Error('no connection'));
        },
      };
      const wire = openWire(port, hooks, from);
      const line: Line = { wire, waiting: null };
      all.push(line);
    });

  const askOn = (line: Line, request: string): Promise<Answered> => {
    line.waiting = Promise.withResolvers<Answered>();
    line.wire.send(request);
    return line.waiting.promise;
  };

  return {
    // The longest idle wire is used first, so that the server never closes one for being idle.
    ask: async (request: string): Promise<Answered> => askOn(free.shift() ?? (await openLine()), request),
    countFree: (): number => free.length,
    /**
     * Opens wires before they are needed, so that no request waits for one. With a `first` request they are only free once
     * it is answered, because a server accepts connections slowly. A wire that is refused is missing.
     */
    warmUp: async (count: number, first?: string): Promise<void> => {
      await mapAtMost(OPENED_AT_ONCE, Array.from({ length: count }), async () => {
        const line = await openLine().catch(() => null);
        if (line && first !== undefined) await askOn(line, first).catch(() => undefined);
        else if (line) free.push(line);
      });
    },
    close: (): void => {
      for (const { wire } of all) wire.close();
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

type RawAnswer = { status: number; headers: Headers; body: unknown };

const parse = (bytes: Buffer): RawAnswer => {
  const text = bytes.toString('latin1');
  const end = text.indexOf('\r\n\r\n');
  const [statusLine = '', ...lines] = text.slice(0, end).split('\r\n');
  const headers = new Headers(
    lines.map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1).trim()]),
  );
  const body = bytes.subarray(end + 4).toString();
  return { status: Number(statusLine.split(' ')[1]), headers, body: body && (JSON.parse(body) as unknown) };
};

/** Sends bytes that no HTTP client would send. Returns the response after the server has closed the connection. */
export const sendRaw = (url: string, bytes: string | Buffer, timeoutMs = 60_000): Promise<RawAnswer> =>
  new Promise((resolve, reject) => {
    const { hostname, port } = new URL(url);
    const received: Buffer[] = [];
    const socket = connect(Number(port), hostname, () => socket.write(bytes));
    socket.setTimeout(timeoutMs, () => socket.destroy(new Error('the server neither answered nor closed')));
    socket.on('data', (chunk: Buffer) => received.push(chunk));
    socket.on('error', (cause) => (received.length > 0 ? undefined : reject(cause)));
    socket.on('close', () => resolve(parse(Buffer.concat(received))));
  });
