import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request as httpsRequest } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect, type TLSSocket } from 'node:tls';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ConfigError, readConfig } from '../../src/platform/process/config.ts';
import { anAssistant, aTurn } from '../support/builders.ts';
import { AUTHORITY, KEY, VALID } from '../kit/certificates.ts';
import { openSilentConnection } from '../support/silent-connection.ts';
import { openStack, type Stack } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';

const folder = mkdtempSync(join(tmpdir(), 'parley-tls-'));
/** A fifth of the production value, which the long form of test/turns/graceful-stop.process.test.ts keeps. */
const CUT_AFTER_MS = 1_500;
let stack: Stack;

beforeAll(async () => {
  writeFileSync(join(folder, 'cert.pem'), VALID);
  writeFileSync(join(folder, 'key.pem'), KEY);
  const env = { TLS_CERT_FILE: join(folder, 'cert.pem'), TLS_KEY_FILE: join(folder, 'key.pem') };
  stack = await openStack({ env, timing: { replyStopAfterMs: 1_000, connectionsCutAfterMs: CUT_AFTER_MS } });
});
afterAll(async () => {
  await stack.close();
  rmSync(folder, { recursive: true });
});

const handshake = (options: { minVersion?: 'TLSv1.2'; maxVersion?: 'TLSv1.2' }): Promise<string> =>
  new Promise((resolve, reject) => {
    const socket: TLSSocket = connect({
      port: Number(new URL(stack.url).port),
      host: '127.0.0.1',
      ca: AUTHORITY,
      servername: 'localhost',
      ...options,
    });
    socket.once('secureConnect', () => {
      resolve(socket.getProtocol() ?? 'none');
      socket.destroy();
    });
    socket.once('error', reject);
  });

test('the API accepts TLS 1.3 and refuses older versions', async () => {
  expect(await handshake({})).toBe('TLSv1.3');
  await expect(handshake({ minVersion: 'TLSv1.2', maxVersion: 'TLSv1.2' })).rejects.toThrow(/protocol version/i);
});

test('a turn over TLS is answered', async () => {
  const { apiKey } = await anAssistant(stack);

  const status = await new Promise((resolve, reject) => {
    const headers = { 'Content-Type': 'application/json', Authorization: `Bearer ${apiKey}` };
    const { port } = new URL(stack.url);
    const sent = httpsRequest({
      port,
      host: '127.0.0.1',
      servername: 'localhost',
      ca: AUTHORITY,
      path: '/api/v1/chat',
      method: 'POST',
      headers,
    });
    sent.on('response', (response) => {
      response.resume();
      resolve(response.statusCode);
    });
    sent.on('error', reject);
    sent.end(JSON.stringify(aTurn()));
  });

  expect(status).toBe(200);
});

const STOPPED_WITHIN_MS = 2 * CUT_AFTER_MS;
/** The first bytes of a TLS handshake. */
const BEGINNING = Buffer.from([0x16, 0x03, 0x01]);

test('a stop cuts connections without a handshake', async () => {
  const api = await stack.startApi();
  await openSilentConnection(api.url);
  const slow = await openSilentConnection(api.url);
  slow.write(BEGINNING);
  const since = performance.now();

  await api.close();

  expect(performance.now() - since).toBeLessThan(atPace(STOPPED_WITHIN_MS));
});

const KEY_32 = Buffer.alloc(32).toString('base64');

test.each([
  ['plain HTTP', { ENCRYPTION_KEY: KEY_32 }, 'TLS_CERT_FILE'],
  ['no encryption key', { TLS_TERMINATED_UPSTREAM: 'true' }, 'ENCRYPTION_KEY'],
  [
    'private webhook addresses',
    { TLS_TERMINATED_UPSTREAM: 'true', ENCRYPTION_KEY: KEY_32, WEBHOOK_ALLOW_PRIVATE: 'true' },
    'WEBHOOK_ALLOW_PRIVATE',
  ],
  ['half a certificate', { TLS_CERT_FILE: 'a.pem', ENCRYPTION_KEY: KEY_32 }, 'TLS_KEY_FILE'],
])('production refuses to start with %s', (_what, env, name) => {
  expect(() => readConfig({ NODE_ENV: 'production', ...env })).toThrow(ConfigError);
  expect(() => readConfig({ NODE_ENV: 'production', ...env })).toThrow(name);
});

test('production starts behind a proxy that terminates TLS, and listens on all addresses', () => {
  const config = readConfig({ NODE_ENV: 'production', TLS_TERMINATED_UPSTREAM: 'true', ENCRYPTION_KEY: KEY_32 });

  expect(config.HOST).toBe('0.0.0.0');
});

test('development listens on loopback only, and each bad value is named on a separate line', () => {
  expect(readConfig({}).HOST).toBe('127.0.0.1');
  expect(() => readConfig({ PORT: 'http', LOG_LEVEL: 'loud', ENCRYPTION_KEY: 'short' })).toThrow(
    /LOG_LEVEL[^\n]*\n[^\n]*PORT[^\n]*\n[^\n]*ENCRYPTION_KEY/,
  );
});
