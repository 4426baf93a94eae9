import { get } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { buffer } from 'node:stream/consumers';
import * as fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { MAX_BODY_BYTES, ResponseReader } from '../workers/delivery/send/response-reader.ts';

const read = (pieces: Buffer[], closed: boolean): ResponseReader => {
  const reader = new ResponseReader();
  for (const piece of pieces) reader.push(piece);
  if (closed) reader.end();
  return reader;
};
const view = (reader: ResponseReader) => {
  const { status, headers, truncated, reusable, failure, done } = reader;
  return { status, headers, truncated, reusable, failure, done, text: reader.text() };
};

/** The bytes in pieces, cut at the given places. */
const cutAt = (bytes: Buffer, places: number[]): Buffer[] => {
  const cuts = [0, ...places.map((place) => place % (bytes.length + 1)).sort((a, b) => a - b), bytes.length];
  return cuts.slice(1).map((to, at) => bytes.subarray(cuts[at], to));
};

const token = fc.stringMatching(/^x-[a-z]{1,12}$/);
const value = fc.stringMatching(/^[!-~]([ -~]{0,20}[!-~])?$/);
const places = fc.array(fc.nat(100_000), { maxLength: 8 });
const body = fc.oneof(fc.uint8Array({ maxLength: 300 }), fc.uint8Array({ minLength: 16_000, maxLength: 17_000 }));
const aResponse = fc
  .record({
    status: fc.constantFrom(200, 201, 202, 206, 301, 400, 404, 410, 429, 500, 503, 599),
    interim: fc.constantFrom('', 'HTTP/1.1 100 Continue\r\n\r\n', 'HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n'),
    headers: fc.uniqueArray(fc.tuple(token, value), { maxLength: 6, selector: ([name]) => name }),
    framing: fc.constantFrom('length' as const, 'chunked' as const, 'until_close' as const),
    body: body.map((bytes) => Buffer.from(bytes)),
    chunks: places,
    extension: fc.constantFrom('', ';a=b'),
    trailer: fc.constantFrom('', 'x-trailer: t\r\n'),
  })
  .map(({ status, interim, headers, framing, body, chunks, extension, trailer }) => {
    const extra =
      framing === 'length'
        ? `content-length: ${body.length}\r\n`
        : framing === 'chunked'
          ? 'transfer-encoding: chunked\r\n'
          : '';
    const head = `${interim}HTTP/1.1 ${status} Some Text\r\n${headers.map(([name, text]) => `${name}: ${text}\r\n`).join('')}${extra}\r\n`;
    const parts = cutAt(body, chunks).filter((part) => part.length > 0);
    const framed = parts.flatMap((part) => [
      Buffer.from(`${part.length.toString(16)}${extension}\r\n`),
      part,
      Buffer.from('\r\n'),
    ]);
    const payload = framing === 'chunked' ? Buffer.concat([...framed, Buffer.from(`0\r\n${trailer}\r\n`)]) : body;
    return { bytes: Buffer.concat([Buffer.from(head), payload]), body, framing, status };
  });

describe('a response', () => {
  it('reads the same however it is cut into pieces', () => {
    fc.assert(
      fc.property(aResponse, places, ({ bytes, body, framing, status }, cuts) => {
        const whole = view(read([bytes], framing === 'until_close'));
        const pieces = view(read(cutAt(bytes, cuts), framing === 'until_close'));

        expect(pieces).toEqual(whole);
        expect(whole).toMatchObject({ status, done: true, failure: null, truncated: body.length > MAX_BODY_BYTES });
        expect(whole.reusable).toBe(framing !== 'until_close' && body.length <= MAX_BODY_BYTES);
      }),
      { numRuns: 300 },
    );
  });

  it('of any bytes whatever ends in a status or a failure, keeping no more than the cap', () => {
    const noise = fc.uint8Array({ maxLength: 400 }).map((bytes) => Buffer.from(bytes));
    const start = fc.constantFrom(
      '',
      'HTTP/1.1 200 OK\r\n',
      'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n',
      'HTTP/1.1 ',
    );
    fc.assert(
      fc.property(start, noise, places, (head, bytes, cuts) => {
        const reader = read(cutAt(Buffer.concat([Buffer.from(head), bytes]), cuts), true);

        expect(reader.done).toBe(true);
        expect(reader.status === 0).toBe(reader.failure !== null);
        expect(reader.text().length).toBeLessThanOrEqual(MAX_BODY_BYTES);
      }),
      { numRuns: 500 },
    );
  });
});

describe('beside the parser of Node', () => {
  let answer = Buffer.alloc(0);
  const server = createServer((socket) => socket.on('error', () => {}).once('data', () => socket.end(answer)));
  let port = 0;
  beforeAll(async () => {
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    port = (server.address() as AddressInfo).port;
  });
  afterAll(() => void server.close());

  it('status, headers and body come out alike', async () => {
    await fc.assert(
      fc.asyncProperty(aResponse, async ({ bytes }) => {
        answer = bytes;
        const theirs = await new Promise<{ status: number; headers: object; body: Buffer }>((resolve, reject) => {
          const request = get({ port, host: '127.0.0.1', agent: false }, (response) => {
            const { statusCode = 0, headers } = response;
            buffer(response).then((body) => resolve({ status: statusCode, headers, body }), reject);
          });
          request.on('error', reject);
        });

        const ours = view(read([bytes], true));

        expect(ours.status).toBe(theirs.status);
        expect(ours.headers).toEqual(theirs.headers);
        const cut = ours.truncated;
        expect(ours.text).toBe(
          new TextDecoder('utf-8', { ignoreBOM: true }).decode(theirs.body.subarray(0, MAX_BODY_BYTES), {
            stream: cut,
          }),
        );
      }),
      { numRuns: 150 },
    );
  });
});
