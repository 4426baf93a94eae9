import { EventEmitter, once } from 'node:events';
import { createServer, IncomingMessage, ServerResponse } from 'node:http';
import { type AddressInfo, connect, Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import express, { type Request, type Response } from 'express';
import { expect, onTestFinished, test, vi } from 'vitest';
import {
  limitEachPerson,
  limitEachSession,
  limitEachTeam,
  takeRoomForAnswer,
  takeRoomForBody,
  takeRoomForList,
  workOn,
  workOnBody,
} from '../../src/platform/http/request-slots.ts';
import { holdFor, keepInBounds, takeTurnsFor } from '../../src/platform/http/shares.ts';
import { createWebServer, listen } from '../../src/platform/http/web-server.ts';
import { eventually } from '../support/eventually.ts';

/** More than the buffers of the operating system hold. */
const LARGE = Buffer.alloc(48 * 1024 * 1024, 'x');

const serve = async (app: express.Express) => {
  const server = createServer(app).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { port, ask: (path: string, options: RequestInit) => fetch(`http://127.0.0.1:${port}${path}`, options) };
};

/** Requests of a session work until they are released. */
const openWork = async () => {
  const released = Promise.withResolvers<void>();
  const begun: string[] = [];
  const app = express();
  app.use(limitEachSession((req) => req.get('Cookie') ?? null));
  app.get('/', async (req, res) => {
    begun.push(req.get('Cookie') ?? '');
    await workOn(res, released.promise);
    res.end();
  });
  const served = await serve(app);
  onTestFinished(() => released.resolve());
  const ask = (session: string, signal: AbortSignal | null = null) =>
    served.ask('/', { headers: { Cookie: session }, signal });
  return { ask, begun, release: released.resolve };
};

test('a session whose callers leave has no more work at once than one whose callers wait', async () => {
  const { ask, begun, release } = await openWork();
  const leaving = new AbortController();
  const left = ['one', 'one'].map((session) => ask(session, leaving.signal).catch(() => null));
  await eventually(() => expect(begun).toHaveLength(2));

  leaving.abort();
  await Promise.all(left);
  const next = ask('one');
  const other = ask('other');
  await eventually(() => expect(begun).toContain('other'));

  expect(begun).toEqual(['one', 'one', 'other']);
  release();
  expect((await Promise.all([next, other])).map(({ status }) => status)).toEqual([200, 200]);
});

const PLACES: [string, number, (holder: string, req: Request, res: Response) => Promise<void>][] = [
  [
    'large body',
    2, // of four, one holder has two
    async (holder, req, res) => {
      holdFor(res, holder);
      await takeRoomForBody(req, res);
    },
  ],
  ['request of a person', 4, (holder, _req, res) => limitEachPerson(holder, res)],
  ['request of a team', 6, (holder, _req, res) => limitEachTeam(holder, 'somebody', res)],
];

test.each(PLACES)(
  'after a %s, its place stays taken four times as long as it was used, half a second at most',
  async (_what, places, take) => {
    const begun: number[] = [];
    const app = express();
    app.post('/', async (req, res) => {
      await take('one', req, res);
      begun.push(performance.now());
      if (begun.length <= places) await sleep(100);
      res.end();
    });
    const { ask } = await serve(app);

    await Promise.all(Array.from({ length: places + 1 }, () => ask('/', { method: 'POST' })));

    expect(Number(begun.at(-1)) - Number(begun[0])).toBeGreaterThanOrEqual(490);
  },
);

/** How many places each holder takes, until none is free. */
const UNREAD: [string, number[], typeof takeRoomForBody][] = [
  ['bodies', [2, 1, 1], takeRoomForBody],
  ['answers', [6, 3, 2, 1, 1, 1, 1, 1], takeRoomForAnswer],
];

test.each(UNREAD)(
  'large %s whose answers nobody reads lose their places to a holder who has none',
  async (...given) => {
    const [, taken, take] = given;
    let begun = 0;
    let countedAll = 0;
    const app = express();
    app.post('/:holder', async (req, res) => {
      holdFor(res, req.params.holder);
      // It reads all texts that wait.
      Object.defineProperty(req.socket, 'bytesWritten', { get: () => (countedAll += 1) });
      await take(req, res);
      begun += 1;
      res.end(req.params.holder === 'reader' ? 'done' : LARGE);
    });
    const { ask, port } = await serve(app);
    const sendWithoutReading = (holder: number): void => {
      const socket = connect(port, '127.0.0.1').on('error', () => undefined);
      onTestFinished(() => void socket.destroy());
      socket.write(`POST /${holder} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n`);
    };
    for (const [holder, places] of taken.entries()) {
      const before = begun;
      for (let nth = 0; nth < places; nth += 1) sendWithoutReading(holder);
      await eventually(() => expect(begun).toBe(before + places));
    }

    const answer = await ask('/reader', { method: 'POST' });

    expect(answer.status).toBe(200);
    expect(countedAll).toBe(0);
  },
);

test.each(['GET', 'POST'])('nothing more is read of a %s that is too much of its address', async (method) => {
  const ip = `of ${method}`;
  const leaving = new EventEmitter();
  const socket = { readableHighWaterMark: 64 * 1024 };
  const waiting = { ip, headers: { 'transfer-encoding': 'chunked' }, rawHeaders: [], socket, once: () => undefined };
  const fill = async (): Promise<boolean> => {
    const passed = vi.fn<() => void>();
    await keepInBounds(waiting as never, leaving as never, passed);
    return passed.mock.calls.length === 1;
  };
  leaving.setMaxListeners(0);
  onTestFinished(() => void leaving.emit('close'));
  for (let nth = 0; nth < 744; nth += 1) expect(await fill()).toBe(true);
  let request: IncomingMessage | undefined;
  const app = express();
  app.use((req, _res, next) => {
    Object.defineProperty(req, 'ip', { value: ip });
    request = req;
    next();
  }, keepInBounds);
  let isRefused = false;
  const refuse: express.ErrorRequestHandler = (_cause, _req, res, _next) => {
    isRefused = true;
    res.status(503).end();
  };
  app.use(refuse);
  const server = createWebServer({}, app, new AbortController().signal);
  await listen(server, { host: '127.0.0.1', port: 0 });
  onTestFinished(() => void server.close());
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1').on('error', () => undefined);
  client.resume();

  client.write(`${method} / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n`);
  await eventually(() => expect(request).toBeDefined());
  const read = request?.socket.bytesRead;
  const pieces = '1\r\na\r\n'.repeat(100_000);
  client.write(pieces);
  await new Promise((resolve) => client.on('close', resolve));

  expect(isRefused).toBe(true);
  expect(Number(request?.socket.bytesRead) - Number(read)).toBeLessThan(pieces.length / 2);
});

/** A request that ends with its socket. */
const aRequest = (holder: string, sender: string) => {
  const req = new IncomingMessage(new Socket()) as Request;
  const res = Object.assign(new ServerResponse(req), { locals: {} }) as unknown as Response;
  req.socket.once('close', () => res.emit('close'));
  holdFor(res, holder);
  takeTurnsFor(res, sender);
  return { req, res };
};

test('a list that waits for its own sender’s share ends no list of another sender', async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const unread = aRequest('another holder', 'another sender');
  Object.defineProperty(unread.res, 'writableNeedDrain', { value: true });
  const ofOne = ['one', 'two', 'three', 'four'].map((holder) => aRequest(holder, 'a sender'));
  onTestFinished(() => [unread, ...ofOne].forEach(({ res }) => res.emit('close')));
  await takeRoomForList(unread.req, unread.res);
  let begun = 0;
  const taken = ofOne.map(({ req, res }) => takeRoomForList(req, res).then(() => (begun += 1)));

  await vi.advanceTimersByTimeAsync(9_000);
  const before = begun;
  ofOne[0]?.res.emit('close');
  await Promise.all(taken);

  expect([before, begun, unread.req.socket.destroyed]).toEqual([3, 4, false]);
});

/** Asks for a place for a large body, then works for so long. */
const ask = async (holder: string, ms: number): Promise<void> => {
  const { req, res } = aRequest(holder, 'a tenant');
  await takeRoomForBody(req, res);
  await workOnBody(req, res, sleepFor(ms));
  res.emit('close');
};
const sleepFor = (ms: number) => new Promise<void>((resolve) => void setTimeout(resolve, ms));

test('slow work on the large bodies of four holders leaves a place for a fifth of the same tenant', async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const over = new AbortController();
  const goOn = async (holder: string): Promise<void> => {
    while (!over.signal.aborted) await ask(holder, 20_000).catch(() => undefined);
  };
  const slow = ['one', 'two', 'three', 'four'].flatMap((holder) => [goOn(holder), goOn(holder), goOn(holder)]);
  const waits: number[] = [];
  const askOnce = async (): Promise<void> => {
    const begun = performance.now();
    const answer = ask('five', 0).catch(() => undefined);
    void answer.then(() => waits.push(performance.now() - begun));
    await vi.advanceTimersByTimeAsync(50_000);
  };

  await vi.advanceTimersByTimeAsync(1_000);
  await askOnce();
  await askOnce();
  over.abort();
  await vi.advanceTimersByTimeAsync(600_000);
  await Promise.all(slow);

  expect(waits[0]).toBeLessThan(21_000); // until the first are known to be slow, and have ended
  expect(waits[1]).toBeLessThan(1_000);
});
