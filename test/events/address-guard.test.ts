import { readFileSync } from 'node:fs';
import { type AddressInfo, createServer as createTcpServer, isIP, Socket, type TcpNetConnectOpts } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  AddressRefused,
  checkEndpoint,
  checkEndpointUrl,
  guardedLookup,
  isAllowedPeer,
  isPublicAddress,
  NameUnresolved,
  URL_REFUSALS,
} from '../../src/platform/http/address-guard.ts';
import { createSender, type SenderOptions } from '../../src/events/sending/send.ts';
import { AUTHORITY } from '../kit/certificates.ts';
import { openReceiver, type Receiver } from '../kit/receiver.ts';

interface Case {
  name: string;
  url: string;
  /** The addresses that the name server returns: `answers` at first, `later` from the second request on. */
  answers?: string[];
  later?: string[];
  reach: boolean;
  reason?: string;
}
const cases = JSON.parse(readFileSync(join(import.meta.dirname, '../support/ssrf-cases.json'), 'utf8')) as Case[];
const refused = cases.filter(({ reach }) => !reach);
const reaching = cases.filter(({ reach }) => reach);

let receiver: Receiver;
let connections = 0;
let trap: ReturnType<typeof createTcpServer>;
let trapPort = 0;
beforeAll(async () => {
  receiver = await openReceiver({ tls: true });
  // The trap counts each connection and passes it on to the receiver.
  trap = createTcpServer((socket) => {
    connections += 1;
    const onward = new Socket().connect(receiver.port, '127.0.0.1');
    socket.pipe(onward).pipe(socket);
    for (const side of [socket, onward]) side.on('error', () => [socket, onward].forEach((one) => one.destroy()));
  });
  await new Promise<void>((resolve) => trap.listen(0, '127.0.0.1', resolve));
  trapPort = (trap.address() as AddressInfo).port;
});
afterAll(async () => {
  await receiver.close();
  trap.close();
});

/**
 * Connects every socket to the trap server, whatever the requested address. Otherwise it works like `net.connect`: it
 * resolves names, does not resolve literal addresses, and reports the requested address as the remote address.
 */
const dial = ({ host = '', lookup }: TcpNetConnectOpts): Socket => {
  const socket = new Socket();
  const go = (address: string) => {
    Object.defineProperty(socket, 'remoteAddress', { value: address });
    socket.connect(trapPort, '127.0.0.1');
  };
  if (isIP(host) !== 0) go(host);
  else {
    lookup?.(host, { all: true }, (error, found) => {
      if (error || typeof found === 'string') socket.destroy(error ?? undefined);
      else go(found[0]?.address ?? '');
    });
  }
  return socket;
};

const urlOf = ({ url }: Case) => url.replace('{port}', String(trapPort));
const resolverOf = ({ answers = [], later = answers }: Case) => {
  let asked = 0;
  return async () => (asked++ === 0 ? answers : later);
};
const send = async (url: string, options: Partial<SenderOptions>) => {
  const sender = createSender({
    userAgent: 'Test',
    allowPrivate: false,
    perEndpointConnections: 1,
    ca: AUTHORITY,
    deadlineMs: 2000,
    ...options,
  });
  const result = await sender.send({ endpointId: 'e', url, body: Buffer.from('{}'), headers: {} });
  await sender.close();
  return result;
};

it('the table has at least 120 cases that must be refused', () => {
  expect(refused.length).toBeGreaterThanOrEqual(120);
  expect(new Set(cases.map(({ name, url }) => name + url)).size).toBe(cases.length);
});

describe('refused without a connection', () => {
  it.each(refused)('$name', async (one) => {
    const resolver = resolverOf(one);
    const before = connections;

    const saved = await checkEndpoint(urlOf(one), { allowPrivate: false, resolver });
    const result = await send(urlOf(one), { dial, resolver });

    expect(saved.ok ? 'saved' : saved.reason).toBe(one.later ? 'saved' : one.reason);
    expect(result).toMatchObject({ outcome: 'not_sent', wrote: false });
    expect(result.errorKind).toBe(one.reason === 'unresolved' ? 'dns' : 'address_refused');
    expect(connections - before).toBe(0);
  });
});

describe('allowed and connected', () => {
  it.each(reaching)('$name', async (one) => {
    const resolver = resolverOf(one);
    const before = connections;

    const saved = await checkEndpoint(urlOf(one), { allowPrivate: false, resolver });
    const result = await send(urlOf(one), { dial, resolver });

    expect(saved).toMatchObject({ ok: true });
    expect(connections - before).toBe(1);
    // The certificate is not valid for a literal address, so such a connection ends at the handshake.
    expect(result.outcome).toBe(one.answers ? 'delivered' : 'not_sent');
    const literal = new URL(urlOf(one)).hostname.replace(/[[\]]/g, '');
    expect(result.remoteAddress).toBe((one.later ?? one.answers ?? [literal])[0]);
  });
});

describe('the layers below the URL work on their own', () => {
  it('a connection to another address than the requested one is closed before a byte is sent', async () => {
    let heard = 0;
    const listener = createTcpServer((socket) =>
      socket.on('data', (bytes) => (heard += bytes.length)).on('error', () => {}),
    );
    await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve));
    const { port } = listener.address() as AddressInfo;

    const result = await send('https://hook.receiver.example/', {
      resolver: async () => ['93.184.215.14'],
      dial: () => new Socket().connect(port, '127.0.0.1'),
    });
    listener.close();

    expect(result).toMatchObject({ outcome: 'not_sent', errorKind: 'address_refused', wrote: false });
    expect(heard).toBe(0);
  });

  it.each([
    [['127.0.0.1'], AddressRefused],
    [['93.184.215.14', '127.0.0.1'], AddressRefused],
    [[], NameUnresolved],
  ])('a look-up that finds %j fails, for one address and for all', async (answers, failure) => {
    const lookup = guardedLookup({ allowPrivate: false, resolver: async () => answers });
    for (const options of [{ all: true }, { all: false }, {}]) {
      const error = await new Promise((resolve) => lookup('name.example', options, resolve));
      expect(error).toBeInstanceOf(failure);
    }
  });

  it('a look-up gives all addresses, one address, or one family, as requested', async () => {
    const lookup = guardedLookup({ allowPrivate: false, resolver: async () => ['1.1.1.1', '2606:4700::1111'] });
    const ask = (options: { all?: boolean; family?: number }) =>
      new Promise((resolve) => lookup('name.example', options, (error, ...found) => resolve(error ?? found)));

    expect(await ask({ all: true })).toEqual([
      [
        { address: '1.1.1.1', family: 4 },
        { address: '2606:4700::1111', family: 6 },
      ],
    ]);
    expect(await ask({})).toEqual(['1.1.1.1', 4]);
    expect(await ask({ family: 6 })).toEqual(['2606:4700::1111', 6]);
  });

  it('a text that is not an address is not a public address', () => {
    for (const ip of ['', 'localhost', '1.2.3', '1.2.3.4.5', '::g', '[::1]', '2606:4700::1111%eth0']) {
      expect(isPublicAddress(ip)).toBe(false);
    }
    expect(isAllowedPeer(undefined, { allowPrivate: true })).toBe(false);
  });
});

describe('allowPrivate', () => {
  it.each(['http://localhost:3000/', 'http://127.0.0.1:22/', 'https://10.0.0.1/', 'http://[::1]:81/'])(
    'lifts the rules for %s',
    (url) => {
      expect(checkEndpointUrl(url, { allowPrivate: true })).toMatchObject({ ok: true });
      const strict = checkEndpointUrl(url, { allowPrivate: false });
      expect(strict.ok || URL_REFUSALS.includes(strict.reason)).toBe(true);
      expect(strict.ok).toBe(false);
    },
  );

  it.each([
    ['ftp://localhost/', 'not_https'],
    ['http://user@localhost/', 'userinfo'],
    ['hook', 'not_a_url'],
    [`http://localhost/${'a'.repeat(2048)}`, 'too_long'],
  ])('keeps the other rules: %.40s', (url, reason) => {
    expect(checkEndpointUrl(url, { allowPrivate: true })).toEqual({ ok: false, reason });
  });
});

/** A lookup whose name server has these addresses, and how often it was asked. */
const aLookup = (addresses: string[]) => {
  let asked = 0;
  const resolver = async () => {
    asked += 1;
    return addresses;
  };
  const lookup = guardedLookup({ allowPrivate: false, resolver });
  const find = () =>
    new Promise((resolve) =>
      lookup('many.example', { all: true }, (failure, found) => resolve(failure ? failure.message : found)),
    );
  return { find, asked: () => asked };
};
const someAddresses = (count: number) => [
  ...Array.from({ length: count }, (_, nth) => `93.184.${nth >> 8}.${nth & 255}`),
  ...Array.from({ length: count }, (_, nth) => `2606:2800::${(nth + 1).toString(16)}`),
];

it('of a name with many addresses few are used, and many who want it at once share one answer', async () => {
  const addresses = someAddresses(30);
  const { find, asked } = aLookup(addresses);

  const all = await Promise.all(Array.from({ length: 50 }, find));

  const used = [...addresses.slice(0, 8), ...addresses.slice(30, 38)];
  expect(all).toEqual(all.map(() => used.map((address) => ({ address, family: isIP(address) }))));
  expect(asked()).toBe(1);
});

it.each([
  ['thousands of addresses', someAddresses(4_000), 'too many addresses'],
  ['a private address', ['93.184.0.1', '10.0.0.1'], 'not public'],
])('a name with %s is refused, and its name server is not asked each time', async (_what, addresses, why) => {
  const { find, asked } = aLookup(addresses);

  const all = [await find(), await find(), await find()];

  expect(all).toEqual(all.map(() => expect.stringContaining(why) as string));
  expect(asked()).toBe(1);
});

it('a name that was not found is asked for again', async () => {
  let answers: string[] = [];
  const lookup = guardedLookup({ allowPrivate: false, resolver: async () => answers });
  const find = () =>
    new Promise((resolve) => lookup('new.example', { all: true }, (failure, found) => resolve(failure ?? found)));

  const before = await find();
  answers = ['93.184.216.34'];

  expect(before).toBeInstanceOf(NameUnresolved);
  expect(await find()).toEqual([{ address: '93.184.216.34', family: 4 }]);
});

it('a proxy in the environment is not used', async () => {
  const proxy = `http://127.0.0.1:${trapPort}`;
  const names = ['HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY', 'http_proxy', 'https_proxy'];
  for (const name of [...names, 'NODE_USE_ENV_PROXY']) process.env[name] = proxy;
  const before = connections;
  const plain = await openReceiver();

  const result = await send(plain.url, { allowPrivate: true });
  await plain.close();
  for (const name of [...names, 'NODE_USE_ENV_PROXY']) delete process.env[name];

  expect(result.outcome).toBe('delivered');
  expect(connections - before).toBe(0);
});
