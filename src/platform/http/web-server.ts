import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
  STATUS_CODES,
} from 'node:http';
import type { Duplex } from 'node:stream';
import { ApiError, type ErrorCode, notFound } from '../process/errors.ts';
import { newId } from '../process/ids.ts';
import { readFileSync } from 'node:fs';
import { createServer as createTlsServer, Server as TlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { setImmediate as nextTick, setTimeout as sleep } from 'node:timers/promises';
import type { Config } from '../process/config.ts';
import type { Logger } from '../process/logger.ts';
import { noteConnection } from '../process/slices.ts';
import { takenOf } from './request-slots.ts';
import { blockOf, createByteShares, keptBytesOf, stopReading } from './shares.ts';

/** Emitted instead of `request`, when a request is handled: see `handleInTurn`. */
const BEGUN = 'begun';

/** How long the client can read the answer before the connection is destroyed. */
const LINGER_MS = 1_000;

const ERROR_OF: Record<string, [code: ErrorCode, message?: string]> = {
  HPE_HEADER_OVERFLOW: ['headers_too_large'],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: ['payload_too_large', 'The chunk extensions are too long.'],
  HPE_BODY_PIECES: ['payload_too_large', 'The request body comes in too many small pieces.'],
  ERR_HTTP_REQUEST_TIMEOUT: ['request_timeout'],
};

/** The errors of MongoDB have numbers as codes. They reach a socket when an answer cannot be continued. */
const errorOf = ({ code: failure }: { code?: unknown }): ApiError | null => {
  if (typeof failure !== 'string') return null;
  if (ERROR_OF[failure]) {
    const [code, message] = ERROR_OF[failure];
    return new ApiError(code, message === undefined ? {} : { message });
  }
  return failure.startsWith('HPE_') ? new ApiError('malformed_request') : null;
};

const writeError = (socket: Duplex, error: ApiError): void => {
  const requestId = newId();
  const body = JSON.stringify(error.toBody(requestId));
  const head = [
    `HTTP/1.1 ${error.status} ${STATUS_CODES[error.status]}`,
    'Content-Type: application/json; charset=utf-8',
    `Content-Length: ${Buffer.byteLength(body)}`,
    `X-Request-Id: ${requestId}`,
    'Connection: close',
  ];
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`);
  setTimeout(() => socket.destroy(), LINGER_MS).unref();
};

/**
 * Answers in our error format where Node would send an empty body or close the connection: after invalid HTTP, CONNECT,
 * or an unknown `Expect`. After a parser error the connection is unusable for HTTP, so the answer is written to the
 * socket, unless part of another response has already been written.
 */
const answerMalformed = (server: Server): void => {
  const answering = new WeakMap<Duplex, ServerResponse>();
  server.on(BEGUN, ({ socket }: IncomingMessage, res: ServerResponse) => {
    answering.set(socket, res);
    // An idle connection would keep the headers of its last request.
    res.once('close', () => answering.delete(socket));
  });
  server.on('checkExpectation', (req, res) => server.emit('request', req, res));
  server.on('connect', (_req, socket) => {
    // Node hands over the socket without a listener of its own, and an error without a listener would end the process.
    socket.on('error', () => undefined);
    writeError(socket, notFound());
  });
  server.on('clientError', (failure: { code?: unknown }, socket) => {
    const error = errorOf(failure);
    const current = answering.get(socket);
    const midway = current !== undefined && current.headersSent && !current.writableFinished;
    if (error === null || !socket.writable || midway) socket.destroy();
    else writeError(socket, error);
  });
};

const KEEP_ALIVE_MS = 75_000;
/**
 * How many connections may wait until the process accepts them. Node's default of 511 overflows in an overload, and a
 * client then waits for seconds until TCP tries again. The kernel limits this number too (`net.core.somaxconn`).
 */
const BACKLOG = 4_096;
const IDLE_SWEEP_MS = 100;
/**
 * How long a request may take to arrive, from its first byte to the end of its body (docs/contract.md, Errors: 408).
 */
const REQUEST_WITHIN_MS = 60_000;
const REQUEST_CHECK_MS = 5_000;
/** A client that reads nothing of its answer for this time is cut off. */
const READ_WITHIN_MS = 10_000;
/**
 * A client that keeps an answer waiting must read this much in `LEAST_READ_WITHIN_MS`. Reading very slowly is not
 * enough.
 */
const LEAST_READ_BYTES = 1024 * 1024;
const LEAST_READ_WITHIN_MS = 60_000;
/**
 * Node's check of the Host header is turned off. No code depends on this header, and Node would refuse a request
 * without it by an answer with an empty body.
 */
const OPTIONS = {
  requireHostHeader: false,
  requestTimeout: REQUEST_WITHIN_MS,
  connectionsCheckingInterval: REQUEST_CHECK_MS,
};

/**
 * The bodies of a connection may come in this many pieces of any size, and in a few more with each request. Further pieces
 * must have `PIECE_BYTES` on average.
 */
const PIECES_FREE = 1_000;
const PIECES_OF_REQUEST = 50;
const PIECE_BYTES = 256;

/**
 * Ends requests whose bodies come in pieces of a few bytes. Each piece costs as much as a small request, so one
 * connection would keep the process busy, whether or not the body is read. Node has no event for the pieces of a body
 * that nobody reads, so its own functions are replaced. `test/http/small-pieces.test.ts` fails if they change.
 */
const endDribbles = (server: Server): void => {
  /** How many pieces each connection may still send. */
  const rooms = new WeakMap<Socket, number>();
  server.prependListener('request', (req: IncomingMessage & { _dump?: () => void }) => {
    const { headers, socket } = req;
    if (headers['transfer-encoding'] === undefined && !(Number(headers['content-length']) > PIECES_FREE)) return;
    const push = req.push.bind(req);
    let isOver = false;
    rooms.set(socket, Math.min((rooms.get(socket) ?? PIECES_FREE) + PIECES_OF_REQUEST, PIECES_FREE));
    req.push = (piece: Buffer | null, encoding) => {
      const room = (rooms.get(socket) ?? 0) + (piece === null ? 0 : Math.min(piece.length / PIECE_BYTES, 1) - 1);
      rooms.set(socket, room);
      if (room >= 0) return push(piece, encoding);
      stopReading(req);
      if (!isOver) server.emit('clientError', { code: 'HPE_BODY_PIECES' }, socket);
      isOver = true;
      return false;
    };
    // Node calls this for a body that nobody reads. Its own version would drop pieces before `push` counts them.
    req._dump = () => void req.resume();
    // Nobody reads the body of such a request. Otherwise its pieces would stay until the answer, which may be late.
    if (req.method === 'GET' || req.method === 'HEAD') req.resume();
  });
};

/** How many headers a request may have. Each costs some memory of its own, however short it is. */
const HEADERS_MAX = 100;
/** How many requests of a connection may wait behind one that is in flight. Few clients send any before the answer. */
const PIPELINED_MAX = 20;
/** The maximum bytes of all requests that wait behind others. A network may have as many as remain free. */
const PIPELINED_MAX_BYTES = 64 * 1024 * 1024;

type Waiting = { begin: () => void; leave: () => void };

/**
 * Handles the requests of a connection one after the other. Node hands over every request that it reads, but an answer
 * is sent once those before it are over, which may be never. So a request that waits must not take anything from others.
 */
const handleInTurn = (server: Server, listener: RequestListener): void => {
  /** What waits, of each connection that has a request in flight. */
  const queues = new WeakMap<Socket, Waiting[]>();
  const pipelined = createByteShares(PIPELINED_MAX_BYTES);

  const begin = (req: IncomingMessage, res: ServerResponse, queue: Waiting[]): void => {
    const { socket } = req;
    queues.set(socket, queue);
    server.emit(BEGUN, req, res);
    // Listens last, so that the next request begins when this one is over for everybody else.
    res.once('close', () => {
      if (!socket.writable) for (const one of queue.splice(0)) one.leave();
      const next = queue.shift();
      if (!next) return void queues.delete(socket);
      next.leave();
      next.begin();
    });
    listener(req, res);
  };

  const inTurn: RequestListener = (req, res) => {
    const { socket } = req;
    if (!socket.writable) return;
    // Node drops the headers that it does not count, so a request with too many must not be handled.
    if (req.rawHeaders.length > 2 * HEADERS_MAX) {
      return void server.emit('clientError', { code: 'HPE_HEADER_OVERFLOW' }, socket);
    }
    const queue = queues.get(socket);
    if (!queue) return begin(req, res, []);
    const { head, body } = keptBytesOf(req);
    const [network, bytes] = [blockOf(socket.remoteAddress), head + body];
    if (queue.length >= PIPELINED_MAX || !pipelined.take(network, bytes)) return void socket.destroy();
    queue.push({ begin: () => begin(req, res, queue), leave: () => pipelined.release(network, bytes) });
  };
  server.maxHeadersCount = HEADERS_MAX + 1;
  // With this property `server.listeners` gives the original listener, as Node does for `once`.
  server.on('request', Object.assign(inTurn, { listener }));
};

/** Each limit listens for the end of a request. So Node's warning at ten listeners would not mean a leak. */
const LISTENERS_MAX = 20;

const trackResponses = (server: Server, logger: Logger | undefined): Set<ServerResponse> => {
  const inFlight = new Set<ServerResponse>();
  server.on(BEGUN, (_request, response: ServerResponse) => {
    inFlight.add(response);
    response.setMaxListeners(LISTENERS_MAX);
    response.once('close', () => inFlight.delete(response));
    // Happens only after a write to a response that has ended. Without a listener, it would end the process.
    response.on('error', (cause) => logger?.error({ err: cause }, 'a response was written to after its end'));
  });
  return inFlight;
};

/**
 * `read`: what had been read at the last check. `idle`: how many checks in a row found that nothing was read. Checks are
 * counted instead of time, so that a pause of this process cuts nobody. `since`: when the present period of
 * `LEAST_READ_WITHIN_MS` began. `readThen`: what had been read by then.
 */
type Unread = { read: number; idle: number; since: number; readThen: number };

const CHECKS = 10;

/**
 * Cuts connections whose clients do not read, because unread bytes stay in memory. What is already in the buffers of
 * the operating system counts as read. A stream that has nothing to write is never cut.
 */
const cutSlowReaders = (
  server: Server,
  inFlight: Set<ServerResponse>,
  { withinMs = READ_WITHIN_MS, leastWithinMs = LEAST_READ_WITHIN_MS }: ReadLimits,
): void => {
  const all = new WeakMap<ServerResponse, Unread>();
  const check = (response: ServerResponse, now: number): void => {
    const { socket } = response;
    if (!socket || socket.writableLength === 0) return void all.delete(response);
    const [read, before] = [takenOf(socket), all.get(response)];
    const idle = read === before?.read ? before.idle + 1 : 0;
    const isOver = before && now - before.since >= leastWithinMs;
    const { since, readThen } = before && !isOver ? before : { since: now, readThen: read };
    all.set(response, { read, idle, since, readThen });
    if (idle >= CHECKS || (isOver && read - before.readThen < LEAST_READ_BYTES)) socket.destroy();
  };
  const sweep = setInterval(() => {
    const now = performance.now();
    for (const response of inFlight) check(response, now);
  }, withinMs / CHECKS);
  sweep.unref();
  server.once('close', () => clearInterval(sweep));
};

/**
 * From the moment the process drains, each connection ends with its next response: the response says `Connection:
 * close`, so the client opens its next connection elsewhere. A connection that the server closes by itself can break a
 * request that is on its way.
 */
const endConnectionsByResponses = (server: Server, inFlight: Set<ServerResponse>, draining: AbortSignal): void => {
  server.on(BEGUN, (_request, response: ServerResponse) => {
    if (draining.aborted) response.shouldKeepAlive = false;
  });
  draining.addEventListener('abort', () => {
    for (const response of inFlight) response.shouldKeepAlive = false;
  });
};

const connections = new WeakMap<Server, Set<Socket>>();

/** Node's list of connections lacks connections that have not finished their TLS handshake. */
const trackConnections = (server: Server): void => {
  const open = new Set<Socket>();
  connections.set(server, open);
  server.on('connection', (socket: Socket) => {
    noteConnection();
    open.add(socket);
    socket.once('close', () => open.delete(socket));
  });
};

const cutConnections = (server: Server): void => {
  for (const socket of connections.get(server) ?? []) socket.destroy();
};

/**
 * The maximum number of open connections of a process. Each holds a file, so a process needs some more files than this
 * (docs/operating.md).
 */
const CONNECTIONS_MAX = 10_000;
const FULL_AGAIN_AFTER_MS = 60_000;

/** `read`: what had been read when the connection became idle. */
type Connection = { socket: Socket; holder: string; inFlight: number; read: number; isCounted: boolean };

/** Calls `log` with what was counted since its last call, at most once a minute. */
const createFullLog = (log: (counts: { ended: number; refused: number }) => void) => {
  let counts = { ended: 0, refused: 0 };
  let loggedAt = Number.NEGATIVE_INFINITY;
  return (what: keyof typeof counts): void => {
    counts[what] += 1;
    const now = performance.now();
    if (now - loggedAt < FULL_AGAIN_AFTER_MS) return;
    loggedAt = now;
    log(counts);
    counts = { ended: 0, refused: 0 };
  };
};

/** Idle connections, the longest idle first: all, and those of each holder. */
const createIdle = () => {
  const all = new Set<Connection>();
  const byHolder = new Map<string, Set<Connection>>();
  return {
    all,
    of: (holder: string): Set<Connection> => byHolder.get(holder) ?? new Set(),
    add: (one: Connection): void => {
      one.read = one.socket.bytesRead;
      all.add(one);
      byHolder.set(one.holder, (byHolder.get(one.holder) ?? new Set()).add(one));
    },
    delete: (one: Connection): void => {
      all.delete(one);
      const own = byHolder.get(one.holder);
      if (own?.delete(one) && own.size === 0) byHolder.delete(one.holder);
    },
  };
};

/**
 * A text that is the same for a connection and for the TLS connection in it. Node has no public way from one to the
 * other.
 */
const endsOf = ({ localAddress, remoteAddress, remotePort }: Socket): string =>
  `${localAddress} ${remoteAddress} ${remotePort}`;

/**
 * Limits the open connections, so that nobody can use up the files of the process. A network may have as many as remain
 * free; behind a proxy, all belong to the proxy. A network that opens more loses its longest idle connection. A
 * connection with a request in flight or arriving is never ended.
 */
const shareConnections = (
  server: Server,
  { connectionsMax = CONNECTIONS_MAX, isBehindProxy, logger }: ConnectionLimits & { isBehindProxy: boolean },
): void => {
  // A single holder gets half of the shares, so behind a proxy there are twice as many.
  const shares = createByteShares(isBehindProxy ? 2 * connectionsMax : connectionsMax);
  const byEnds = new Map<string, Connection>();
  const bySocket = new WeakMap<Socket, Connection>();
  const idle = createIdle();
  const note = createFullLog((counts) => {
    const hint =
      'Find who opens so many. If a proxy opens them for its clients, set TRUST_PROXY, or start more processes.';
    logger?.warn({ ...counts, hint }, 'connections were ended or refused, because one client or all have too many');
  });

  const release = (one: Connection): void => {
    idle.delete(one);
    if (one.isCounted) shares.release(one.holder, 1);
    one.isCounted = false;
  };

  const endLongestIdle = (some: Set<Connection>): boolean => {
    for (const one of some) {
      idle.delete(one);
      if (one.socket.bytesRead !== one.read) continue; // a request is arriving
      release(one);
      one.socket.destroy();
      note('ended');
      return true;
    }
    return false;
  };

  /** Makes room by ending idle connections: the holder's own, or those of others if it has none. */
  const takePlace = (holder: string): boolean => {
    while (!shares.take(holder, 1)) {
      if (!endLongestIdle(shares.has(holder) ? idle.of(holder) : idle.all)) return false;
    }
    return true;
  };

  const found = (socket: Socket, one: Connection): void => {
    one.socket = socket;
    bySocket.set(socket, one);
    idle.add(one);
  };

  server.on('connection', (socket: Socket) => {
    const holder = isBehindProxy ? 'proxy' : blockOf(socket.remoteAddress);
    if (!takePlace(holder)) {
      note('refused');
      return void socket.destroy();
    }
    const one: Connection = { socket, holder, inFlight: 0, read: 0, isCounted: true };
    const ends = endsOf(socket);
    byEnds.set(ends, one);
    if (!(server instanceof TlsServer)) found(socket, one);
    socket.once('close', () => {
      release(one);
      if (byEnds.get(ends) === one) byEnds.delete(ends);
    });
  });
  server.on('secureConnection', (socket: Socket) => {
    const one = byEnds.get(endsOf(socket));
    if (one?.isCounted) found(socket, one);
  });
  server.on(BEGUN, ({ socket }: IncomingMessage, response: ServerResponse) => {
    const one = bySocket.get(socket);
    if (!one) return;
    one.inFlight += 1;
    idle.delete(one);
    response.once('close', () => {
      one.inFlight -= 1;
      if (one.inFlight === 0 && one.isCounted && !socket.destroyed) idle.add(one);
    });
  });
};

/**
 * `withinMs`: a client that reads nothing for this long is cut off. `leastWithinMs`: the time in which it must read at
 * least `LEAST_READ_BYTES`. Tests set shorter times.
 */
export type ReadLimits = { withinMs?: number; leastWithinMs?: number };
type ConnectionLimits = { connectionsMax?: number; logger?: Logger };

/** Plain HTTP. With a certificate, TLS 1.3 and nothing older (docs/contract.md, TLS). */
export const createWebServer = (
  {
    TLS_CERT_FILE,
    TLS_KEY_FILE,
    TRUST_PROXY = false,
  }: Pick<Config, 'TLS_CERT_FILE' | 'TLS_KEY_FILE'> & Partial<Pick<Config, 'TRUST_PROXY'>>,
  listener: RequestListener,
  draining: AbortSignal,
  limits: ReadLimits & ConnectionLimits = {},
): Server => {
  const server =
    TLS_CERT_FILE && TLS_KEY_FILE
      ? createTlsServer({
          ...OPTIONS,
          cert: readFileSync(TLS_CERT_FILE),
          key: readFileSync(TLS_KEY_FILE),
          minVersion: 'TLSv1.3',
        })
      : createServer(OPTIONS);
  // The timeout is longer than the idle time of common load balancers, so that none sends a request on a connection
  // that is closing.
  server.keepAliveTimeout = KEEP_ALIVE_MS;
  trackConnections(server);
  shareConnections(server, { ...limits, isBehindProxy: TRUST_PROXY !== false });
  answerMalformed(server);
  endDribbles(server);
  handleInTurn(server, listener);
  const inFlight = trackResponses(server, limits.logger);
  endConnectionsByResponses(server, inFlight, draining);
  cutSlowReaders(server, inFlight, limits);
  return server;
};

export const listen = (server: Server, { host, port }: { host: string; port: number }): Promise<number> =>
  new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ port, host, backlog: BACKLOG }, () => {
      server.off('error', reject);
      resolve((server.address() as AddressInfo).port);
    });
  });

type Closing = {
  /** How long the server still accepts connections, so that a load balancer notices the stop before clients do. */
  graceMs: number;
  /** Connections that are still open after this time are cut. */
  cutAfterMs: number;
};

/** A flood of new connections delays a stop by at most this many ticks. */
const READING_TICKS_MAX = 1_000;

/**
 * Resolves at the end of a tick in which everything that had arrived was read and no connection was new. A timer runs
 * before its tick reads. Without this wait, what arrived while the process was busy would be reset unread, and its
 * request broken.
 */
const afterReading = async (server: Server): Promise<void> => {
  let isNew = true;
  const note = (): void => void (isNew = true);
  server.on('connection', note);
  for (let ticks = 0; isNew && ticks < READING_TICKS_MAX; ticks += 2) {
    isNew = false;
    await nextTick();
    await nextTick(); // The first one accepts connections, the second one reads from them.
  }
  server.off('connection', note);
};

/** Stops accepting connections after the grace time, and lets requests in flight end. */
export const closeWebServer = async (server: Server, { graceMs, cutAfterMs }: Closing): Promise<void> => {
  const cut = setTimeout(() => cutConnections(server), cutAfterMs);
  if (graceMs > 0) await sleep(graceMs);
  await afterReading(server);
  await new Promise<void>((resolve) => {
    const sweep = setInterval(() => void afterReading(server).then(() => server.closeIdleConnections()), IDLE_SWEEP_MS);
    server.close(() => {
      clearInterval(sweep);
      clearTimeout(cut);
      resolve();
    });
  });
};
