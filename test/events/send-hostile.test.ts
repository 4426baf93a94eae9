import { Socket } from 'node:net';
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import type { TlsOptions } from 'node:tls';
import { describe, expect, it } from 'vitest';
import type { SendFailure } from '../../src/events/sending/exchange.ts';
import { createSender, type SenderOptions, type SendResult } from '../../src/events/sending/send.ts';
import { AUTHORITY, EXPIRED, KEY, OTHER_NAME, VALID } from '../kit/certificates.ts';
import { HOSTILE, type HostileName, openHostile } from '../kit/hostile-receiver.ts';
import { atPace } from '../support/pace.ts';
import { longTest, sized } from '../support/size.ts';
import { collect } from '../support/heap.ts';

const QUICK = { deadlineMs: 700, bodyGraceMs: 300 };
// Receivers that are tested alone, because their flood blocks the whole process for a while, including its timers.
const ALONE: HostileName[] = ['interimEndless'];
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

const slowly = () => sleep(1_000, ['127.0.0.1']);
const neverResolves = () => new Promise<string[]>(() => {});

// A forced garbage collection makes the measured memory exact. The resident size is not used, because it also counts
// memory that V8 keeps for later.
const heldMegabytes = async () => {
  // The garbage collection runs twice, because freed buffers still count as used for a moment.
  for (let nth = 0; nth < 2; nth += 1) {
    await sleep(150);
    collect();
  }
  const { heapUsed, external } = process.memoryUsage();
  return (heapUsed + external) / 1_000_000;
};

type Expected = [outcome: SendResult['outcome'], errorKind: SendFailure | null, status: number | null];
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
  chunksOfOneByte: OK,
  chunkBroken: OK,
  chunkExtensionEndless: OK,
  gzipBomb: OK,
  headersHuge: BAD,
  headersMany: BAD,
  headersManyInterim: BAD,
  trailersMany: OK,
  headerLineHuge: BAD,
  interimThenOk: BAD,
  interimThenSilence: BAD,
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
  bareLineFeeds: BAD,
  lengthNegative: BAD,
  lengthTwice: BAD,
  lengthAndChunks: BAD,
  headerFolded: BAD,
  headerNamedAsPrototype: OK,
  redirects: ['rejected', null, 302],
  bytesNotText: OK,
  answersTwice: OK,
};
const TOGETHER = (Object.keys(EXPECTED) as HostileName[]).filter((name) => !ALONE.includes(name));
const TRUNCATED: HostileName[] = [
  'bodyDrips',
  'errorBodyDrips',
  'bodyEndless',
  'chunksEndless',
  'chunksOfOneByte',
  'chunkBroken',
  'chunkExtensionEndless',
  'gzipBomb',
  'trailersMany',
  'halfClosesInBody',
  'resetsInBody',
];

/** These wait for the five seconds that a send has by default. */
const BY_DEFAULT: HostileName[] = sized({
  everyday: ['silent', 'bodyDrips'],
  long: ['silent', 'headersDrip', 'bodyDrips', 'chunksEndless', 'headersHuge'],
});

// The tests that must run alone end before the concurrent tests begin.
describe.each([
  ['alone', { concurrent: false, deadlineMs: 4_000, of: ALONE }],
  ['among others', { concurrent: true, deadlineMs: 2_500, of: TOGETHER }],
])(
  'a send to a hostile receiver ends in time with its outcome, after one request: %s',
  (_, { concurrent, deadlineMs, of }) => {
    it.for(of)('%s', { concurrent }, async (name, { expect }) => {
      const receiver = await openHostile(HOSTILE[name]);

      const { result, took } = await sendOnce(`http://127.0.0.1:${receiver.port}/hook`, { ...QUICK, deadlineMs });
      await receiver.close();

      expect([result.outcome, result.errorKind, result.status]).toEqual(EXPECTED[name]);
      expect(took).toBeLessThan(deadlineMs + atPace(600));
      expect(result.wrote).toBe(true);
      expect(receiver.requests()).toBeLessThanOrEqual(1);
      expect(result.truncated).toBe(TRUNCATED.includes(name));
      expect(Buffer.byteLength(result.responseBody ?? '')).toBeLessThanOrEqual(3 * 16_384);
      expect(JSON.stringify(result.responseHeaders).length).toBeLessThan(20_000);
    });

    it.for(concurrent ? BY_DEFAULT : [])(
      '%s, within 5.5 s with the default settings',
      { concurrent },
      async (name, { expect }) => {
        const receiver = await openHostile(HOSTILE[name]);
        const { result, took } = await sendOnce(`http://127.0.0.1:${receiver.port}/`, {});
        await receiver.close();
        expect(result.outcome).toBe(EXPECTED[name][0]);
        expect(took).toBeLessThan(atPace(5500));
      },
    );
  },
);

describe.concurrent('interim responses', () => {
  const OK_AFTER = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok';
  const HINTS = 'HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n';
  const PROCESSING = 'HTTP/1.1 102 Processing\r\n\r\n';
  it.for<[string, string, Expected]>([
    ['102 and 103 are skipped', PROCESSING + HINTS + OK_AFTER, OK],
    ['16 are accepted', PROCESSING.repeat(16) + OK_AFTER, OK],
    ['more than 16 are not', PROCESSING.repeat(17) + OK_AFTER, BAD],
    ['101 without an upgrade is final too', 'HTTP/1.1 101 Switching Protocols\r\n\r\n', ['rejected', null, 101]],
    ['100 Continue, which was not asked for, is a breach', `HTTP/1.1 100 Continue\r\n\r\n${OK_AFTER}`, BAD],
  ])('%s', async ([, answer, expected], { expect }) => {
    const receiver = await openHostile({ requested: (socket) => socket.write(answer) });

    const { result } = await sendOnce(`http://127.0.0.1:${receiver.port}/`);
    await receiver.close();

    expect([result.outcome, result.errorKind, result.status]).toEqual(expected);
    expect(receiver.requests()).toBe(1);
  });
});

describe.concurrent('a flood that undici has no limit for ends at once', () => {
  const MUCH = 1024 * 1024;
  it.for<[string, string, Expected]>([
    ['an endless status line', `HTTP/1.1 200 ${'x'.repeat(MUCH)}`, BAD],
    ['empty lines before the head', '\r\n'.repeat(MUCH), BAD],
    ['an endless chunk extension', `HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;${'x'.repeat(MUCH)}`, OK],
  ])('%s', async ([, answer, expected], { expect }) => {
    const receiver = await openHostile({ requested: (socket) => socket.write(answer) });

    const { result, took } = await sendOnce(`http://127.0.0.1:${receiver.port}/`, {});
    await receiver.close();

    expect([result.outcome, result.errorKind, result.status]).toEqual(expected);
    expect(took).toBeLessThan(atPace(2_000)); // no deadline ended it: that is 5 s
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

  it('a server with an unknown certificate authority', async ({ expect }) => {
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
      expect(took).toBeLessThan(QUICK.deadlineMs + atPace(600));
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
  it('include the look-up, so a slow name server leaves less time for the rest', async ({ expect }) => {
    const receiver = await openHostile(HOSTILE.silent);

    const deadlineMs = 1_500;
    const url = `http://slow.example:${receiver.port}/`;
    const { result, took } = await sendOnce(url, { ...QUICK, deadlineMs, resolver: slowly });
    await receiver.close();

    expect(result).toMatchObject({ outcome: 'unknown', errorKind: 'timeout' });
    expect(took).toBeLessThan(deadlineMs + atPace(600));
    expect(result.timings.dns).toBeGreaterThan(980);
  });

  it.for([
    ['a name server that never answers', 'dns', 'http://unanswered.example/', { resolver: neverResolves }],
    ['a host that never answers', 'connect', 'http://192.0.2.1/', { dial: () => new Socket() }],
  ] as const)('end %s as not_sent: %s', async ([, errorKind, url, options], { expect }) => {
    const { result, took } = await sendOnce(url, { ...QUICK, ...options });

    expect(result).toMatchObject({ outcome: 'not_sent', errorKind, wrote: false });
    expect(took).toBeLessThan(QUICK.deadlineMs + atPace(600));
  });

  it('end with a reset, so that the kernel sends no remaining bytes', async ({ expect }) => {
    for (const tls of [undefined, { key: KEY, cert: VALID }]) {
      const receiver = await openHostile(HOSTILE.silent, tls);

      const { result } = await sendOnce(`${tls ? 'https' : 'http'}://127.0.0.1:${receiver.port}/`);
      await expect.poll(() => receiver.endings).toEqual(['ECONNRESET']);

      expect(result).toMatchObject({ outcome: 'unknown', errorKind: 'timeout' });
      await receiver.close();
    }
  });
});

longTest('memory is freed after 200 hostile receivers', async () => {
  const names: HostileName[] = ['bodyEndless', 'chunksEndless', 'headersHuge', 'gzipBomb', 'headerLineHuge'];
  const receivers = await Promise.all(names.map((name) => openHostile(HOSTILE[name])));
  const sender = openSender({ ...QUICK, deadlineMs: 4_000, perEndpointConnections: 8 });
  const outcomes = async (count: number) => {
    const seen = new Set<string>();
    let next = 0;
    const lane = async () => {
      for (let at = next++; at < count; at = next++) {
        const { port } = receivers[at % receivers.length] ?? { port: 0 };
        const request = { endpointId: String(port), url: `http://127.0.0.1:${port}/`, body, headers: {} };
        seen.add((await sender.send(request)).outcome);
      }
    };
    await Promise.all(Array.from({ length: 40 }, lane));
    return seen;
  };

  await outcomes(50);
  const before = await heldMegabytes();
  const seen = await outcomes(200);
  const after = await heldMegabytes();

  await sender.close();
  for (const receiver of receivers) await receiver.close();
  expect(seen).toEqual(new Set(['delivered', 'unknown']));
  expect(after - before).toBeLessThan(8);
});
