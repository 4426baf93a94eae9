import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer, type TlsOptions } from 'node:tls';
import { gzipSync } from 'node:zlib';

/** Handles a connection of a receiver. `requested` is called once the whole head of a request has arrived. */
export interface Behaviour {
  connected?: (socket: Socket) => void;
  requested?: (socket: Socket, nth: number) => void;
}
interface HostileReceiver {
  port: number;
  /** Counts connections and whole request heads. A second request head for one send means that it was sent twice. */
  connections: () => number;
  requests: () => number;
  /** The result of each finished connection: the code of its error, or `end`. */
  endings: string[];
  close: () => Promise<void>;
}

export const openHostile = async ({ connected, requested }: Behaviour, tls?: TlsOptions): Promise<HostileReceiver> => {
  const sockets = new Set<Socket>();
  const endings: string[] = [];
  let connections = 0;
  let requests = 0;
  const accept = (socket: Socket) => {
    connections += 1;
    sockets.add(socket);
    let text = '';
    let ending = 'end';
    socket.on('error', (error: NodeJS.ErrnoException) => {
      ending = error.code ?? error.message;
    });
    socket.on('close', () => {
      sockets.delete(socket);
      endings.push(ending);
    });
    socket.on('data', (bytes) => {
      text += bytes.toString('latin1');
      for (let end = text.indexOf('\r\n\r\n'); end !== -1; end = text.indexOf('\r\n\r\n')) {
        text = text.slice(end + 4);
        requests += 1;
        requested?.(socket, requests);
      }
    });
    connected?.(socket);
  };
  const server: Server = tls ? createTlsServer(tls, accept) : createServer(accept);
  server.on('tlsClientError', () => {});
  const raw = new Set<Socket>();
  if (tls) server.on('connection', (socket: Socket) => raw.add(socket.on('close', () => raw.delete(socket))));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as AddressInfo).port,
    connections: () => connections,
    requests: () => requests,
    endings,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of [...sockets, ...raw]) socket.destroy();
      }),
  };
};

/** Writes repeatedly until the connection is closed. */
const drip = (socket: Socket, everyMs: number, text: string): void => {
  const timer = setInterval(() => socket.write(text), everyMs);
  socket.on('close', () => clearInterval(timer));
};

/** Writes as fast as the other side reads. */
const flood = (socket: Socket, block: Buffer, limit = Number.POSITIVE_INFINITY): void => {
  let left = limit;
  const pour = () => {
    while (left > 0 && !socket.destroyed) {
      left -= block.length;
      if (socket.write(block)) continue;
      socket.once('drain', pour);
      return;
    }
  };
  pour();
};

const says = (...texts: (string | Buffer)[]): Behaviour => ({
  requested: (socket) => {
    for (const text of texts) socket.write(text);
  },
});
const saysAndEnds = (text: string): Behaviour => ({ requested: (socket) => socket.end(text) });
const OK = 'HTTP/1.1 200 OK\r\n';
const MEGABYTE = 1024 * 1024;
let packed: Buffer | undefined;
const bomb = (): Buffer => (packed ??= gzipSync(Buffer.alloc(4 * MEGABYTE)));

export const HOSTILE = {
  silent: {},
  deaf: { connected: (socket: Socket) => socket.pause() },
  headersDrip: {
    requested: (socket: Socket) => {
      socket.write(OK);
      drip(socket, 20, 'x-a: b\r\n');
    },
  },
  statusDrips: {
    requested: (socket: Socket) => {
      socket.write('HTTP/1.');
      setTimeout(() => socket.write('1'), 50);
    },
  },
  bodyDrips: {
    requested: (socket: Socket) => {
      socket.write(`${OK}content-length: 99999\r\n\r\n`);
      drip(socket, 20, 'x');
    },
  },
  errorBodyDrips: {
    requested: (socket: Socket) => {
      socket.write('HTTP/1.1 500 Oh\r\ncontent-length: 999\r\n\r\nno');
      drip(socket, 20, 'x');
    },
  },
  bodyEndless: {
    requested: (socket: Socket) => {
      socket.write(`${OK}\r\n`);
      flood(socket, Buffer.alloc(65_536, 'y'));
    },
  },
  chunksEndless: {
    requested: (socket: Socket) => {
      socket.write(`${OK}transfer-encoding: chunked\r\n\r\n`);
      flood(socket, Buffer.from(`400\r\n${'z'.repeat(1024)}\r\n`));
    },
  },
  chunksOfOneByte: says(`${OK}transfer-encoding: chunked\r\n\r\n${'1\r\na\r\n'.repeat(16_000)}0\r\n\r\n`),
  chunkBroken: says(`${OK}transfer-encoding: chunked\r\n\r\n5\r\nhello\r\nnonsense\r\n`),
  chunkExtensionEndless: {
    requested: (socket: Socket) => {
      socket.write(`${OK}transfer-encoding: chunked\r\n\r\n5;`);
      flood(socket, Buffer.alloc(4096, 'e'));
    },
  },
  gzipBomb: {
    requested: (socket: Socket) => {
      socket.write(`${OK}content-encoding: gzip\r\n\r\n`);
      flood(socket, bomb(), 10 * MEGABYTE);
    },
  },
  headersHuge: {
    requested: (socket: Socket) => {
      socket.write(OK);
      flood(socket, Buffer.from(`x-${'n'.repeat(60)}: ${'v'.repeat(960)}\r\n`), 10 * MEGABYTE);
    },
  },
  headersMany: says(OK + 'a:\r\n'.repeat(16_000), 'content-length: 2\r\n\r\nok'),
  headersManyInterim: says(
    `HTTP/1.1 103 Early Hints\r\n${'a:\r\n'.repeat(16_000)}\r\n`,
    `${OK}content-length: 2\r\n\r\nok`,
  ),
  trailersMany: says(`${OK}transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n${'a:\r\n'.repeat(16_000)}`, '\r\n'),
  headerLineHuge: {
    requested: (socket: Socket) => {
      socket.write(`${OK}x-a: `);
      flood(socket, Buffer.alloc(65_536, 'v'), 10 * MEGABYTE);
    },
  },
  interimThenOk: says(
    'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n',
    'HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n',
    `${OK}content-length: 2\r\n\r\nok`,
  ),
  interimThenSilence: says('HTTP/1.1 100 Continue\r\n\r\n'),
  interimEndless: { requested: (socket: Socket) => flood(socket, Buffer.from('HTTP/1.1 102 Processing\r\n\r\n')) },
  switching: says('HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n'),
  noContentWithBody: says('HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\nhello'),
  noContentSmuggling: says('HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 500 Smuggled\r\ncontent-length: 0\r\n\r\n'),
  http10: saysAndEnds('HTTP/1.0 200 OK\r\n\r\nold but fine'),
  http10KeepsOpen: says('HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok'),
  halfCloses: { requested: (socket: Socket) => socket.end() },
  halfClosesAfterAnswer: saysAndEnds(`${OK}content-length: 2\r\n\r\nok`),
  halfClosesInHead: saysAndEnds(`${OK}x-a: b\r\n`),
  halfClosesInBody: saysAndEnds(`${OK}content-length: 10\r\n\r\nhalf`),
  resets: { requested: (socket: Socket) => socket.resetAndDestroy() },
  resetsInHead: {
    requested: (socket: Socket) => {
      socket.write(OK);
      setTimeout(() => socket.resetAndDestroy(), 30);
    },
  },
  resetsInBody: {
    requested: (socket: Socket) => {
      socket.write(`${OK}content-length: 10\r\n\r\nhalf`);
      setTimeout(() => socket.resetAndDestroy(), 30);
    },
  },
  sshServer: { connected: (socket: Socket) => socket.write('SSH-2.0-OpenSSH_9.2\r\n') },
  http09: says('<html>hello</html>\r\n\r\n'),
  http2: says(Buffer.from('00001204000000000000030000006400040100000000050000ffff', 'hex')),
  statusTooShort: says('HTTP/1.1 99 Low\r\n\r\n'),
  statusTooLong: says('HTTP/1.1 2000 High\r\n\r\n'),
  statusMissing: says('HTTP/1.1 OK\r\n\r\n'),
  bareLineFeeds: saysAndEnds('HTTP/1.1 200 OK\ncontent-type: text/plain\n\nfine'),
  lengthNegative: saysAndEnds(`${OK}content-length: -1\r\n\r\nok`),
  lengthTwice: saysAndEnds(`${OK}content-length: 2\r\ncontent-length: 3\r\n\r\nok`),
  lengthAndChunks: says(`${OK}content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n`),
  headerFolded: says(`${OK}x-a: b\r\n c\r\ncontent-length: 2\r\n\r\nok`),
  headerNamedAsPrototype: says(`${OK}constructor: a\r\n__proto__: b\r\ncontent-length: 2\r\n\r\nok`),
  redirects: says('HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n'),
  bytesNotText: says(
    Buffer.concat([Buffer.from(`${OK}content-length: 4\r\n\r\n`), Buffer.from([0xff, 0xfe, 0x41, 0xc3])]),
  ),
  answersTwice: says(`${OK}content-length: 2\r\n\r\nok`, 'HTTP/1.1 500 Smuggled\r\ncontent-length: 0\r\n\r\n'),
} satisfies Record<string, Behaviour>;
export type HostileName = keyof typeof HOSTILE;
