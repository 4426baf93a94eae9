import { once } from 'node:events';
import { connect, type Socket, type TcpNetConnectOpts } from 'node:net';
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client, errors } from 'undici';
import { afterEach, describe, expect, it } from 'vitest';
import { newWebhookSecret, signEvent } from '../../src/events/signature.ts';
import { SEND_FAILURES } from '../../src/events/sending/exchange.ts';
import { createSender, type SenderOptions, type SendRequest } from '../../src/events/sending/send.ts';
import { AUTHORITY, KEY, VALID } from '../kit/certificates.ts';
import { type Behaviour, openHostile } from '../kit/hostile-receiver.ts';
import { type Answer, openReceiver, type ReceiverOptions } from '../kit/receiver.ts';
import { sized } from '../support/size.ts';

const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

const aSender = (options: Partial<SenderOptions> = {}) => {
  const sender = createSender({
    userAgent: 'Parley-Webhooks/test',
    allowPrivate: true,
    perEndpointConnections: 20,
    ca: AUTHORITY,
    ...options,
  });
  closing.push(sender.close);
  return sender;
};
const aReceiver = async (options?: ReceiverOptions) => {
  const receiver = await openReceiver(options);
  closing.push(receiver.close);
  return receiver;
};
const aHostile = async (behaviour: Behaviour) => {
  const receiver = await openHostile(behaviour);
  closing.push(receiver.close);
  return { ...receiver, url: `http://127.0.0.1:${receiver.port}/` };
};
const aRequest = (overrides: Partial<SendRequest> & { url: string }): SendRequest => ({
  endpointId: 'endpoint',
  body: Buffer.from('{}'),
  headers: { 'Content-Type': 'application/json' },
  ...overrides,
});
const held = () => {
  const { promise: gate, resolve: open } = Promise.withResolvers<void>();
  return { gate, open };
};
const stall = (ms: number) => {
  const until = performance.now() + ms;
  while (performance.now() < until);
};
/** Connects, then blocks the event loop so that no timer fires. */
const stalledDial = (options: TcpNetConnectOpts) => connect(options).prependOnceListener('connect', () => stall(300));
const answerAfter = (ms: number) => () => sleep(ms, ['127.0.0.1']);

describe('the request', () => {
  it('is the signed bytes, with the headers as they are recorded', async () => {
    const secret = newWebhookSecret();
    const receiver = await aReceiver({ secret });
    const body = Buffer.from('{"content":"Grüße 👋 \\u0000"}');

    const result = await aSender().send({
      endpointId: 'endpoint',
      url: `${receiver.url}/hook/ü?a=b%20c#part`,
      body,
      headers: (timestamp) => ({
        'Content-Type': 'application/json',
        'X-Factory-Signature': signEvent({ body, secrets: [secret], timestamp }),
      }),
    });

    const [got] = receiver.received;
    expect(result).toMatchObject({
      outcome: 'delivered',
      errorKind: null,
      status: 200,
      responseBody: 'ok',
      wrote: true,
    });
    expect(got?.body.equals(body)).toBe(true);
    expect(got?.verdict).toMatchObject({ ok: true });
    expect(got?.path).toBe('/hook/%C3%BC?a=b%20c');
    expect(got?.headers).toMatchObject({ 'accept-encoding': 'identity', 'user-agent': 'Parley-Webhooks/test' });
  });

  it.each(['{}', ''])('has its headers recorded exactly, body "%s"', async (body) => {
    let raw: string[] = [];
    const respond = (): Answer => (response, request) => {
      raw = request.rawHeaders;
      response.end();
    };
    const { url } = await aReceiver({ respond });

    const { requestHeaders } = await aSender().send({
      ...aRequest({ url, body: Buffer.from(body) }),
      headers: { 'Content-Type': 'application/json', 'X-Factory-Event': 'a', 'x-lower': '' },
    });

    expect(raw).toEqual(Object.entries(requestHeaders).flat());
    expect(requestHeaders).toMatchObject({ 'X-Factory-Event': 'a', 'content-length': String(body.length) });
  });

  it('is sent over TLS 1.3, with the address, the certificate and every step timed', async () => {
    const receiver = await aReceiver({ tls: true });

    const url = receiver.url.replace('127.0.0.1', 'localhost');
    const result = await aSender({ resolver: async () => ['127.0.0.1'] }).send(aRequest({ url }));

    expect(result.outcome).toBe('delivered');
    expect(result.tls).toEqual({ version: 'TLSv1.3', daysToExpiry: expect.any(Number) });
    expect(result.tls?.daysToExpiry).toBeGreaterThan(30_000);
    expect(result.remoteAddress).toBe('127.0.0.1');
    for (const step of Object.values(result.timings)) expect(step).toBeGreaterThanOrEqual(0);
  });

  it('is signed with the time of the write, not of the call', async () => {
    const receiver = await aReceiver();
    const asked = Date.now() / 1000;
    let signedAt = 0;

    await aSender({ resolver: answerAfter(1200) }).send({
      ...aRequest({ url: `http://slow.example:${receiver.port}/` }),
      headers: (timestamp) => {
        signedAt = timestamp;
        return {};
      },
    });

    expect(signedAt).toBeGreaterThanOrEqual(Math.floor(asked + 1.1));
  });
});

describe('the response', () => {
  it.each([
    [16_384, false],
    [16_385, true],
  ])('of %i bytes is kept to 16 KiB (truncated: %s)', async (length, truncated) => {
    const receiver = await aReceiver({ respond: () => ({ body: Buffer.alloc(length, 'a') }) });

    const result = await aSender().send(aRequest({ url: receiver.url }));

    expect(result).toMatchObject({ outcome: 'delivered', truncated });
    expect(result.responseBody).toHaveLength(16_384);
  });

  it('is text: a character cut by the cap is dropped, other invalid bytes are marked', async () => {
    const answers = [Buffer.from(`a${'é'.repeat(9000)}`), Buffer.from([0xff, 0x41])];
    const receiver = await aReceiver({ respond: (_, nth) => ({ body: answers[nth - 1] ?? '' }) });
    const sender = aSender();

    const cut = await sender.send(aRequest({ url: receiver.url }));
    const invalid = await sender.send(aRequest({ url: receiver.url }));

    expect(cut.responseBody).toBe(`a${'é'.repeat(8191)}`);
    expect(invalid.responseBody).toBe('\ufffdA');
  });

  it.each([
    [201, 'delivered'],
    [204, 'delivered'],
    [301, 'rejected'],
    [404, 'rejected'],
    [410, 'rejected'],
    [500, 'rejected'],
  ])('with status %i is %s', async (status, outcome) => {
    const receiver = await aReceiver({ respond: () => ({ status, headers: { location: '/again' } }) });

    const result = await aSender().send(aRequest({ url: receiver.url }));

    expect(result).toMatchObject({ outcome, status, errorKind: null });
    expect(receiver.received).toHaveLength(1);
  });

  it.each([
    ['30', 30],
    [' 30', 30],
    ['30\t ', 30],
    ['9999999999', 1_000_000_000],
    [{ inSeconds: 60 }, expect.closeTo(60, -1)],
    [{ inSeconds: -60 }, 0],
    ['Sun Nov  6 08:49:37 1994', 0],
    ['Sunday, 06-Nov-94 08:49:37 GMT', 0],
    ['-5', null],
    ['soon', null],
    ['1.5', null],
  ])('may ask for a delay: Retry-After %j', async (wish, seconds) => {
    const header = () => (typeof wish === 'string' ? wish : new Date(Date.now() + wish.inSeconds * 1000).toUTCString());
    const receiver = await aReceiver({ respond: () => ({ status: 503, headers: { 'retry-after': header() } }) });

    const { retryAfterSeconds } = await aSender().send(aRequest({ url: receiver.url }));

    expect(retryAfterSeconds).toEqual(seconds);
  });
});

describe('a request is written once', () => {
  const ANSWER = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok';
  const EARLY = 'HTTP/1.1 500 Early\r\ncontent-length: 0\r\n\r\n';

  it('also on a connection that is used again', async () => {
    const receiver = await aHostile({ requested: (socket) => socket.write(ANSWER) });
    const sender = aSender();

    for (let nth = 0; nth < 5; nth += 1) {
      expect(await sender.send(aRequest({ url: receiver.url }))).toMatchObject({ outcome: 'delivered' });
    }

    expect([receiver.connections(), receiver.requests()]).toEqual([1, 5]);
  });

  it('also over TLS', async () => {
    const tls = { key: KEY, cert: VALID };
    const receiver = await openHostile({ requested: (socket) => socket.write(ANSWER) }, tls);
    closing.push(receiver.close);
    const sender = aSender();
    const request = aRequest({ url: `https://127.0.0.1:${receiver.port}/` });

    const results = [await sender.send(request), await sender.send(request), await sender.send(request)];

    expect(results.map(({ outcome, timings }) => [outcome, timings.tls === null])).toEqual([
      ['delivered', false],
      ['delivered', true],
      ['delivered', true],
    ]);
    expect([receiver.connections(), receiver.requests()]).toEqual([1, 3]);
  });

  it('and a connection that must not be used again is closed without a reset', async () => {
    const closes = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok';
    const receiver = await aHostile({ requested: (socket) => socket.write(closes) });

    await aSender().send(aRequest({ url: receiver.url }));

    await expect.poll(() => receiver.endings).toEqual(['end']);
  });

  it('and on a new connection if the idle one was closed before the write', async () => {
    const receiver = await aHostile({
      requested: (socket) => {
        socket.write(ANSWER);
        setTimeout(() => socket.end(), 10);
      },
    });
    const sender = aSender();

    await sender.send(aRequest({ url: receiver.url }));
    await sleep(50);
    const second = await sender.send(aRequest({ url: receiver.url }));

    expect(second.outcome).toBe('delivered');
    expect([receiver.connections(), receiver.requests()]).toEqual([2, 2]);
  });

  it('also if the close has arrived but the event loop has not noticed it', async () => {
    const sockets: Socket[] = [];
    const receiver = await aHostile({
      connected: (socket) => sockets.push(socket),
      requested: (socket) => socket.write(ANSWER),
    });
    const sender = aSender();

    await sender.send(aRequest({ url: receiver.url }));
    sockets[0]?.resetAndDestroy();
    const second = await sender.send(aRequest({ url: receiver.url }));

    expect(second.outcome).toBe('delivered');
    expect([receiver.connections(), receiver.requests()]).toEqual([2, 2]);
  });

  it('is written once if the close arrives right before the write', async () => {
    const sockets: Socket[] = [];
    const receiver = await aHostile({
      connected: (socket) => sockets.push(socket),
      requested: (socket) => socket.write(ANSWER),
    });
    const sender = aSender();
    let asked = 0;
    const headers = () => {
      asked += 1;
      sockets[0]?.resetAndDestroy();
      return {};
    };

    await sender.send(aRequest({ url: receiver.url }));
    const second = await sender.send(aRequest({ url: receiver.url, headers }));

    expect(second.outcome).toBe('delivered');
    expect([asked, receiver.connections(), receiver.requests()]).toEqual([2, 2, 2]);
  });

  it.each(['end', 'resetAndDestroy', 'destroy'] as const)(
    'is not written again if the used connection closes (%s) during the write',
    async (ending) => {
      const receiver = await aHostile({
        requested: (socket, nth) => (nth === 1 ? socket.write(ANSWER) : socket[ending]()),
      });
      const sender = aSender();

      await sender.send(aRequest({ url: receiver.url }));
      const second = await sender.send(aRequest({ url: receiver.url }));
      await sleep(50);

      expect(second).toMatchObject({ outcome: 'unknown', errorKind: 'reset', wrote: true, status: null });
      expect([receiver.connections(), receiver.requests()]).toEqual([1, 2]);
    },
  );

  it('is not written again if undici puts it back into its queue', async () => {
    const sockets: Socket[] = [];
    const dial = (options: TcpNetConnectOpts) => {
      const socket = connect(options);
      sockets.push(socket);
      return socket;
    };
    // undici sends a request in flight again only after errors of this class.
    const requested = () => sockets[0]?.destroy(new errors.InformationalError('gone'));
    const receiver = await aHostile({ requested });

    const result = await aSender({ dial }).send(aRequest({ url: receiver.url }));
    await sleep(50);

    expect(result).toMatchObject({ outcome: 'unknown', errorKind: 'reset', wrote: true });
    expect([sockets.length, receiver.connections(), receiver.requests()]).toEqual([1, 1, 1]);
  });

  it('an unrequested response is not used for the next request', async () => {
    const receiver = await aHostile({
      requested: (socket, nth) => {
        socket.write(ANSWER);
        if (nth === 1) setTimeout(() => socket.write(EARLY), 10);
      },
    });
    const sender = aSender();

    await sender.send(aRequest({ url: receiver.url }));
    await sleep(40);
    const second = await sender.send(aRequest({ url: receiver.url }));

    expect(second).toMatchObject({ outcome: 'delivered', status: 200 });
    expect(receiver.connections()).toBe(2);
  });

  it('the start of a response that arrived with the previous one is not used either', async () => {
    const receiver = await aHostile({
      requested: (socket, nth) => socket.write(nth === 1 ? ANSWER + EARLY.slice(0, 20) : EARLY.slice(20) + ANSWER),
    });
    const sender = aSender();

    await sender.send(aRequest({ url: receiver.url }));
    await sender.send(aRequest({ url: receiver.url }));

    expect(receiver.connections()).toBe(2);
  });
});

describe('undici', () => {
  // `wrote` and `notAfter` are right only if nothing else runs between the check of the clock and the write.
  it('writes synchronously after it reports the start', async () => {
    const receiver = await aHostile({ requested: (socket) => socket.write('HTTP/1.1 204 No\r\n\r\n') });
    const socket = connect(receiver.port, '127.0.0.1');
    await once(socket, 'connect');
    const events: string[] = [];
    const client = new Client(receiver.url, {
      connect: (_, callback) => queueMicrotask(() => callback(null, socket)),
    });
    const write = socket.write.bind(socket);
    socket.write = (bytes: string) => {
      events.push('write');
      return write(bytes);
    };
    const post = () =>
      new Promise<void>((resolve, reject) => {
        const handler = {
          onRequestStart: () => {
            events.push('start');
            queueMicrotask(() => events.push('after'));
            process.nextTick(() => events.push('after'));
          },
          onResponseStart: () => {},
          onResponseData: () => {},
          onResponseEnd: () => resolve(),
          onResponseError: (_: unknown, error: Error) => reject(error),
        };
        client.dispatch({ path: '/', method: 'POST', body: Buffer.from('{}') }, handler);
      });

    await post();
    await post();
    await client.destroy();

    const each = ['start', 'write', 'write', 'after', 'after'];
    expect(events).toEqual([...each, ...each]);
  });
});

describe('after its deadline', () => {
  it('no connection is opened and nothing is written', async () => {
    const receiver = await aHostile({});

    const result = await aSender().send(aRequest({ url: receiver.url, notAfter: performance.now() - 1 }));

    expect(result).toMatchObject({ outcome: 'not_sent', errorKind: 'too_late', wrote: false });
    expect(receiver.connections()).toBe(0);
  });

  it('a connection that opened too late is unused, and serves the next request', async () => {
    const receiver = await aHostile({ requested: (socket) => socket.write('HTTP/1.1 204 No\r\n\r\n') });
    const sender = aSender({ resolver: answerAfter(100) });
    const url = `http://slow.example:${receiver.port}/`;

    const late = await sender.send(aRequest({ url, notAfter: performance.now() + 50 }));
    const written = receiver.requests();
    const next = await sender.send(aRequest({ url }));

    expect(late).toMatchObject({ outcome: 'not_sent', errorKind: 'too_late', wrote: false });
    expect([written, next.outcome, receiver.connections()]).toEqual([0, 'delivered', 1]);
  });

  it('nothing is written by a process that was stopped meanwhile', async () => {
    const receiver = await aHostile({});
    const result = await aSender({ dial: stalledDial, deadlineMs: 200 }).send(aRequest({ url: receiver.url }));

    expect(result).toMatchObject({ outcome: 'not_sent', errorKind: 'too_late', wrote: false });
    expect(receiver.requests()).toBe(0);
  });

  it('nothing is written if the time runs out between the check and the write on a used connection', async () => {
    const receiver = await aHostile({ requested: (socket) => socket.write('HTTP/1.1 204 No\r\n\r\n') });
    const sender = aSender();
    const { url } = receiver;
    const headers = () => {
      setImmediate(() => stall(80));
      return {};
    };

    await sender.send(aRequest({ url }));
    const late = await sender.send(aRequest({ url, headers, notAfter: performance.now() + 50 }));
    const written = receiver.requests();
    const next = await sender.send(aRequest({ url }));

    expect(late).toMatchObject({ outcome: 'not_sent', errorKind: 'too_late', wrote: false });
    expect([written, next.outcome, receiver.connections()]).toEqual([1, 'delivered', 1]);
  });
});

describe('connections', () => {
  it('are kept up to the limit of an endpoint, each for 1.5 s', async () => {
    const receiver = await aHostile({ requested: (socket) => socket.write('HTTP/1.1 204 No\r\n\r\n') });
    const sender = aSender({ perEndpointConnections: 2 });

    await Promise.all([1, 2, 3, 4].map(() => sender.send(aRequest({ url: receiver.url }))));
    const idleFrom = performance.now();
    const idleFor = (ms: number) => sleep(idleFrom + ms - performance.now());

    await expect.poll(() => receiver.endings).toHaveLength(2);
    await idleFor(1000);
    expect(receiver.endings).toHaveLength(2);
    await idleFor(1900);
    expect(receiver.endings).toEqual(['end', 'end', 'end', 'end']);
  });

  it('are not used again if the server announces that it closes them soon', async () => {
    const soon = 'HTTP/1.1 200 OK\r\nkeep-alive: timeout=1\r\ncontent-length: 0\r\n\r\n';
    const receiver = await aHostile({ requested: (socket) => socket.write(soon) });
    const sender = aSender();

    for (let nth = 0; nth < 2; nth += 1) await sender.send(aRequest({ url: receiver.url }));

    expect(receiver.connections()).toBe(2);
  });

  it('that are idle are closed when the limit is reached', async () => {
    const receivers = await Promise.all(
      [1, 2, 3].map(() => aHostile({ requested: (socket) => socket.write('HTTP/1.1 204 No\r\n\r\n') })),
    );
    const sender = aSender({ maxSockets: 2 });

    for (const { url } of receivers) {
      expect(await sender.send(aRequest({ endpointId: url, url }))).toMatchObject({ outcome: 'delivered' });
    }

    await expect.poll(() => receivers.flatMap(({ endings }) => endings)).toHaveLength(1);
  });

  it('serve every request, one after the other', async () => {
    const receiver = await aReceiver();
    const sender = aSender({ perEndpointConnections: 7, maxSockets: 10 });
    const seen: string[] = [];
    const each = sized({ everyday: 10, long: 50 });
    const lane = async (_: unknown, at: number) => {
      for (let nth = 0; nth < each; nth += 1) {
        seen.push((await sender.send(aRequest({ endpointId: `e${at % 3}`, url: receiver.url }))).outcome);
      }
    };

    await Promise.all(Array.from({ length: 10 }, lane));

    expect(seen.filter((outcome) => outcome === 'delivered')).toHaveLength(10 * each);
    expect(receiver.received).toHaveLength(10 * each);
  });
});

describe('closing', () => {
  it('waits for sends in flight and sends nothing that comes later', async () => {
    const { gate, open } = held();
    const receiver = await aReceiver({ respond: () => gate.then(() => ({})) });
    const sender = aSender();

    const running = sender.send(aRequest({ url: receiver.url }));
    await receiver.waitFor((received) => received.length >= 1);
    const closed = sender.close();
    const after = sender.send(aRequest({ url: receiver.url }));
    open();

    expect((await running).outcome).toBe('delivered');
    expect(await after).toMatchObject({ outcome: 'not_sent', errorKind: 'shutdown' });
    await closed;
    expect(receiver.received).toHaveLength(1);
  });
});

describe('send never throws', () => {
  it.each<[string, Partial<SendRequest>]>([
    [
      'headers that throw',
      {
        headers: () => {
          throw new Error('no secret');
        },
      },
    ],
    ['a header with a line break', { headers: { 'X-A': 'b\r\nX-Injected: c' } }],
    ['a header name with a line break', { headers: { 'X-A\r\nX-B': 'c' } }],
    ['a header outside of ASCII', { headers: { 'X-A': 'ü' } }],
  ])('for %s', async (_, overrides) => {
    const receiver = await aHostile({});

    const result = await aSender().send(aRequest({ url: receiver.url, ...overrides }));

    expect(result).toMatchObject({ outcome: 'not_sent', errorKind: 'internal', wrote: false });
    expect(receiver.requests()).toBe(0);
  });

  it.each([
    ['', 'address_refused'],
    ['ftp://example.com/', 'address_refused'],
    ['http://127.0.0.1:1/', 'connect'],
    ['http://no-such-name.invalid/', 'dns'],
  ])('for the URL "%s": %s', async (url, errorKind) => {
    const result = await aSender().send(aRequest({ url }));

    expect(result).toMatchObject({ outcome: 'not_sent', errorKind, wrote: false });
    expect(SEND_FAILURES).toContain(result.errorKind);
  });
});
