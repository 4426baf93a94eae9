import { AssertionError } from 'node:assert';
import type { Socket } from 'node:net';
import { type buildConnector, Client, errors } from 'undici';

// Everything that depends on how undici works inside. Checked with undici 8.12.4. "At most once" depends on the fact
// that its `writeH1` calls `onRequestStart` and then writes synchronously: see `HttpExchange`.

// Shorter than the idle limit of some common servers, which is 2 s. A request that is sent while the server closes the
// connection would end `unknown`.
const IDLE_MS = 1500;
// Subtracted from the keep-alive time that a server announces, so that a connection is never used at the moment the
// server closes it.
const IDLE_MARGIN_MS = 1000;
const MAX_HEADER_BYTES = 32 * 1024;

const CLIENT_OPTIONS: Client.Options = {
  pipelining: 1,
  allowH2: false,
  useMilo: false, // explicit, so that the environment cannot choose the parser
  maxHeaderSize: MAX_HEADER_BYTES,
  // undici's own timeouts are off, because each attempt has its own deadline.
  headersTimeout: 0,
  bodyTimeout: 0,
  keepAliveTimeout: IDLE_MS,
  keepAliveMaxTimeout: IDLE_MS,
  keepAliveTimeoutThreshold: IDLE_MARGIN_MS,
};

/**
 * The most header lines of a response, and of its trailer. undici counts only the characters of names and values, and
 * each line takes a microsecond, so that 16,000 lines of one character would take as long as a hundred responses.
 */
const HEADER_LINES_MAX = 250;
/** An error of llhttp for what a program refuses. */
const HPE_USER = 24;

type Parser = { headers: Buffer[]; onHeaderField: (bytes: Buffer) => number };

/**
 * Lets undici refuse a response with too many header lines, on a socket that it gets next. It puts its parser on the
 * socket before it reads.
 */
export const limitHeaderLines = <Given extends Socket>(socket: Given): Given => {
  const read = socket.read.bind(socket);
  socket.read = (size) => {
    const own = Object.getOwnPropertySymbols(socket).find(({ description }) => description === 'parser');
    const parser = own && (socket as unknown as Record<symbol, Parser | null>)[own];
    if (parser) {
      const { onHeaderField } = parser;
      // `headers` has names and values.
      parser.onHeaderField = (bytes) =>
        parser.headers.length > 2 * HEADER_LINES_MAX ? HPE_USER : onHeaderField.call(parser, bytes);
      socket.read = read;
    }
    return read(size) as unknown;
  };
  return socket;
};

/**
 * Gives undici one socket, once. When a client's socket closes, undici would open a new one for the requests left in
 * its queue, sometimes including a request that it had begun to write. Without another socket, those requests fail, so
 * no request is written twice or to an address that was not checked.
 */
const oneShot = (socket: Socket): buildConnector.connector => {
  let prepared: Socket | null = socket;
  return (_, callback) => {
    const handed = prepared;
    prepared = null;
    // The callback runs asynchronously, because otherwise undici does not process its queue. The error has no code,
    // because undici retries after some codes.
    queueMicrotask(() => (handed ? callback(null, handed) : callback(new Error('the connection is closed'), null)));
  };
};

/** undici over one socket, which it closes if data arrives while the socket is idle. */
export const clientOf = (origin: string, socket: Socket): Client =>
  new Client(origin, { ...CLIENT_OPTIONS, connect: oneShot(limitHeaderLines(socket)) });

/**
 * Waits one whole turn of the event loop before a write, so that a close that has already arrived is noticed before the
 * write. A whole turn takes two callbacks, because the first may run in the current turn. On a used socket, undici adds
 * the second callback in `dispatch`.
 */
export const onceChecked = (write: () => void, { used }: { used: boolean }): void => {
  if (used) setImmediate(write);
  else setImmediate(() => setImmediate(write));
};

/** What undici's error says about the response. `unknown`: nothing, so the error is the connection's own. */
type Breach = 'unasked_continue' | 'unasked_upgrade' | 'closed' | 'not_http' | 'unknown';

export const breachOf = (error: Error): Breach => {
  // These two can be recognised only by their messages.
  if (error.message === 'bad response') return 'unasked_continue';
  if (error.message === 'bad upgrade') return 'unasked_upgrade';
  if (error instanceof errors.SocketError) return 'closed';
  const isBreach = [errors.HTTPParserError, errors.UndiciError, AssertionError].some((known) => error instanceof known);
  return isBreach ? 'not_http' : 'unknown';
};
