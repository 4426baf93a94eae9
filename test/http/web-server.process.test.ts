import { once } from 'node:events';
import type { RequestListener, ServerResponse } from 'node:http';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { expect, test, type TestContext } from 'vitest';
import { closeWebServer, createWebServer, listen, type ReadLimits } from '../../src/platform/http/web-server.ts';
import { eventually } from '../support/eventually.ts';

/** More than the buffers of the operating system hold. */
const LARGE = Buffer.alloc(48 * 1024 * 1024, 'x');

const serve = async (
  { onTestFinished }: TestContext,
  limits: ReadLimits,
  listener: RequestListener,
): Promise<Socket> => {
  const server = createWebServer({}, listener, new AbortController().signal, limits);
  const port = await listen(server, { host: '127.0.0.1', port: 0 });
  const client = connect(port, '127.0.0.1').on('error', () => undefined);
  onTestFinished(async () => {
    client.destroy();
    await closeWebServer(server, { graceMs: 0, cutAfterMs: 0 });
  });
  await once(client, 'connect');
  client.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  return client;
};

/**
 * Reads a little from time to time. Returns how many bytes arrived until the end, or until the server cut the client off:
 * what the operating system holds then would take many seconds to read.
 */
const readSlowly = async (
  client: Socket,
  { pauseMs, atMost, isCut }: { pauseMs: number; atMost: number; isCut?: () => boolean },
) => {
  let read = 0;
  let isOver = false;
  client.once('close', () => {
    isOver = true;
  });
  client.on('data', (chunk: Buffer) => {
    read += chunk.length;
    client.pause();
    void sleep(pauseMs).then(() => client.resume());
  });
  await eventually(() => expect(isOver || isCut?.() || read >= atMost).toBe(true));
  return read;
};

test.concurrent('a client that does not read its answer is cut off', async (context) => {
  const ended: ServerResponse[] = [];
  const client = await serve(context, { withinMs: 500 }, (_req, res) => {
    res.once('close', () => ended.push(res)).end(LARGE);
  });

  client.pause();

  await eventually(() => expect(ended).toHaveLength(1));
  expect(ended[0]?.writableFinished).toBe(false);
});

test.concurrent('a client that reads steadily gets all of its answer, and one that reads very slowly is cut off', async (context) => {
  const patient = await serve(context, { withinMs: 1_000 }, (_req, res) => void res.end(LARGE));
  const read = await readSlowly(patient, { pauseMs: 2, atMost: LARGE.length });

  const ended: ServerResponse[] = [];
  const impatient = await serve(context, { withinMs: 1_000, leastWithinMs: 1_000 }, (_req, res) => {
    res.once('close', () => ended.push(res)).end(LARGE);
  });
  const cut = await readSlowly(impatient, { pauseMs: 200, atMost: LARGE.length, isCut: () => ended.length > 0 });

  expect(read).toBeGreaterThanOrEqual(LARGE.length);
  expect(cut).toBeLessThan(LARGE.length);
  expect(ended.map(({ writableFinished }) => writableFinished)).toEqual([false]);
});

test.concurrent('a client that reads a stream without an end very slowly is cut off', async (context) => {
  let response: ServerResponse | undefined;
  const client = await serve(context, { withinMs: 1_000, leastWithinMs: 1_000 }, (_req, res) => {
    response = res;
    const more = (): void =>
      void (
        res.destroyed || (res.write(LARGE.subarray(0, 1024 * 1024)) ? setImmediate(more) : res.once('drain', more))
      );
    more();
  });

  const isCut = () => response?.destroyed === true;
  await readSlowly(client, { pauseMs: 200, atMost: LARGE.length, isCut });

  expect(isCut()).toBe(true);
});

test.concurrent('a stream with nothing to send stays open', async (context) => {
  let sent: ServerResponse | undefined;
  const client = await serve(context, { withinMs: 200, leastWithinMs: 200 }, (_req, res) => {
    sent = res;
    res.write('first');
  });
  await once(client, 'data');

  await sleep(1_000);
  sent?.end('last');

  const [last] = (await once(client, 'data')) as [Buffer];
  expect(last.toString()).toContain('last');
});

/** A client in a thread of its own, so that it sends while the thread of the server is busy. */
const CALLERS = `
  const { connect } = require('node:net');
  const { parentPort, workerData: { port, kept, fresh, signals } } = require('node:worker_threads');
  const REQUEST = 'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n';
  const open = () => new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => resolve(socket)).once('error', reject);
  });
  const ask = (socket) => new Promise((resolve) => {
    socket.removeAllListeners('error').once('error', ({ code }) => resolve(code)).once('close', () => resolve('closed'));
    socket.once('data', (data) => resolve(data.toString().slice(0, 12)));
    socket.write(REQUEST, () => { Atomics.add(signals, 1, 1); Atomics.notify(signals, 1); });
  });
  (async () => {
    const sockets = await Promise.all(Array.from({ length: kept }, open));
    await Promise.all(sockets.map(ask));
    Atomics.store(signals, 1, 0);
    parentPort.postMessage('ready');
    Atomics.wait(signals, 0, 0); // until the server is busy
    const answers = sockets.map(ask);
    for (let nth = 0; nth < fresh; nth += 1) answers.push(open().then(ask, ({ code }) => code));
    parentPort.postMessage(await Promise.all(answers));
  })();
`;

test('a stop breaks no request that arrived while the process was busy', async ({ onTestFinished }) => {
  const [kept, fresh] = [3, 3];
  const server = createWebServer({}, (_req, res) => void res.end('x'), new AbortController().signal);
  const port = await listen(server, { host: '127.0.0.1', port: 0 });
  const signals = new Int32Array(new SharedArrayBuffer(8));
  const callers = new Worker(CALLERS, { eval: true, workerData: { port, kept, fresh, signals } });
  onTestFinished(() => void callers.terminate());
  await once(callers, 'message');
  const answers = once(callers, 'message');

  const closed = closeWebServer(server, { graceMs: 1, cutAfterMs: 60_000 });
  Atomics.store(signals, 0, 1);
  Atomics.notify(signals, 0);
  while (Atomics.load(signals, 1) < kept + fresh) Atomics.wait(signals, 1, Atomics.load(signals, 1));

  expect(await answers).toEqual([Array.from({ length: kept + fresh }, () => 'HTTP/1.1 200')]);
  await closed;
});
