import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { verifyWebhook, type WebhookVerdict } from '../../packages/client/src/verify-webhook.ts';
import { KEY, VALID } from './certificates.ts';

export interface Received {
  method: string;
  path: string;
  headers: IncomingMessage['headers'];
  /** The unparsed bytes. */
  body: Buffer;
  json: unknown;
  at: number;
  /** The result of `verifyWebhook`. Null if the receiver has no secret. */
  verdict: WebhookVerdict | null;
}
/** What is answered, or what is done instead: a test may break the protocol. */
export type Answer =
  | { status?: number; headers?: Record<string, string | string[]>; body?: string | Buffer; delayMs?: number }
  | ((response: ServerResponse, request: IncomingMessage) => unknown);
export interface ReceiverOptions {
  secret?: string | string[];
  /** Answers a request. A test can return a promise to hold the delivery in flight. */
  respond?: (request: Received, nth: number) => Answer | Promise<Answer>;
  tls?: boolean | { key: string; cert: string };
  /** Default: a free port. */
  port?: number;
}
export interface Receiver {
  url: string;
  port: number;
  received: Received[];
  /** For a secret that is made after the receiver. */
  setSecret: (secret: string) => void;
  /** Waits until the predicate holds for the received requests. */
  waitFor: (predicate: (received: Received[]) => boolean, timeoutMs?: number) => Promise<Received[]>;
  close: () => Promise<void>;
}

/** The text of the event's message, if it has one. */
export const contentOf = ({ json }: { json: unknown }): string | undefined =>
  (json as { payload: { content?: string } }).payload.content;

const parseJson = (body: Buffer): unknown => {
  try {
    return JSON.parse(body.toString('utf8'));
  } catch {
    return undefined;
  }
};

const open = new Set<() => Promise<void>>();

/** Closes every receiver that is still open. Tests do this after each file. */
export const closeReceivers = async (): Promise<void> => {
  await Promise.all([...open].map((close) => close()));
};

/** A server of others on a free port of 127.0.0.1: a customer's, a provider, a website. It records all requests. */
export const openReceiver = async ({
  secret: first,
  respond = () => ({}),
  tls,
  port: wanted = 0,
}: ReceiverOptions = {}): Promise<Receiver> => {
  const received: Received[] = [];
  const waiters = new Set<() => void>();
  let secret = first;

  const handle = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body = await buffer(request);
    const verdict = secret && verifyWebhook(body, request.headers['x-factory-signature'], secret);
    const { method = '', url: path = '', headers } = request;
    const entry = { method, path, headers, body, json: parseJson(body), at: Date.now(), verdict: verdict || null };
    received.push(entry);
    for (const check of waiters) check();
    const answer = await respond(entry, received.length);
    if (typeof answer === 'function') return void (await answer(response, request));
    if (answer.delayMs) await sleep(answer.delayMs);
    response.writeHead(answer.status ?? 200, answer.headers).end(answer.body ?? 'ok');
  };
  const listener: RequestListener = (request, response) => {
    // The error is ignored, because some tests expect that the sender gives up and breaks the request.
    handle(request, response).catch(() => response.destroy());
  };

  const identity = tls === true ? { key: KEY, cert: VALID } : tls;
  const server = identity ? createTlsServer({ ...identity, minVersion: 'TLSv1.3' }, listener) : createServer(listener);
  await new Promise<void>((resolve) => server.listen(wanted, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;

  const waitFor: Receiver['waitFor'] = (predicate, timeoutMs = 60_000) =>
    new Promise((resolve, reject) => {
      const check = () => {
        if (!predicate(received)) return;
        clearTimeout(timer);
        waiters.delete(check);
        resolve(received);
      };
      const timer = setTimeout(() => {
        waiters.delete(check);
        reject(new Error(`the receiver waited ${timeoutMs} ms in vain; it has ${received.length} requests`));
      }, timeoutMs);
      waiters.add(check);
      check();
    });

  const close = (): Promise<void> =>
    new Promise((resolve) => {
      open.delete(close);
      server.close(() => resolve());
      server.closeAllConnections();
    });
  open.add(close);

  const setSecret = (given: string): void => void (secret = given);
  return { url: `${identity ? 'https' : 'http'}://127.0.0.1:${port}`, port, received, setSecret, waitFor, close };
};
