import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer, type Server } from 'node:tls';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { spawnAdmin } from '../support/admin.ts';
import { anAssistant, aTurn } from '../support/builders.ts';
import { AUTHORITY, EXPIRED, KEY, OTHER_NAME, VALID } from '../support/certificates.ts';
import { eventually } from '../support/eventually.ts';
import { openReceiver } from '../support/receiver.ts';
import { newEnvironment, openStack } from '../support/stack.ts';

const folder = mkdtempSync(join(tmpdir(), 'parley-authority-'));
const authority = join(folder, 'authority.pem');
beforeAll(() => writeFileSync(authority, AUTHORITY));
afterAll(() => rmSync(folder, { recursive: true }));

/** A server with this certificate in front of a store. It ends TLS and passes all bytes. */
const withTls = async (address: string, cert: string): Promise<{ port: number; server: Server }> => {
  const { hostname, port } = new URL(address);
  const server = createServer({ key: KEY, cert }, (near) => {
    const far = connect(Number(port), hostname);
    near.pipe(far).pipe(near);
    near.on('error', () => far.destroy()).on('close', () => far.destroy());
    far.on('error', () => near.destroy()).on('close', () => near.destroy());
  });
  server.on('tlsClientError', () => undefined);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { port: (server.address() as AddressInfo).port, server };
};

const cases: [string, string, { knows: boolean; hint: string }][] = [
  ['a valid certificate', VALID, { knows: true, hint: '' }],
  ['an expired certificate', EXPIRED, { knows: true, hint: 'Renew the certificate' }],
  ['a certificate for another name', OTHER_NAME, { knows: true, hint: 'Use a host name of the certificate' }],
  ['an unknown authority', VALID, { knows: false, hint: 'Name the file with the certificate of the authority' }],
];

test.each(cases)(
  'MongoDB and Redis with %s: the doctor connects, or says for each what to do',
  async (_name, cert, { knows, hint }) => {
    const [mongodb, redis] = await Promise.all([
      withTls(inject('mongodbUrl'), cert),
      withTls(inject('redisUrl'), cert),
    ]);
    const { status, stdout } = await spawnAdmin(
      {
        ...newEnvironment(),
        MONGODB_URL: `mongodb://127.0.0.1:${mongodb.port}/t-tls?directConnection=true&tls=true`,
        REDIS_URL: `rediss://127.0.0.1:${redis.port}`,
        ...(knows && { NODE_EXTRA_CA_CERTS: authority }),
      },
      ['doctor'],
    );
    for (const { server } of [mongodb, redis]) server.close();

    const named = stdout.split('\n').filter((line) => hint !== '' && line.includes(hint));
    expect(named.map((line) => line.split(' ')[1])).toEqual(hint === '' ? [] : ['MongoDB', 'Redis']);
    expect(status).toBe(1); // without workers, the doctor finds problems in any case
  },
);

test.each([
  ['has expired', EXPIRED, 'CERT_HAS_EXPIRED'],
  ['is for another name', OTHER_NAME, 'ERR_TLS_CERT_ALTNAME_INVALID'],
])("an endpoint's certificate %s: nothing is sent, and the delivery says why", async (_what, cert, reason) => {
  const stack = await openStack({ sending: { ca: AUTHORITY } });
  const receiver = await openReceiver({ tls: { key: KEY, cert } });
  const { assistantId, chat } = await anAssistant(stack);
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });

  expect((await chat(aTurn())).status).toBe(200);

  await eventually(async () => {
    const rows = await stack.service.mongo.collection('deliveries').find({ assistantId }).toArray();
    expect(rows.map(({ outcome, errorKind, errorDetail }) => [outcome, errorKind, errorDetail])).toEqual([
      ['not_sent', 'tls', reason],
      ['not_sent', 'tls', reason],
    ]);
  });
  expect(receiver.received).toEqual([]);
  await stack.close();
  await receiver.close();
});
