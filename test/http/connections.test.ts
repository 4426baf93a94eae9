import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import type { IncomingMessage, RequestListener } from 'node:http';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { connect as connectTls } from 'node:tls';
import { expect, onTestFinished, test } from 'vitest';
import { openHealthServer } from '../../src/platform/http/health.ts';
import { sendBytes } from '../../src/platform/http/http.ts';
import { closeWebServer, createWebServer, listen } from '../../src/platform/http/web-server.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { AUTHORITY, KEY, VALID } from '../kit/certificates.ts';
import { eventually } from '../support/eventually.ts';
import { collect } from '../support/heap.ts';

const MAX = 40;
const ATTACKER = '127.0.0.2';
const VISITOR = '127.0.0.1';

type Settings = Parameters<typeof createWebServer>[0];

/** A server with few connections. `open` connects from an address, `ask` sends a request and waits for its status. */
const serve = async (listener: RequestListener = (_req, res) => void res.end('ok'), settings: Settings = {}) => {
  const lines: string[] = [];
  const log = new Writable({ write: (chunk: Buffer, _encoding, done) => done(void lines.push(chunk.toString())) });
  const server = createWebServer(settings, listener, new AbortController().signal, {
    connectionsMax: MAX,
    logger: createLogger({ name: 'test', level: 'warn' }, log),
  });
  const port = await listen(server, { host: '127.0.0.1', port: 0 });
  const clients: Socket[] = [];
  onTestFinished(async () => {
    for (const client of clients) client.destroy();
    await closeWebServer(server, { graceMs: 0, cutAfterMs: 0 });
  });

  const open = (from: string): Socket => {
    const plain = connect({ port, host: '127.0.0.1', localAddress: from });
    const client = settings.TLS_CERT_FILE
      ? connectTls({ socket: plain, ca: AUTHORITY, servername: 'localhost' })
      : plain;
    for (const one of [plain, client]) one.on('error', () => undefined);
    clients.push(plain);
    return client;
  };
  const ask = (client: Socket, path = '/'): Promise<number | null> =>
    new Promise((resolve) => {
      client.once('close', () => resolve(null));
      client.once('data', (bytes: Buffer) => resolve(Number(bytes.toString().split(' ')[1])));
      client.write(`GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`);
    });
  /** Opens connections one after the other, each with a request. */
  const openMany = async (from: string, count: number) => {
    const opened: { client: Socket; status: number | null }[] = [];
    for (let nth = 0; nth < count; nth += 1) {
      const client = open(from);
      opened.push({ client, status: await ask(client) });
    }
    return opened;
  };
  return { open, ask, openMany, lines };
};

const alive = (opened: { client: Socket }[]) => opened.filter(({ client }) => !client.closed);
const statusesOf = (opened: { status: number | null }[]) => [...new Set(opened.map(({ status }) => status))];

const aCertificate = () => {
  const folder = mkdtempSync(join(tmpdir(), 'parley-connections-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const [TLS_CERT_FILE, TLS_KEY_FILE] = [join(folder, 'cert.pem'), join(folder, 'key.pem')];
  writeFileSync(TLS_CERT_FILE, VALID);
  writeFileSync(TLS_KEY_FILE, KEY);
  return { TLS_CERT_FILE, TLS_KEY_FILE };
};

test.each([
  ['plain HTTP', () => ({})],
  ['TLS', aCertificate],
])(
  'a network with too many connections loses its longest idle ones, and a visitor notices nothing: %s',
  async (_, settings) => {
    const { ask, openMany, lines } = await serve(undefined, settings());

    const held = await openMany(ATTACKER, 3 * MAX);
    await eventually(() => expect(alive(held).length).toBeLessThanOrEqual(MAX / 2));
    const visits = await openMany(VISITOR, 10);
    const more = await openMany(ATTACKER, MAX);
    const again = await Promise.all(visits.map(({ client }) => ask(client)));

    expect(statusesOf(held)).toEqual([200]);
    expect(statusesOf(visits)).toEqual([200]);
    expect([...new Set(again)]).toEqual([200]);
    await eventually(() => expect(alive([...held, ...more]).length).toBeLessThanOrEqual(MAX - 10 - 10));
    expect(alive(more).at(-1)).toBe(more.at(-1));
    expect(lines).toHaveLength(1);
    expect(JSON.parse(lines[0] ?? '')).toMatchObject({ level: 40, ended: 1, refused: 0, hint: expect.any(String) });
  },
);

test('connections that send nothing are idle, and the next one of their network gets their place', async () => {
  const { open, openMany } = await serve();
  const silent = Array.from({ length: MAX }, () => ({ client: open(ATTACKER) }));

  const visits = await openMany(ATTACKER, 1);

  expect(statusesOf(visits)).toEqual([200]);
  await eventually(() => expect(alive(silent).length).toBeLessThan(MAX / 2));
});

test('a connection with a request in flight, or with a half of one, is never ended: a new one is refused', async () => {
  const answers: (() => void)[] = [];
  const { open, ask, openMany } = await serve((req, res) => {
    if (req.url === '/slow') answers.push(() => res.end('late'));
    else res.end('ok');
  });
  const half = open(ATTACKER);
  await ask(half);
  half.write('GET / HTT');
  const inFlight = Array.from({ length: MAX / 2 - 1 }, () => ask(open(ATTACKER), '/slow'));
  await eventually(() => expect(answers).toHaveLength(MAX / 2 - 1));

  const refused = await openMany(ATTACKER, 5);
  const visits = await openMany(VISITOR, 1);
  for (const answer of answers) answer();
  const rest = new Promise((resolve) => half.once('data', (bytes: Buffer) => resolve(bytes.toString().slice(0, 15))));
  half.write('P/1.1\r\nHost: x\r\n\r\n');

  expect([statusesOf(refused), statusesOf(visits)]).toEqual([[null], [200]]);
  expect([...new Set(await Promise.all(inFlight))]).toEqual([200]);
  expect(await rest).toBe('HTTP/1.1 200 OK');
});

test('behind a proxy, all connections are the proxy’s, and only the bound of the process counts', async () => {
  const { openMany } = await serve(undefined, { TRUST_PROXY: 1 });

  const first = await openMany(ATTACKER, MAX);
  const kept = alive(first).length;
  const next = await openMany(VISITOR, 5);

  expect(kept).toBe(MAX);
  expect(statusesOf(next)).toEqual([200]);
  await eventually(() => expect(alive(first)).toEqual(first.slice(5)));
});

test('if many networks hold all connections, one that has none takes the place of the longest idle', async () => {
  const { openMany } = await serve();
  const others: { client: Socket; status: number | null }[] = [];
  for (let nth = 0; nth < 2 * MAX; nth += 1) others.push(...(await openMany(`127.0.1.${nth + 1}`, 1)));

  const visits = await openMany(VISITOR, 1);

  expect(statusesOf([...others, ...visits])).toEqual([200]);
  await eventually(() => expect(alive(others).length).toBeLessThan(MAX));
  expect(alive(others).at(-1)).toBe(others.at(-1));
});

test('callers who do not read a large file over TLS hold no copies of it', async () => {
  const file = Buffer.alloc(8 * 1024 * 1024, 'x');
  const { open } = await serve((_req, res) => void sendBytes(res, file), aCertificate());
  const ask = async () => {
    const client = open(VISITOR);
    client.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    await once(client, 'data');
    client.pause();
  };
  await ask();
  const before = process.memoryUsage().rss;

  await Promise.all(Array.from({ length: MAX / 2 - 1 }, ask));

  expect(process.memoryUsage().rss - before).toBeLessThan(60 * 1024 * 1024);
});

test('connections that stay open do not keep a worker from its own files, nor others from its health', async () => {
  const { server, port } = await openHealthServer({
    host: '127.0.0.1',
    port: 0,
    readiness: () => Promise.resolve({ ready: true, checks: {} }),
    draining: new AbortController().signal,
    logger: createLogger({ name: 'test', level: 'silent' }),
  });
  const clients: Socket[] = [];
  onTestFinished(async () => {
    for (const client of clients) client.destroy();
    await closeWebServer(server, { graceMs: 0, cutAfterMs: 0 });
  });
  const left = new Set<Socket>();
  for (let nth = 0; nth < 300; nth += 1) {
    const client = connect({ port, host: '127.0.0.1', localAddress: ATTACKER });
    client.on('error', () => undefined).once('close', () => left.delete(client));
    client.once('connect', () => left.add(client)).resume();
    clients.push(client);
  }

  const { status } = await fetch(`http://127.0.0.1:${port}/readyz`);

  expect(status).toBe(200);
  await eventually(() => expect(left.size).toBeLessThanOrEqual(100));
});

test('a connection that is idle keeps nothing of its last request', async () => {
  const requests: WeakRef<IncomingMessage>[] = [];
  const { open, ask } = await serve((req, res) => {
    requests.push(new WeakRef(req));
    res.end('ok');
  });
  const clients = [open(VISITOR), open(VISITOR)];
  for (const client of clients) await ask(client);

  await eventually(() => {
    collect();
    expect(requests.map((one) => one.deref() === undefined)).toEqual([true, true]);
  });

  expect(clients.map(({ closed }) => closed)).toEqual([false, false]);
});

test('a response that is written to after its end is logged, and the process answers on', async () => {
  const { open, ask, lines } = await serve((_req, res) => {
    res.end('ok');
    res.write('more');
  });

  const client = open(VISITOR);

  expect([await ask(client), await ask(client)]).toEqual([200, 200]);
  await eventually(() => expect(lines.join('')).toContain('a response was written to after its end'));
});
