import { type Server, STATUS_CODES, type ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { ApiError, type ErrorCode, notFound } from './errors.ts';
import { newId } from './ids.ts';

/** How long the client can read the answer before the connection is destroyed. */
const LINGER_MS = 1_000;

const CODE_OF: Record<string, ErrorCode> = {
  HPE_HEADER_OVERFLOW: 'headers_too_large',
  HPE_CHUNK_EXTENSIONS_OVERFLOW: 'payload_too_large',
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
};

const codeOf = ({ code = '' }: NodeJS.ErrnoException): ErrorCode | null =>
  CODE_OF[code] ?? (code.startsWith('HPE_') ? 'malformed_request' : null);

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
export const answerMalformed = (server: Server): void => {
  const answering = new WeakMap<Duplex, ServerResponse>();
  server.on('request', (req, res) => answering.set(req.socket, res));
  server.on('checkExpectation', (req, res) => server.emit('request', req, res));
  server.on('connect', (_req, socket) => writeError(socket, notFound()));
  server.on('clientError', (failure: NodeJS.ErrnoException, socket) => {
    const code = codeOf(failure);
    const current = answering.get(socket);
    const midway = current !== undefined && current.headersSent && !current.writableFinished;
    if (code === null || !socket.writable || midway) socket.destroy();
    else writeError(socket, new ApiError(code));
  });
};
