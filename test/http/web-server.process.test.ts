import { once } from 'node:events';
import type { RequestListener, ServerResponse } from 'node:http';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { closeWebServer, createWebServer, listen, type ReadLimits } from '../../src/http/web-server.ts';
import { eventually } from '../support/eventually.ts';

/** More than the buffers of the operating system hold. */
const LARGE = Buffer.alloc(48 * 1024 * 1024, 'x');

const serve = async (limits: ReadLimits, listener: RequestListener): Promise<Socket> => {
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

/** Reads a little from time to time. Returns how many bytes arrived until the end or the cut. */
const readSlowly = async (client: Socket, { pauseMs, atMost }: { pauseMs: number; atMost: number }) => {
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
  await eventually(() => expect(isOver || read >= atMost).toBe(true));
  return read;
};

test('a client that does not read its answer is cut off', async () => {
  const ended: ServerResponse[] = [];
  const client = await serve({ withinMs: 500 }, (_req, res) => {
    res.once('close', () => ended.push(res)).end(LARGE);
  });

  client.pause();

  await eventually(() => expect(ended).toHaveLength(1));
  expect(ended[0]?.writableFinished).toBe(false);
});

test('a client that reads steadily gets all of its answer, and one that reads very slowly is cut off', async () => {
  const patient = await serve({ withinMs: 2_000 }, (_req, res) => void res.end(LARGE));
  const read = await readSlowly(patient, { pauseMs: 5, atMost: LARGE.length });

  const impatient = await serve({ withinMs: 2_000, leastWithinMs: 1_000 }, (_req, res) => void res.end(LARGE));
  const cut = await readSlowly(impatient, { pauseMs: 200, atMost: LARGE.length });

  expect(read).toBeGreaterThanOrEqual(LARGE.length);
  expect(cut).toBeLessThan(LARGE.length);
});

test('a client that reads a stream without an end very slowly is cut off', async () => {
  const client = await serve({ withinMs: 2_000, leastWithinMs: 1_000 }, (_req, res) => {
    const more = (): void =>
      void (
        res.destroyed || (res.write(LARGE.subarray(0, 1024 * 1024)) ? setImmediate(more) : res.once('drain', more))
      );
    more();
  });

  await readSlowly(client, { pauseMs: 200, atMost: LARGE.length });

  expect(client.destroyed).toBe(true);
});

test('a stream with nothing to send stays open', async () => {
  let sent: ServerResponse | undefined;
  const client = await serve({ withinMs: 200, leastWithinMs: 200 }, (_req, res) => {
    sent = res;
    res.write('first');
  });
  await once(client, 'data');

  await sleep(1_000);
  sent?.end('last');

  const [last] = (await once(client, 'data')) as [Buffer];
  expect(last.toString()).toContain('last');
});
