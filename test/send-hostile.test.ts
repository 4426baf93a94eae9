import { Socket } from 'node:net';
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import type { TlsOptions } from 'node:tls';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { createSender, type ErrorKind, type SenderOptions, type SendResult } from '../workers/delivery/send.ts';
import { AUTHORITY, EXPIRED, KEY, OTHER_NAME, VALID } from './support/certificates.ts';
import { HOSTILE, type HostileName, openHostile } from './support/hostile-receiver.ts';

const QUICK = { deadlineMs: 700, bodyGraceMs: 300 };
const body = Buffer.from('{"event":"webhook.test"}');

const openSender = (options: Partial<SenderOptions> = {}) =>
  createSender({ userAgent: 'Test', allowPrivate: true, perEndpointConnections: 5, ca: AUTHORITY, ...options });

const sendOnce = async (url: string, options: Partial<SenderOptions> = QUICK) => {
  const sender = openSender(options);
  const startedAt = performance.now();
  const result = await sender.send({ endpointId: 'e', url, body, headers: {} });
  const took = performance.now() - startedAt;
  await sender.close();
  return { result, took };
};

const slowly = () => sleep(500, ['127.0.0.1']);
const neverResolves = () => new Promise<string[]>(() => {});

// Exact, where the resident size also shows how much the engine chose to keep for later. `bench/hostile.ts` has that.
setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;
const heldMegabytes = async () => {
  await sleep(200);
  collect();
  const { heapUsed, external } = process.memoryUsage();
  return (heapUsed + external) / 1_000_000;
};

type Expected = [outcome: SendResult['outcome'], errorKind: ErrorKind | null, status: number | null];
const OK: Expected = ['delivered', null, 200];
const TIMEOUT: Expected = ['unknown', 'timeout', null];
const RESET: Expected = ['unknown', 'reset', null];
const BAD: Expected = ['unknown', 'bad_response', null];

const EXPECTED: Record<HostileName, Expected> = {
  silent: TIMEOUT,
  deaf: TIMEOUT,
  headersDrip: TIMEOUT,
  statusDrips: TIMEOUT,
  bodyDrips: OK,
  errorBodyDrips: ['rejected', null, 500],
  bodyEndless: OK,
  chunksEndless: OK,
  chunkBroken: OK,
  chunkExtensionEndless: OK,
  gzipBomb: OK,
  headersHuge: BAD,
  headerLineHuge: BAD,
  interimThenOk: OK,
  interimThenSilence: TIMEOUT,
  interimEndless: BAD,
  switching: ['rejected', null, 101],
  noContentWithBody: ['delivered', null, 204],
  noContentSmuggling: ['delivered', null, 204],
  http10: OK,
  http10KeepsOpen: OK,
  halfCloses: RESET,
  halfClosesAfterAnswer: OK,
  halfClosesInHead: RESET,
  halfClosesInBody: OK,
  resets: RESET,
  resetsInHead: RESET,
  resetsInBody: OK,
  sshServer: BAD,
  http09: BAD,
  http2: BAD,
  statusTooShort: BAD,
  statusTooLong: BAD,
  statusMissing: BAD,
  bareLineFeeds: OK,
  lengthNegative: OK,
  lengthTwice: OK,
  lengthAndChunks: OK,
  headerFolded: OK,
  headerNamedAsPrototype: OK,
  redirects: ['rejected', null, 302],
  bytesNotText: OK,
  answersTwice: OK,
};
const TRUNCATED: HostileName[] = [
  'bodyDrips',
  'errorBodyDrips',
  'bodyEndless',
  'chunksEndless',
  'chunkBroken',
  'chunkExtensionEndless',
  'gzipBomb',
  'halfClosesInBody',
  'resetsInBody',
];

describe.concurrent('a hostile receiver ends in time, with its outcome, and is sent to once', () => {
  it.for(Object.entries(EXPECTED) as [HostileName, Expected][])('%s', async ([name, expected], { expect }) => {
    const receiver = await openHostile(HOSTILE[name]);

    const { result, took } = await sendOnce(`http://127.0.0.1:${receiver.port}/hook`);
    await receiver.close();

    expect([result.outcome, result.errorKind, result.status]).toEqual(expected);
    expect(took).toBeLessThan(QUICK.deadlineMs + 600);
    expect(result.wrote).toBe(true);
    expect(receiver.requests()).toBeLessThanOrEqual(1);
    expect(result.truncated).toBe(TRUNCATED.includes(name));
    expect(Buffer.byteLength(result.responseBody ?? '')).toBeLessThanOrEqual(3 * 16_384);
    expect(JSON.stringify(result.responseHeaders).length).toBeLessThan(20_000);
  });
});

describe.concurrent('TLS that does not hold ends not_sent: tls', () => {
  const servers: Record<string, TlsOptions> = {
    'speaks TLS 1.2 only': { key: KEY, cert: VALID, maxVersion: 'TLSv1.2' },
    'has an expired certificate': { key: KEY, cert: EXPIRED },
    'has a certificate for another name': { key: KEY, cert: OTHER_NAME },
  };
  it.for(Object.entries(servers))('a server that %s', async ([, tls], { expect }) => {
    const receiver = await openHostile(HOSTILE.interimThenOk, tls);

    const { result } = await sendOnce(`https://127.0.0.1:${receiver.port}/`);
    await receiver.close();

    expect(result).toMatchObject({ outcome: 'not_sent', errorKind: 'tls', wrote: false });
    expect(receiver.requests()).toBe(0);
  });

  it('a server whose authority nobody knows', async ({ expect }) => {
    const receiver = await openHostile(HOSTILE.interimThenOk, { key: KEY, cert: VALID });

    const { result } = await sendOnce(`https://127.0.0.1:${receiver.port}/`, { ...QUICK, ca: OTHER_NAME });
    await receiver.close();

    expect(result).toMatchObject({ outcome: 'not_sent', errorKind: 'tls', wrote: false });
  });

  it.for(['silent', 'sshServer', 'http09'] as const)(
    'a plain server (%s) where TLS is expected',
    async (name, { expect }) => {
      const receiver = await openHostile(HOSTILE[name]);

      const { result, took } = await sendOnce(`https://127.0.0.1:${receiver.port}/`);
      await receiver.close();

      expect(result).toMatchObject({ outcome: 'not_sent', errorKind: 'tls', wrote: false });
      expect(took).toBeLessThan(QUICK.deadlineMs + 600);
    },
  );

  it('a server that speaks HTTP/2 only', async ({ expect }) => {
    const receiver = await openHostile(HOSTILE.http2, { key: KEY, cert: VALID, ALPNProtocols: ['h2'] });

    const { result } = await sendOnce(`https://127.0.0.1:${receiver.port}/`);
    await receiver.close();

    expect(result).toMatchObject({ outcome: 'not_sent', errorKind: 'tls', wrote: false, remoteAddress: '127.0.0.1' });
  });

  it('and one that resets during the handshake', async ({ expect }) => {
    const receiver = await openHostile({ connected: (socket) => socket.once('data', () => socket.resetAndDestroy()) });

    const { result } = await sendOnce(`https://127.0.0.1:${receiver.port}/`);
    await receiver.close();

    expect(result).toMatchObject({ outcome: 'not_sent', errorKind: 'tls', wrote: false });
  });
});

describe.concurrent('the five seconds', () => {
  it.for(['silent', 'headersDrip', 'bodyDrips', 'chunksEndless', 'headersHuge'] as const)(
    '%s is over within 5.5 s without any setting',
    async (name, { expect }) => {
      const receiver = await openHostile(HOSTILE[name]);
      const { result, took } = await sendOnce(`http://127.0.0.1:${receiver.port}/`, {});
      await receiver.close();
      expect(result.outcome).toBe(EXPECTED[name][0]);
      expect(took).toBeLessThan(5500);
    },
  );

  it('count from the look-up, so a slow name server leaves the less for the rest', async ({ expect }) => {
    const receiver = await openHostile(HOSTILE.silent);

    const { result, took } = await sendOnce(`http://slow.example:${receiver.port}/`, { ...QUICK, resolver: slowly });
    await receiver.close();

    expect(result).toMatchObject({ outcome: 'unknown', errorKind: 'timeout' });
    expect(took).toBeLessThan(QUICK.deadlineMs + 600);
    expect(result.timings.dns).toBeGreaterThan(480);
  });

  it.for([
    ['a name server that never answers', 'dns', 'http://unanswered.example/', { resolver: neverResolves }],
    ['a host that never answers', 'connect', 'http://192.0.2.1/', { dial: () => new Socket() }],
  ] as const)('end %s as not_sent: %s', async ([, errorKind, url, options], { expect }) => {
    const { result, took } = await sendOnce(url, { ...QUICK, ...options });

    expect(result).toMatchObject({ outcome: 'not_sent', errorKind, wrote: false });
    expect(took).toBeLessThan(QUICK.deadlineMs + 600);
  });

  it('end with a reset, so that the kernel sends no rest', async ({ expect }) => {
    for (const tls of [undefined, { key: KEY, cert: VALID }]) {
      const receiver = await openHostile(HOSTILE.silent, tls);

      const { result } = await sendOnce(`${tls ? 'https' : 'http'}://127.0.0.1:${receiver.port}/`);
      await expect.poll(() => receiver.endings).toEqual(['ECONNRESET']);

      expect(result).toMatchObject({ outcome: 'unknown', errorKind: 'timeout' });
      await receiver.close();
    }
  });
});

describe('memory', () => {
  it('holds nothing of 200 hostile receivers once they are done with', async () => {
    const names: HostileName[] = ['bodyEndless', 'chunksEndless', 'headersHuge', 'gzipBomb', 'headerLineHuge'];
    const receivers = await Promise.all(names.map((name) => openHostile(HOSTILE[name])));
    const sender = openSender({ ...QUICK, perEndpointConnections: 8 });
    const round = (count: number) =>
      Promise.all(
        Array.from({ length: count }, (_, at) => {
          const { port } = receivers[at % receivers.length] ?? { port: 0 };
          return sender.send({ endpointId: String(port), url: `http://127.0.0.1:${port}/`, body, headers: {} });
        }),
      );
    const outcomes = async (count: number) => new Set((await round(count)).map(({ outcome }) => outcome));

    await outcomes(50);
    const before = await heldMegabytes();
    const seen = await outcomes(200);
    const after = await heldMegabytes();

    await sender.close();
    for (const receiver of receivers) await receiver.close();
    expect(seen).toEqual(new Set(['delivered', 'unknown']));
    expect(after - before).toBeLessThan(8);
  });
});
