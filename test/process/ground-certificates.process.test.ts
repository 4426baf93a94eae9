import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer, type Server } from 'node:tls';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { spawnAdmin } from '../support/admin.ts';
import { anAssistant, aTurn } from '../support/builders.ts';
import { AUTHORITY, EXPIRED, KEY, OTHER_NAME, VALID } from '../kit/certificates.ts';
import { eventually } from '../support/eventually.ts';
import { openReceiver } from '../kit/receiver.ts';
import { sized } from '../support/size.ts';
import { newEnvironment, useStack } from '../support/stack.ts';

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

const RENEW = 'Renew the certificate';
const OTHER_HOST = 'Use a host name of the certificate';
const AUTHORITY_FILE = 'Name the file with the certificate of the authority';

type Case = { of: string; mongodb: string; redis: string; knows: boolean; hints: { MongoDB?: string; Redis?: string } };
const crossed: Case = {
  of: 'a certificate of MongoDB for another name, and an expired one of Redis',
  mongodb: OTHER_NAME,
  redis: EXPIRED,
  knows: true,
  hints: { MongoDB: OTHER_HOST, Redis: RENEW },
};
const cases: Case[] = [
  { of: 'valid certificates', mongodb: VALID, redis: VALID, knows: true, hints: {} },
  {
    of: 'an expired certificate of MongoDB, and one of Redis for another name',
    mongodb: EXPIRED,
    redis: OTHER_NAME,
    knows: true,
    hints: { MongoDB: RENEW, Redis: OTHER_HOST },
  },
  {
    of: 'an unknown authority',
    mongodb: VALID,
    redis: VALID,
    knows: false,
    hints: { MongoDB: AUTHORITY_FILE, Redis: AUTHORITY_FILE },
  },
  ...sized({ everyday: [], long: [crossed] }),
];

test.concurrent.each(cases)(
  '$of: the doctor connects, or says for each what to do',
  async ({ mongodb: ofMongodb, redis: ofRedis, knows, hints }) => {
    const [mongodb, redis] = await Promise.all([
      withTls(inject('mongodbUrl'), ofMongodb),
      withTls(inject('redisUrl'), ofRedis),
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

    const told = [RENEW, OTHER_HOST, AUTHORITY_FILE].flatMap((hint) =>
      stdout
        .split('\n')
        .filter((line) => line.includes(hint))
        .map((line) => [line.split(' ')[1] ?? '', hint] as const),
    );
    expect(Object.fromEntries(told)).toEqual(hints);
    expect(told).toHaveLength(Object.keys(hints).length);
    expect(status).toBe(1); // without workers, the doctor finds problems in any case
  },
);

const stack = useStack({ sending: { ca: AUTHORITY } });

test.concurrent.each([
  ['has expired', EXPIRED, 'CERT_HAS_EXPIRED'],
  ['is for another name', OTHER_NAME, 'ERR_TLS_CERT_ALTNAME_INVALID'],
])("an endpoint's certificate %s: nothing is sent, and the delivery says why", async (_what, cert, reason) => {
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
});
