import { createPublicKey, generateKeyPairSync, randomBytes } from 'node:crypto';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { createSecureContext, createServer as createTlsServer, type TlsOptions, type TLSSocket } from 'node:tls';
import { request } from 'undici';
import { afterEach, expect, test } from 'vitest';
import { openGuardedAgent } from '../../src/platform/http/address-guard.ts';
import { AUTHORITY, KEY, VALID } from '../kit/certificates.ts';
import { createChain, createConstraints, createLongChain, createNetworks, createPoints } from '../kit/chain.ts';
import { createFeed } from '../kit/feed.ts';
import { openReceiver } from '../kit/receiver.ts';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, sending: { ca: AUTHORITY } });

const opened: (() => unknown)[] = [];
afterEach(async () => {
  await Promise.all(opened.splice(0).map((close) => close()));
});

const listen = async (server: Server): Promise<number> => {
  opened.push(() => server.close());
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
};

/** A server that counts the handshakes that others begin with it. */
const openTls = async (options: TlsOptions, onSecure: (socket: TLSSocket) => void = () => undefined) => {
  const context = createSecureContext(options);
  let begun = 0;
  const server = createTlsServer(
    {
      ...options,
      SNICallback: (_name, done) => {
        begun += 1;
        done(null, context);
      },
    },
    (socket) => onSecure(socket.on('error', () => undefined)),
  );
  server.on('tlsClientError', () => undefined);
  const port = await listen(server);
  return { url: `https://localhost:${port}/`, port, begun: () => begun };
};

const anAgent = (connections = 1) => {
  const agent = openGuardedAgent({ allowPrivate: true, connections, ca: AUTHORITY });
  opened.push(() => agent.destroy());
  return agent;
};
const codeOf = (cause: unknown): unknown => (cause as { code?: unknown }).code;

const rsaOf = (modulusBytes: number, exponent: Buffer) => {
  const modulus = randomBytes(modulusBytes);
  modulus[0] = 0xff;
  const [n, e] = [modulus, exponent].map((number) => number.toString('base64url'));
  return createPublicKey({ key: { kty: 'RSA', n: n ?? '', e: e ?? '' }, format: 'jwk' });
};
const ownCurve = () => generateKeyPairSync('ec', { namedCurve: 'prime256v1', paramEncoding: 'explicit' }).publicKey;

const aRecord = (content: Buffer): Buffer => {
  const header = Buffer.from('1603030000', 'hex');
  header.writeUInt16BE(content.length, 3);
  return Buffer.concat([header, content]);
};

const COSTLY: [string, () => { key: string; cert: string }][] = [
  ['a long chain', () => createLongChain(90)],
  ['nine certificates', () => createLongChain(9)],
  ['a key on a curve of its own', () => createChain([ownCurve()])],
  ['an RSA key of 16,384 bits', () => createChain([rsaOf(2_048, Buffer.from('010001', 'hex'))])],
  ['an RSA key with a long exponent', () => createChain([rsaOf(256, Buffer.alloc(200, 0xff))])],
  ['many points of revoked certificates', createPoints],
  ['many names and constraints', createConstraints],
  ['blocks of addresses', createNetworks],
  ['a key of another kind', () => createChain([generateKeyPairSync('x25519').publicKey])],
];
const VERSIONS = ['TLSv1.2', 'TLSv1.3'] as const;

test.each(COSTLY.flatMap(([what, create]) => VERSIONS.map((version) => [what, version, create] as const)))(
  'a server with %s is refused before its certificates are decoded, with %s',
  async (_what, maxVersion, create) => {
    const server = await openTls({ ...create(), maxVersion });

    const failure = await request(server.url, { dispatcher: anAgent() }).catch(codeOf);

    expect(failure).toBe('ERR_TLS_CERT_UNUSUAL');
  },
);

const USUAL: [string, TlsOptions][] = [
  ['AES-128', { ciphers: 'TLS_AES_128_GCM_SHA256' }],
  ['AES-256', { ciphers: 'TLS_AES_256_GCM_SHA384' }],
  ['ChaCha20', { ciphers: 'TLS_CHACHA20_POLY1305_SHA256' }],
  ['a curve that it must ask for', { ecdhCurve: 'P-384' }],
  ['TLS 1.2', { maxVersion: 'TLSv1.2' }],
  ['CBC', { maxVersion: 'TLSv1.2', ciphers: 'ECDHE-ECDSA-AES256-SHA384' }],
];

test.each(USUAL)('a usual server is asked, and its long answer read, with %s', async (_what, options) => {
  const part = Buffer.alloc(4_000, 'x');
  const server = await openTls({ key: KEY, cert: VALID, ...options }, (socket) =>
    socket.once('data', () => {
      socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${1_000 * part.length}\r\n\r\n`);
      for (let nth = 0; nth < 1_000; nth += 1) socket.write(part);
    }),
  );

  const { body } = await request(server.url, { dispatcher: anAgent() });

  expect((await body.arrayBuffer()).byteLength).toBe(1_000 * part.length);
});

const STRANGE: [string, Buffer][] = [
  ['speaks HTTP', Buffer.from('HTTP/1.1 400 Bad Request\r\n\r\n')],
  ['sends bytes at random', randomBytes(1_000)],
  ['sends an empty hello', Buffer.from('160303000402000000', 'hex')],
  ['sends a certificate first', Buffer.from('16030300070b000003ffffff', 'hex')],
  ['sends a byte in each record', Buffer.concat(Array.from({ length: 200 }, () => aRecord(Buffer.of(0))))],
  ['sends messages without end', Buffer.concat(Array.from({ length: 60 }, () => aRecord(Buffer.alloc(1_000))))],
  ['sends a message without end', Buffer.concat(Array.from({ length: 60 }, () => aRecord(Buffer.alloc(1_000, 8))))],
];

test.each(STRANGE)('a server that %s is given up', async (_what, bytes) => {
  const port = await listen(createServer((socket) => socket.on('error', () => undefined).write(bytes)));

  const failure = await request(`https://localhost:${port}/`, { dispatcher: anAgent() }).catch(codeOf);

  expect(failure).toMatch(/^(EPROTO|ERR_SSL|ERR_TLS)/);
});

test('a server that disguises its hello is given up before OpenSSL has what it encrypts', async () => {
  const server = await openTls({ key: KEY, cert: VALID });
  // A hello that asks for another one, but for its version: OpenSSL takes it for an ordinary one.
  const disguise = (hello: Buffer): Buffer => {
    hello.writeUInt16BE(0x0302, 9);
    hello.write('cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c', 11, 'hex');
    return hello;
  };
  const relay = createServer((client) => {
    const upstream = connect(server.port, '127.0.0.1').on('error', () => undefined);
    client.on('error', () => undefined).pipe(upstream);
    upstream.once('data', (bytes) => {
      client.write(disguise(bytes));
      upstream.pipe(client);
    });
  });

  const url = `https://localhost:${await listen(relay)}/`;
  const failure = await request(url, { dispatcher: anAgent() }).catch(codeOf);

  expect(failure).toBe('EPROTO');
});

test('usual certificates of no known authority are decoded, and refused for that', async () => {
  const rsa = rsaOf(512, Buffer.from('010001', 'hex'));
  const edwards = generateKeyPairSync('ed25519').publicKey;
  const server = await openTls(createChain([rsa, edwards]));

  const failure = await request(server.url, { dispatcher: anAgent() }).catch(codeOf);

  expect(failure).toMatch(/^UNABLE_TO/);
});

test('a server does not choose the group of a key exchange', async () => {
  const identity = createChain([], generateKeyPairSync('rsa', { modulusLength: 2048 }));
  const ciphers = 'DHE-RSA-AES128-GCM-SHA256';
  const server = await openTls({ ...identity, ciphers, dhparam: 'auto', maxVersion: 'TLSv1.2' });

  const failure = await request(server.url, { dispatcher: anAgent() }).catch(codeOf);

  expect(failure).toBe('ERR_SSL_SSL/TLS_ALERT_HANDSHAKE_FAILURE');
});

test('a server begins no further handshake in a connection', async () => {
  const further = Promise.withResolvers<boolean>();
  const server = await openTls({ key: KEY, cert: VALID, maxVersion: 'TLSv1.2' }, (socket) => {
    for (const end of ['error', 'close'] as const) socket.once(end, () => further.resolve(false));
    const begin = () => socket.renegotiate({}, (failure) => further.resolve(failure === null));
    socket.once('data', () => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok', begin));
  });

  const { body } = await request(server.url, { dispatcher: anAgent() });

  expect(await body.text()).toBe('ok');
  expect(await further.promise).toBe(false);
});

test('a server that sends records with hardly any data is cut off', async () => {
  let got = 0;
  const server = await openTls({ key: KEY, cert: VALID }, (socket) =>
    socket.once('data', () => {
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n');
      const drip = (): void => {
        if (socket.destroyed) return;
        socket.write('x', drip);
      };
      drip();
    }),
  );

  const read = async (): Promise<void> => {
    const { body } = await request(server.url, { dispatcher: anAgent() });
    for await (const piece of body as AsyncIterable<Buffer>) got += piece.length;
  };
  const failure = await read().catch(codeOf);

  expect(failure).toBe('EPROTO');
  expect(got).toBeLessThan(1_000);
});

/** Passes on what clients send, and holds back what the server answers until it has an answer for each of them. */
const openHolding = async (port: number, count: number) => {
  const held: { to: Socket; bytes: Buffer[] }[] = [];
  const server = createServer((client) => {
    const one = { to: client, bytes: [] as Buffer[] };
    const upstream = connect(port, '127.0.0.1').on('error', () => undefined);
    client.on('error', () => undefined).pipe(upstream);
    upstream.on('data', (bytes) => {
      if (one.bytes.length === 0) held.push(one);
      one.bytes.push(bytes);
      if (held.length < count) return;
      for (const { to, bytes: some } of held) to.write(Buffer.concat(some));
    });
  });
  return `https://localhost:${await listen(server)}/`;
};

test('of many servers that answer together, the certificates of one are checked at a time', async () => {
  const count = 12;
  const costly = await openTls(createLongChain(8));
  const agent = anAgent(count);
  const url = await openHolding(costly.port, count);
  const rounds: number[] = [];
  let round = 0;
  let isOver = false;
  const turn = (): void => {
    round += 1;
    if (!isOver) setImmediate(turn);
  };
  turn();

  await Promise.all(
    Array.from({ length: count }, () => request(url, { dispatcher: agent }).catch(() => rounds.push(round))),
  );
  isOver = true;

  expect(new Set(rounds).size).toBe(count);
});

test('events to a receiver with costly certificates end, and those of another come', async () => {
  const count = 16;
  const costly = await openTls(createLongChain(90));
  const other = await openReceiver({ tls: { key: KEY, cert: VALID } });
  const feed = createFeed(stack.service);
  const { deliveries } = stack.service.mongo.collections;
  const [slow, fast] = await Promise.all(
    [costly.url, other.url].map(async (url) => {
      const { assistantId } = await anAssistant(stack);
      await stack.service.endpoints.addEndpoint(assistantId, { url });
      const keys = await feed.openConversations(assistantId, count);
      return { assistantId, say: () => Promise.all(keys.map((key) => feed.say(assistantId, key, ['Hello']))) };
    }),
  );

  await slow?.say();
  await fast?.say();
  await other.waitFor((all) => all.length === count);
  const ended = await eventually(async () => {
    const found = await deliveries?.findOne({ assistantId: slow?.assistantId, outcome: 'not_sent' });
    expect(found).not.toBeNull();
    return found;
  });

  expect(ended).toMatchObject({ errorKind: 'tls', errorDetail: 'ERR_TLS_CERT_UNUSUAL' });
});
